"""Documents as the data of a topic model, and documents simulated from one."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import (
    MAX_NUMBERS_IN_MEMORY,
    as_integer,
    as_positive,
    axis_lengths,
    is_listed,
)
from bayeslab.datasets.corpora.document_forms import (
    are_bags,
    as_array,
    as_frame,
    as_vocabulary,
    long_form,
    refuse_other_axes,
    refuse_text_columns,
    with_index_as_columns,
    word_counts,
)

if TYPE_CHECKING:
    import pandas as pd

WORD_PATTERN = re.compile(r"\b\w\w+\b")
"""A word of a text, as CountVectorizer of scikit-learn finds them."""


def documents(
    source: Any, words: Sequence[Hashable] | None = None, names: Sequence[Hashable] | None = None
) -> dict[str, Any]:
    """The data of a topic model: document and word (token,), labelled, num_documents and num_words.

    source: a matrix of counts (document, word), of SciPy, NumPy, pandas or xarray, or what scikit-learn's
        CountVectorizer makes; lists of words, one a document, or a mapping from names to them; bags of words as gensim
        has them, lists of (number of a word, count), or mappings from words to counts, as Counter, or lists of
        (text, count); a table of pandas, polars or Arrow with a row for a word in a
        document, whose columns are called as in LONG_FORM_COLUMNS; or a Series of texts or of lists of words, with the
        names of documents as its index. Texts are taken apart as by CountVectorizer: words of two letters and more, in
        small letters.
    words: the vocabulary in order: of the columns of a matrix and of the numbers in bags; otherwise all that may be
        used, and by default what is. gensim's Dictionary, and a mapping from words to numbers as CountVectorizer has.
    names: of the documents in order; by default those of the source, or numbers.
    Documents without a word and words that nowhere occur are kept. Raises ValueError for counts that are no whole
    numbers from 0, for a word outside of the vocabulary or missing, for a name that two documents or words have, and
    for a corpus without any word, and says where; TypeError for what is no document.
    """
    import pandas as pd

    source, words = with_index_as_columns(as_frame(source)), as_vocabulary(words)
    if isinstance(source, pd.Series):
        source, names = list(_texts_as_words(source)), _index_names(source, names)
    if isinstance(source, pd.DataFrame) and (renamed := long_form(source)) is not None:
        table = _from_table(renamed, words, names)
    elif _is_matrix(source):
        table = _from_matrix(source, words, names)
    else:
        table = _from_lists(source, words, names)
    document, word, count = table
    if not count.any():
        raise ValueError("the documents have no word.")
    if (total := count.sum(dtype=float)) > MAX_NUMBERS_IN_MEMORY:
        raise ValueError(f"the documents have {total:g} words in all; expected counts that memory can hold.")
    tokens = pd.RangeIndex(count.sum(), name="token")
    repeated = {"document": document.repeat(count), "word": word.repeat(count)}
    columns = {name: pd.Series(codes, tokens, name=name) for name, codes in repeated.items()}
    return {**columns, "num_documents": len(document.categories), "num_words": len(word.categories)}


def simulated_documents(
    num_documents: int,
    num_tokens: int,
    num_words: int,
    num_topics: int,
    *,
    seed: int = 0,
    alpha: float = 0.1,
    concentration: float = 0.1,
) -> xr.Dataset:
    """Simulated counts (document, word), with the topics (topic, word) and the shares (document, topic) behind them.

    num_tokens: of every document. alpha, concentration: of the Dirichlet distributions of shares and topics.
    Raises ValueError for numbers below 1, concentrations that are not positive and seeds below 0, TypeError for what is
    no number.
    """
    num_documents, num_words, num_topics = axis_lengths(
        num_documents=num_documents, num_words=num_words, num_topics=num_topics
    )
    (num_tokens,) = axis_lengths(num_tokens=num_tokens)
    alpha, concentration = as_positive("alpha", alpha), as_positive("concentration", concentration)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    topics = rng.dirichlet(np.full(num_words, concentration), num_topics)
    shares = rng.dirichlet(np.full(num_topics, alpha), num_documents)
    probabilities = shares @ topics
    counts = rng.multinomial(num_tokens, probabilities / probabilities.sum(1, keepdims=True))
    return xr.Dataset(
        {
            "counts": (("document", "word"), counts),
            "topics": (("topic", "word"), topics),
            "shares": (("document", "topic"), shares),
        }
    )


DocumentWordCounts = tuple["pd.Categorical", "pd.Categorical", np.ndarray]
"""The document and the word of every row, and how often the word is in the document."""


def _is_matrix(source: Any) -> bool:
    """Whether it is a matrix; raises TypeError for a Dataset and for an array of SciPy with another number of axes."""
    if isinstance(source, xr.Dataset):
        raise TypeError(f"documents are a Dataset; name its variable of counts, one of {list(map(str, source))}")
    if hasattr(source, "tocoo") and len(source.shape) != 2:
        raise ValueError(f"the matrix of counts has shape {source.shape}; expected (document, word)")
    return hasattr(source, "tocoo") or (hasattr(source, "shape") and len(source.shape) == 2)


def _from_matrix(source: Any, words: Sequence[Hashable] | None, names: Sequence[Hashable] | None) -> DocumentWordCounts:
    import pandas as pd
    from scipy.sparse import coo_array

    refuse_other_axes(source)
    refuse_text_columns(source)
    rows, columns = _axis_names(source)
    values = source.tocoo() if hasattr(source, "tocoo") else as_array(source)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the matrix of counts holds {values.dtype}; expected whole numbers from 0")
    if np.ma.isMaskedArray(source) and np.ma.getmaskarray(source).any():
        raise ValueError("the matrix of counts has masked entries; expected whole numbers from 0")
    matrix = coo_array(values.astype(float if values.dtype.kind == "f" else values.dtype.newbyteorder("=")))
    size = dict(zip(("documents", "words"), matrix.shape, strict=True))
    labels = []
    for (axis, length), named, own in zip(size.items(), (names, words), (rows, columns), strict=True):
        given_index = None if named is None else _unique_names(named, axis)
        if given_index is not None and len(given_index) != length:
            other = next(number for name, number in size.items() if name != axis)
            hint = "; is it transposed?" if len(given_index) == other else ""
            raise ValueError(
                f"the matrix has shape {matrix.shape}, with {length} {axis}, but {len(given_index)} are named{hint}"
            )
        labels.append(
            _unique_names(range(length) if own is None else own, axis) if given_index is None else given_index
        )
    document, word = (pd.Categorical.from_codes(code, index) for code, index in zip(matrix.coords, labels, strict=True))
    order = np.lexsort((matrix.col, matrix.row))
    return document[order], word[order], _checked_counts(matrix.data[order], document[order], word[order])


def _axis_names(source: Any) -> tuple[Any, Any]:
    """The names of rows and of columns, None where a matrix has none."""
    if isinstance(source, xr.DataArray):
        indexes = [source.indexes.get(dim) for dim in source.dims]
        return indexes[0], indexes[1]
    return getattr(source, "index", None), getattr(source, "columns", None)


def _from_table(
    source: pd.DataFrame, words: Sequence[Hashable] | None, names: Sequence[Hashable] | None
) -> DocumentWordCounts:
    if source.columns.has_duplicates:
        raise ValueError(f"the table has column {source.columns[source.columns.duplicated()][0]!r} twice")
    if unknown := set(source.columns) - {"document", "word", "count"}:
        raise ValueError(
            f"the table has columns {sorted(map(str, unknown))}; expected document, word, count and no others"
        )
    for column in ("document", "word"):
        if source[column].isna().any():
            row = source.index[source[column].isna()][0]
            raise ValueError(f"{column} is missing in row {row!r} of the table")
    count = source["count"].to_numpy() if "count" in source else np.ones(len(source), int)
    document, word = _categorical(source["document"], names, "document"), _categorical(source["word"], words, "word")
    order = np.argsort(document.codes, kind="stable")
    return document[order], word[order], _checked_counts(count[order], document[order], word[order])


def _from_lists(source: Any, words: Sequence[Hashable] | None, names: Sequence[Hashable] | None) -> DocumentWordCounts:
    if isinstance(source, Set) or not is_listed(source):
        raise TypeError(
            f"documents are a {type(source).__name__}; expected a matrix of counts, lists of words or a table"
        )
    if names is not None and isinstance(source, Mapping):
        first = next(iter(source), None)
        raise ValueError(f"the documents are named by the mapping, as {first!r}; leave names out")
    if not isinstance(source, Sequence | Mapping):
        source = list(source)  # as corpora that are read from a file have no places
    by_name = (
        dict(source) if isinstance(source, Mapping) else dict(zip(_document_names(source, names), source, strict=True))
    )
    if (counted := word_counts(list(by_name.values()))) is not None:
        return _from_counted(dict(zip(by_name, counted, strict=True)), words)
    if are_bags(list(by_name.values())):
        return _from_bags(by_name, words)
    word_lists = {name: _words_of_document(name, document) for name, document in by_name.items()}
    import pandas as pd

    tokens = pd.Series([word for document in word_lists.values() for word in document], dtype=object)
    lengths = [len(document) for document in word_lists.values()]
    document = pd.Categorical.from_codes(
        np.repeat(np.arange(len(word_lists)), lengths), _unique_names(list(word_lists), "documents")
    )
    if (missing := tokens.isna().to_numpy()).any():
        raise ValueError(f"document {_quoted(document[missing][0])} has a missing word; leave it out")
    return document, _categorical(tokens, words, "word", document), np.ones(len(tokens), int)


def _from_counted(bags: Mapping[Hashable, Mapping[Hashable, Any]], words: Any) -> DocumentWordCounts:
    """Documents that map words to their counts."""
    import pandas as pd

    labels = _unique_names(list(bags), "documents")
    places = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags.values()])
    document = pd.Categorical.from_codes(places, labels)
    word = _categorical(
        pd.Series([word for bag in bags.values() for word in bag], dtype=object), words, "word", document
    )
    return (
        document,
        word,
        _checked_counts(np.asarray([count for bag in bags.values() for count in bag.values()]), document, word),
    )


def _from_bags(bags: Mapping[Hashable, Any], words: Sequence[Hashable] | None) -> DocumentWordCounts:
    """Bags of words: lists of pairs of the number of a word and its count."""
    import pandas as pd

    pairs = [np.asarray(list(bag), float).reshape(-1, 2) for bag in bags.values()]
    numbers, count = np.concatenate(pairs, axis=0).T
    document = np.repeat(np.arange(len(pairs)), [len(bag) for bag in pairs])
    labels = _unique_names(list(bags), "documents")
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < 2**53)))
    if wrong.size:
        raise ValueError(
            f"document {_quoted(labels[document[wrong[0]]])} has {numbers[wrong[0]]:g} as the number of a word; "
            "expected whole numbers from 0"
        )
    largest = int(numbers.max(initial=-1))
    vocabulary = _unique_names(range(largest + 1) if words is None else words, "words")
    if largest >= len(vocabulary):
        where = _quoted(labels[document[int(numbers.argmax())]])
        raise ValueError(f"document {where} has word number {largest}, but {len(vocabulary)} words are named, from 0")
    word = pd.Categorical.from_codes(numbers.astype(int), vocabulary)
    named = pd.Categorical.from_codes(document, labels)
    return named, word, _checked_counts(count, named, word)


def _texts_as_words(source: pd.Series) -> Iterator[Any]:
    """The documents of a Series, texts as lists of their words."""
    for name, document in source.items():
        if document is None or isinstance(document, float):
            raise ValueError(f"document {name!r} is missing; leave it out")
        yield WORD_PATTERN.findall(document.lower()) if isinstance(document, str) else document


def _index_names(source: pd.Series, names: Sequence[Hashable] | None) -> Sequence[Hashable]:
    """The names of documents: those given, or the index."""
    return source.index.tolist() if names is None else names


def _words_of_document(name: Hashable, document: Any) -> list[Any]:
    """The words of one document."""
    if isinstance(document, str | bytes):
        raise TypeError(f"document {name!r} is text; expected a list of its words, such as text.lower().split()")
    try:
        return list(document)
    except TypeError:
        raise TypeError(f"document {name!r} is a {type(document).__name__}; expected a list of its words") from None


def _document_names(source: Sequence[Any], names: Sequence[Hashable] | None) -> Sequence[Hashable]:
    if names is None:
        return range(len(source))
    if len(index := _unique_names(names, "documents")) != len(source):
        raise ValueError(f"there are {len(source)} documents, but {len(index)} are named")
    return list(index)


def _unique_names(names: Any, what: str) -> pd.Index:
    """The names of documents or words; raises where one occurs twice, is missing or is no name."""
    import pandas as pd

    try:
        if isinstance(names, str | Mapping | Set):
            raise TypeError
        index = pd.Index(list(names), tupleize_cols=False)
        hash(tuple(index))
    except (TypeError, NotImplementedError):
        raise TypeError(f"names of {what} must be text or numbers in a list, but are {type(names).__name__}") from None
    repeated = index[index.duplicated()]
    if len(repeated):
        raise ValueError(f"two {what} are named {_quoted(repeated[0])}; rename one")
    if index.isna().any():
        raise ValueError(f"names of {what} have a missing one; give all")
    return index


def _categorical(
    column: pd.Series, allowed: Sequence[Hashable] | None, what: str, document: pd.Categorical | None = None
) -> pd.Categorical:
    """The column as a categorical: of the allowed categories, or its own ones; else of all values, in order."""
    import pandas as pd

    if isinstance(column.dtype, np.dtype):
        column = column.astype(column.dtype.newbyteorder("="))
    categories = None if allowed is None else _unique_names(allowed, f"{what}s")
    try:
        if categories is None:
            return pd.Categorical(column)
        codes = categories.get_indexer(pd.Index(column, tupleize_cols=False))
    except TypeError:
        raise TypeError(f"a {what} must be text or a number, but one is neither") from None
    unknown = np.flatnonzero(codes < 0)
    if unknown.size:
        where = "" if document is None else f" of document {_quoted(document[unknown[0]])}"
        raise ValueError(
            f"{what} {_quoted(column.iloc[unknown[0]])}{where} is not among the {len(categories)} that may be used, "
            f"as are {unknown.size} in all; leave them out"
        )
    return pd.Categorical.from_codes(codes, categories)


def _checked_counts(count: np.ndarray, document: pd.Categorical, word: pd.Categorical) -> np.ndarray:
    """The counts as integers; raises ValueError for one that is no integer, or negative."""
    if count.dtype.kind not in "biuf":
        raise ValueError(f"counts of words hold {count.dtype}; expected whole numbers from 0")
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(~((count >= 0) & (count == np.floor(count)) & (count < 2**53)))
    if wrong.size:
        first = wrong[0]
        raise ValueError(
            f"the count of word {_quoted(word[first])} in document {_quoted(document[first])} is {count[first]}; "
            "expected whole numbers from 0: topic models take counts, and no weights such as tf-idf"
        )
    return count.astype(int)


def _quoted(label: Any) -> str:
    """The label as it would be written in Python: text in quotes, a number plain."""
    return repr(label.item() if isinstance(label, np.generic) else label)
