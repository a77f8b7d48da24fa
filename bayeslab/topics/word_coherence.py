"""Whether the first words of a topic occur together, as gensim measures it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

MEASURES = ("u_mass", "c_v", "c_uci", "c_npmi")
"""The measures of coherence that gensim has."""


def coherence(words: Dataset, data: Mapping[str, Any], measure: str = "u_mass") -> DataArray:
    """The coherence (topic,) of words in documents; larger is better, and it compares topics of one corpus only.

    words: from `top_words`. data: from `documents`.
    measure: "u_mass" asks in how many documents two words are together, and is at most 0 but for rounding; "c_v",
        "c_uci" and "c_npmi" ask how often they are near each other, which needs documents whose words are in the order
        of the text, not counts.
    M. Röder, A. Both and A. Hinneburg (2015), ACM International Conference on Web Search and Data Mining, page 399.
    Raises ModuleNotFoundError where gensim is not there, and ValueError for another measure and for words that the
    documents do not have.
    """
    from xarray import DataArray

    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}; expected one of {list(MEASURES)}")
    try:
        from gensim.corpora import Dictionary
        from gensim.models import CoherenceModel
    except ImportError as error:
        raise ModuleNotFoundError("coherence is measured by gensim: pip install 'bayeslab[topics]'") from error
    texts = _word_lists(data)
    top = [list(map(str, row)) for row in words["word"].values]
    dictionary = Dictionary(texts)
    known = set(dictionary.token2id)
    for word in (word for row in top for word in row):
        if word not in known:
            raise ValueError(f"word '{word}' is in no document; expected the documents that topics were fitted to")
    with np.errstate(all="ignore"):
        model = CoherenceModel(topics=top, texts=texts, dictionary=dictionary, coherence=measure, processes=1)
        values = model.get_coherence_per_topic()
    return DataArray(np.asarray(values, float), {"topic": words["topic"].values}, "topic", measure)


def _word_lists(data: Mapping[str, Any]) -> list[list[str]]:
    """The words of every document that has some, in order."""
    word, document = data["word"], data["document"]
    spelled = np.asarray(word.cat.categories.astype(str), object)[word.cat.codes.to_numpy()]
    codes = document.cat.codes.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return [part.tolist() for part in np.split(spelled[order], starts[1:])]
