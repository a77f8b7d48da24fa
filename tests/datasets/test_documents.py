"""Documents as people have them: matrices, tables and lists of words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import csr_array

import bayeslab as bl
from bayeslab.datasets import documents
from bayeslab.models import lda

COUNTS = np.array([[2, 0, 1], [0, 0, 0], [1, 3, 0]])


@pytest.mark.parametrize(
    "source",
    [
        COUNTS,
        csr_array(COUNTS),
        pd.DataFrame(COUNTS, columns=["a", "b", "c"]),
        xr.DataArray(COUNTS, dims=("document", "word"), coords={"word": ["a", "b", "c"]}),
        [["a", "a", "c"], [], ["a", "b", "b", "b"]],
        pd.DataFrame({"document": [0, 2, 2, 0], "word": ["a", "a", "b", "c"], "count": [2, 1, 3, 1]}),
    ],
    ids=["array", "sparse", "frame", "xarray", "lists", "table"],
)
def test_documents_are_read(source: Any) -> None:
    data = documents(source, words=["a", "b", "c"], names=[0, 1, 2])
    assert (data["num_documents"], data["num_words"]) == (3, 3)
    found = np.zeros((3, 3), int)
    np.add.at(found, (data["document"].cat.codes, data["word"].cat.codes), 1)
    np.testing.assert_array_equal(found, COUNTS)
    assert data["word"].cat.categories.tolist() == ["a", "b", "c"]


def test_labels_of_documents_and_words_are_kept() -> None:
    """Of one document, too."""
    data = documents({"one": ["x", "y", "x"]}) | {"num_topics": 2}
    posterior = bl.fit(0, lda.model, data, bl.mixed_membership.Gibbs(5, 5, 1), progress=False)["posterior"]
    assert posterior["document"].values.tolist() == ["one"]
    assert posterior["word"].values.tolist() == ["x", "y"]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "text": (lambda: documents("some text"), "documents are a str; expected a matrix"),
    "text in a list": (lambda: documents([["a"], "b c"]), "document 1 is text; expected a list of its words"),
    "negative": (lambda: documents(-COUNTS), "the count of word 0 in document 0 is -2; expected whole"),
    "fraction": (lambda: documents(COUNTS / 2), "word 2 in document 0 is 0.5; expected whole numbers"),
    "nothing": (lambda: documents([[], []]), "the documents have no word"),
    "vocabulary": (
        lambda: documents([["a"], ["b", "c"]], words=["a", "b"]),
        "word 'c' of document 1 is not among the 2 that may be used, as are 1 in all",
    ),
    "transposed": (
        lambda: documents(COUNTS[:2], words=["a", "b"]),
        r"has shape \(2, 3\), with 3 words, but 2 are named; is it transposed\?",
    ),
    "names": (lambda: documents([["a"]], names=[1, 2]), "there are 1 documents, but 2 are named"),
    "columns": (
        lambda: documents(pd.DataFrame({"document": [0], "word": [1], "weight": [1]})),
        r"the table has columns \['weight'\]; expected document, word, count",
    ),
    "missing": (
        lambda: documents(pd.DataFrame({"document": [0, None], "word": ["a", "b"]})),
        "document is missing in row 1 of the table",
    ),
    "names of a mapping": (
        lambda: documents({"a": ["x"]}, names=["b"]),
        "the documents are named by the mapping, as 'a'; leave names out",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_documents_are_refused(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=words):
        call()


@pytest.mark.parametrize("document", [-1, 2])
def test_documents_are_counted_from_zero(document: int) -> None:
    data = {"document": np.array([0, document, 1]), "num_documents": 2, "num_words": 2, "num_topics": 2}
    with pytest.raises(ValueError, match=rf"'document' at position \(1,\) is {document}, but it is an index into 2"):
        bl.fit(0, lda.model, data | {"word": np.array([0, 1, 1])}, bl.mixed_membership.Gibbs(5, 5, 1), progress=False)
