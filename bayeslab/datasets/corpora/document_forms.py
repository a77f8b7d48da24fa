"""What documents may come as: tables of other libraries, long tables under other names, bags of words, vocabularies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.datasets.arguments import short_repr

if TYPE_CHECKING:
    import pandas as pd

LONG_FORM_COLUMNS = {
    "document": ("document", "doc", "doc_id", "docid", "document_id"),
    "word": ("word", "token", "term", "lemma"),
    "count": ("count", "counts", "n", "freq", "frequency", "cnt", "num", "occurrences", "tf", "term_frequency"),
}
"""The columns of a table in long form, a row for a word in a document, and what they may be called."""
AXIS_NAMES = {
    "document": (*LONG_FORM_COLUMNS["document"], "documents", "docs"),
    "word": (*LONG_FORM_COLUMNS["word"], "words", "tokens", "terms", "vocabulary", "feature"),
}
"""What the axes of a matrix of counts may be called."""
NUMBER_COLUMNS = (*LONG_FORM_COLUMNS["document"], "id", "index", "level_0", "unnamed: 0")
"""What a column that numbers documents may be called."""
MIN_WORDS_OF_TEXT = 5
"""The fewest words, set apart by blanks, of a text; names of documents are shorter."""


def as_frame(source: Any) -> Any:
    """A table or a column of polars, Arrow, xarray or another library as one of pandas; anything else as it is."""
    import pandas as pd

    library = type(source).__module__.partition(".")[0]
    if (
        library == "xarray" and getattr(source, "ndim", None) == 1 and source.dtype.kind in "OUT"
    ):  # texts, or lists of words
        return source.to_series()
    for to_list in ("to_pylist", "to_list"):  # a column of Arrow, or of polars
        if hasattr(source, to_list) and not isinstance(source, pd.Series | pd.Index) and not hasattr(source, "columns"):
            return pd.Series(getattr(source, to_list)(), dtype=object)
    if isinstance(source, pd.DataFrame | pd.Series) or library in ("xarray", "numpy"):
        return source
    if hasattr(source, "to_dict") and hasattr(source, "columns") and hasattr(source, "height"):  # polars, without Arrow
        return pd.DataFrame(source.to_dict(as_series=False))
    if hasattr(source, "__dataframe__"):
        return source.to_pandas() if hasattr(source, "to_pandas") else pd.api.interchange.from_dataframe(source)
    return source


def with_index_as_columns(source: Any) -> Any:
    """Counts whose rows are named by document and word, a table of one column or a column, with these as columns;
    anything else as it is."""
    import pandas as pd

    if not isinstance(source, pd.DataFrame | pd.Series) or not isinstance(source.index, pd.MultiIndex):
        return source
    known = [
        [wanted for wanted in ("document", "word") if str(n).lower() in LONG_FORM_COLUMNS[wanted]]
        for n in source.index.names
    ]
    if sorted(known) != [["document"], ["word"]]:
        return source
    if isinstance(source, pd.Series):
        return source.rename("count").reset_index() if pd.api.types.is_numeric_dtype(source) else source
    others = [name for name in source.columns if name not in source.index.names]
    return source[others].reset_index() if len(others) < 2 else source


def as_array(matrix: Any) -> np.ndarray:
    """A matrix as an array; of types of pandas with a value for what is missing, this is NaN."""
    import pandas as pd

    values = np.asarray(matrix)
    if values.dtype.kind == "O" and all(map(pd.api.types.is_numeric_dtype, getattr(matrix, "dtypes", [object]))):
        return matrix.to_numpy(float, na_value=np.nan)
    return values


def long_form(frame: pd.DataFrame) -> pd.DataFrame | None:
    """A table with columns document, word and perhaps count, from one that calls them so; None for another table.

    Raises ValueError where two columns could be one of them, and where the column of documents holds texts.
    """
    if (columns := long_form_columns(frame)) is None:
        return None
    if are_texts(frame[columns["document"]]):
        raise ValueError(
            f"column {columns['document']!r} of the table has another text of {MIN_WORDS_OF_TEXT} or more words in "
            "most rows, as texts are and names of documents are not; give that column alone if it has the texts, else "
            "short names"
        )
    return frame.rename(columns={name: wanted for wanted, name in columns.items()})


def long_form_columns(frame: pd.DataFrame) -> dict[str, str] | None:
    """What a table calls its columns document, word and perhaps count; None for another table.

    Raises ValueError where two columns could be one of them.
    """
    columns: dict[str, str] = {}
    for wanted, known in LONG_FORM_COLUMNS.items():
        candidates = [name for name in dict.fromkeys(frame.columns) if isinstance(name, str) and name.lower() in known]
        exact = [name for name in candidates if name == wanted]
        if len(candidates) > 1 and not exact and wanted != "count":
            raise ValueError(f"columns {candidates} of the table could each be of {wanted}s; rename one to {wanted!r}")
        if chosen := exact or candidates[:1]:
            columns[wanted] = chosen[0]
    return columns if {"document", "word"} <= columns.keys() else None


def are_texts(column: pd.Series) -> bool:
    """Whether most rows have a text of many words that no other has; a name is in the rows of all words of its
    document."""
    different = {value for value in column.to_numpy().ravel() if isinstance(value, str)}
    num_texts = sum(len(value.split()) >= MIN_WORDS_OF_TEXT for value in different)
    return len(column) > 1 and 2 * num_texts > len(column)


def refuse_text_columns(source: Any) -> None:
    """Raise ValueError for a table of pandas that holds text, which is no matrix of counts."""
    for name, kind in getattr(source, "dtypes", {}).items() if hasattr(source, "columns") else ():
        if str(kind) in ("object", "string", "str", "category"):
            raise ValueError(
                f"column {name!r} of the table holds text; expected counts, a row a document and a column a word, or "
                "the columns document, word and count"
            )


def refuse_other_axes(source: Any) -> None:
    """Raise ValueError for a matrix whose axes are named as words and documents, or whose first column numbers rows."""
    names: Any = getattr(source, "dims", None)
    if hasattr(source, "columns") and hasattr(source, "index"):
        names = (source.index.name, source.columns.name)
    names = tuple(names or ("", ""))
    rows, columns = (str(name).lower() for name in names)
    if rows in AXIS_NAMES["word"] or columns in AXIS_NAMES["document"]:
        raise ValueError(f"the matrix has dimensions {short_repr(names)}; expected (document, word), so transpose it")
    if not hasattr(source, "columns") or not len(source.columns):
        return
    first, values = source.columns[0], source.iloc[:, 0]
    unnamed = list(source.index) == list(range(len(source)))
    if str(first).lower() in NUMBER_COLUMNS and unnamed and len(source) > 1 and values.is_unique:
        raise ValueError(
            f"column {first!r} of the table has another number in every row, as names of documents have, and would be "
            f"read as the counts of a word; make it the index, by set_index({first!r}), or leave it out"
        )


def word_counts(documents: Sequence[Any]) -> list[dict[Hashable, Any]] | None:
    """Documents that are mappings from words to counts, as Counter, or lists of pairs (text, count), as mappings.

    None for other documents. Raises ValueError for a document that has a word in two pairs, and where only some are so.
    """
    pairs = [list(one.items()) if isinstance(one, Mapping) else one for one in documents]
    parts = [part for one in pairs if isinstance(one, list | tuple) for part in one]
    if not any(isinstance(one, Mapping) for one in documents) and not (parts and all(map(_is_counted_word, parts))):
        return None
    counted: list[dict[Hashable, Any]] = []
    for place, one in enumerate(pairs):
        listed = isinstance(one, list | tuple) and all(isinstance(part, tuple) and len(part) == 2 for part in one)
        if not listed:
            raise ValueError(f"document {place} has no counts, while others map words to them; give all in one form")
        if len(bag := dict(one)) < len(one):
            raise ValueError(f"document {place} has a word twice; expected it once, with its count")
        for word, count in bag.items():
            if not isinstance(count, int | float | np.number):
                raise ValueError(f"document {place} has {short_repr(count)} as the count of word {short_repr(word)}")
        counted.append(bag)
    return counted


def are_bags(documents: Sequence[Any]) -> bool:
    """Whether documents are lists of pairs of numbers, as gensim's are.

    Raises ValueError where only some of their parts are pairs of numbers: these would be words.
    """
    parts = [part for document in documents if _has_parts(document) for part in document]
    listed = all(map(_has_parts, documents))
    are_pairs = [_is_pair_of_numbers(part) for part in parts]
    if any(are_pairs) and not (listed and all(are_pairs)):
        raise ValueError("some documents hold pairs (number of a word, count), and others hold words; give one form")
    return any(are_pairs)


def as_vocabulary(words: Any) -> Any:
    """Words in the order of their numbers, from a mapping of numbers to words or of words to numbers.

    Raises ValueError where the numbers are not 0, 1, 2, ... Anything else comes back as it is.
    """
    if not isinstance(words, Mapping):
        return words
    by_number = {number: word for number, word in words.items() if _is_integer(number)}
    if len(by_number) < len(words):
        by_number = {number: word for word, number in words.items() if _is_integer(number)}
    if sorted(by_number) != list(range(len(words))):
        raise ValueError("words are a mapping whose numbers are not 0, 1, 2 and so on, each once; give a list in order")
    return [by_number[number] for number in range(len(words))]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _has_parts(value: Any) -> bool:
    """Whether it is a list, a tuple, or an array with axes."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _is_counted_word(part: Any) -> bool:
    """Whether it is a word and its count; a word may not be a number here, as the number of a word is one."""
    is_pair = isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)
    return is_pair and isinstance(part[1], int | float | np.number) and not isinstance(part[1], bool)


def _is_pair_of_numbers(part: Any) -> bool:
    return (
        _has_parts(part)
        and len(part) == 2
        and all(isinstance(n, int | float | np.number) and not isinstance(n, bool) for n in part)
    )
