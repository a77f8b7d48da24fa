"""What documents may come as: tables of other libraries, long tables under other names, bags of words, vocabularies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

LONG_FORM_COLUMNS = {
    "document": ("document", "doc", "doc_id", "docid", "document_id"),
    "word": ("word", "token", "term", "lemma"),
    "count": ("count", "counts", "n", "freq", "frequency", "cnt", "num", "occurrences", "tf", "term_frequency"),
}
"""The columns of a table in long form, a row for a word in a document, and what they may be called."""


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


def long_form(frame: pd.DataFrame) -> pd.DataFrame | None:
    """A table with columns document, word and perhaps count, from one that calls them so; None for another table.

    Raises ValueError where two columns could be one of them.
    """
    names: dict[Hashable, str] = {}
    for wanted, known in LONG_FORM_COLUMNS.items():
        candidates = [name for name in dict.fromkeys(frame.columns) if isinstance(name, str) and name.lower() in known]
        exact = [name for name in candidates if name == wanted]
        if len(candidates) > 1 and not exact and wanted != "count":
            raise ValueError(f"columns {candidates} of the table could each be of {wanted}s; rename one to {wanted!r}")
        if chosen := exact or candidates[:1]:
            names[chosen[0]] = wanted
    return frame.rename(columns=names) if {"document", "word"} <= set(names.values()) else None


def refuse_text_columns(source: Any) -> None:
    """Raise ValueError for a table of pandas that holds text, which is no matrix of counts."""
    for name, kind in getattr(source, "dtypes", {}).items() if hasattr(source, "columns") else ():
        if str(kind) in ("object", "string", "str", "category"):
            raise ValueError(
                f"column {name!r} of the table holds text; expected counts, a row a document and a column a word, or "
                "the columns document, word and count"
            )


def are_bags(documents: Sequence[Any]) -> bool:
    """Whether documents are lists of pairs of numbers, as gensim's are."""
    parts = [part for document in documents if isinstance(document, list | tuple) for part in document]
    listed = all(isinstance(document, list | tuple) for document in documents)
    return listed and bool(parts) and all(map(_is_pair_of_numbers, parts))


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


def _is_pair_of_numbers(part: Any) -> bool:
    return (
        isinstance(part, tuple)
        and len(part) == 2
        and all(isinstance(n, int | float | np.number) and not isinstance(n, bool) for n in part)
    )
