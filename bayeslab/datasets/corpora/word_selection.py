"""Which words of documents a topic model is given."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.datasets.arguments import as_integer, as_share, is_listed, short_repr

if TYPE_CHECKING:
    import pandas as pd


def select_words(
    data: Mapping[str, Any],
    *,
    min_documents: int = 1,
    max_share: float = 1.0,
    stop_words: Collection[Hashable] = (),
) -> dict[str, Any]:
    """The data of `documents` with fewer words.

    min_documents: leave out words of fewer documents. max_share: leave out words of a larger share of the documents
        that have any word. stop_words: leave these out.
    Documents that lose all of their words are kept. Raises ValueError where no word is left, and TypeError for data
    that are not of `documents`.
    """
    import pandas as pd

    if not isinstance(stop_words, Collection) or not is_listed(stop_words):
        raise TypeError(f"stop_words are {short_repr(stop_words)}; expected a list or a set of words.")
    if not isinstance(data, Mapping):
        raise TypeError(f"data are {short_repr(data)}; expected those of `documents`.")
    min_documents, max_share = as_integer("min_documents", min_documents, 1), as_share("max_share", max_share)
    word: Any = data.get("word")
    document: Any = data.get("document")
    for name, values in (("word", word), ("document", document)):
        if not isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
            raise TypeError(
                f"'{name}' of data is a {type(values).__name__}; expected data as `documents` returns them."
            )
    words = word.cat.categories
    frequency = _document_frequency(word, document, len(words))
    num_documents = len(np.unique(document.cat.codes))
    kept = (frequency >= min_documents) & (frequency <= max_share * num_documents)
    left_out = set(map(_hashable, stop_words))
    kept &= np.array([word not in left_out for word in words.tolist()], bool)
    if not kept.any():
        raise ValueError(
            f"none of the {len(words)} words is left: min_documents is {short_repr(min_documents)} and max_share "
            f"{max_share:g}, of {num_documents} documents, and there are {len(left_out)} stop_words."
        )
    numbers = np.cumsum(kept) - 1
    codes = word.cat.codes.to_numpy()
    stays = kept[codes]
    tokens = pd.RangeIndex(stays.sum(), name="token")
    columns = {
        "document": pd.Categorical.from_codes(document.cat.codes[stays], document.cat.categories),
        "word": pd.Categorical.from_codes(numbers[codes[stays]], words[kept]),
    }
    series = {name: pd.Series(values, tokens, name=name) for name, values in columns.items()}
    return {**data, **series, "num_words": int(kept.sum())}


def _document_frequency(word: pd.Series, document: pd.Series, num_words: int) -> np.ndarray:
    """The number of documents that have each word (word,)."""
    pairs = np.unique(word.cat.codes.to_numpy(np.int64) + num_words * document.cat.codes.to_numpy(np.int64))
    return np.bincount(pairs % num_words, minlength=num_words)


def _hashable(word: Any) -> Any:
    """A word as it is, and what can be no word as its text."""
    return word if isinstance(word, Hashable) else str(word)
