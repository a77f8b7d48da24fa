"""Documents as people have them: matrices, tables and lists of words."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import coo_array, csc_matrix, csr_array

import bayeslab as bl
from bayeslab.datasets import documents, read_ldac, read_market, read_texts, read_uci
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


REFUSED |= {
    "weights": (lambda: documents([[(0, 0.5)]]), "the count of word 0 in document 0 is 0.5; .* tf-idf"),
    "half a word": (lambda: documents([[(0.5, 1)]]), "document 0 has 0.5 as the number of a word"),
    "unknown number": (
        lambda: documents([[(7, 1)]], words=["a"]),
        "document 0 has word number 7, but 1 words are named",
    ),
    "a gap in a dictionary": (lambda: documents([[(0, 1)]], words={0: "a", 2: "b"}), "numbers are not 0, 1, 2"),
    "two names": (
        lambda: documents(pd.DataFrame({"doc": [0], "doc_id": [1], "word": ["a"]})),
        r"columns \['doc', 'doc_id'\] of the table could each be of documents",
    ),
    "text column": (lambda: documents(pd.DataFrame({"text": ["a b"]})), "column 'text' of the table holds text"),
    "missing text": (lambda: documents(pd.Series(["a", None])), "document 1 is missing; leave it out"),
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


BAGS = [[(0, 2), (2, 1)], [], [(0, 1), (1, 3)]]
TEXTS = ["A aa? aa, cc", "", "aa bb bb BB"]


class Streamed:
    """A corpus that can be read again and has no places, as those of gensim in files."""

    def __iter__(self) -> Iterator[Any]:
        return iter(BAGS)


class Exchanged:
    """A table of a library that offers the protocol for exchange of tables and nothing else."""

    def __dataframe__(self, *given: Any, **more: Any) -> Any:
        return pd.DataFrame({"doc_id": [0, 2, 2, 0], "token": [0, 0, 1, 2], "n": [2, 1, 3, 1]}).__dataframe__()


class Polars:
    """A table that looks like one of polars."""

    columns, height = ("doc", "term", "freq"), 4

    def to_dict(self, *, as_series: bool) -> dict[str, list[int]]:
        assert not as_series
        return {"doc": [0, 2, 2, 0], "term": [0, 0, 1, 2], "freq": [2, 1, 3, 1]}


class Arrow:
    """A column that looks like one of Arrow."""

    def to_pylist(self) -> list[str]:
        return TEXTS


LONG = pd.DataFrame({"doc_id": [0, 2, 2, 0], "token": ["a", "a", "b", "c"], "n": [2, 1, 3, 1]})
FORMS: dict[str, Callable[[], Any]] = {
    "gensim": lambda: documents(BAGS),
    "gensim with a dictionary": lambda: documents(BAGS, words={0: "a", 1: "b", 2: "c"}),
    "gensim of floats": lambda: documents([[(0, 2.0), (2, 1.0)], [], [(np.int64(0), 1.0), (1, 3.0)]]),
    "gensim by name": lambda: documents(dict(enumerate(BAGS))),
    "streamed": lambda: documents(Streamed()),
    "a generator": lambda: documents(bag for bag in BAGS),
    "coo": lambda: documents(coo_array(COUNTS)),
    "csc": lambda: documents(csc_matrix(COUNTS)),
    "floats": lambda: documents(COUNTS.astype(float)),
    "booleans and counts": lambda: documents(COUNTS.astype(np.uint8)),
    "long frame": lambda: documents(LONG, names=[0, 1, 2]),
    "long frame of rows": lambda: documents(
        LONG.loc[LONG.index.repeat(LONG["n"]), ["doc_id", "token"]], names=[0, 1, 2]
    ),
    "counts by two indexes": lambda: documents(LONG.set_index(["doc_id", "token"]), names=[0, 1, 2]),
    "a series of counts": lambda: documents(
        LONG.rename(columns={"doc_id": "document"}).set_index(["document", "token"])["n"], names=[0, 1, 2]
    ),
    "columns and indexes": lambda: documents(LONG.set_index(["doc_id", "token"], drop=False), names=[0, 1, 2]),
    "a matrix with two indexes": lambda: documents(
        pd.DataFrame(COUNTS, pd.MultiIndex.from_arrays([[0, 1, 2], [5, 6, 7]], names=["doc", "doc_id"]))
    ),
    "a matrix with an index of words": lambda: documents(
        pd.DataFrame(COUNTS, pd.MultiIndex.from_arrays([[0, 1, 2], [5, 6, 7]], names=["doc", "term"]))
    ),
    "nullable numbers": lambda: documents(pd.DataFrame(COUNTS).astype("Int64")),
    "nullable numbers of two kinds": lambda: documents(pd.DataFrame(COUNTS).astype({0: "UInt8", 1: "Float64"})),
    "exchange protocol": lambda: documents(Exchanged(), names=[0, 1, 2]),
    "polars": lambda: documents(Polars(), names=[0, 1, 2]),
    "series of texts": lambda: documents(pd.Series(TEXTS)),
    "series of lists": lambda: documents(pd.Series([["a", "a", "c"], [], ["a", "b", "b", "b"]])),
    "column of Arrow": lambda: documents(Arrow()),
    "array of xarray": lambda: documents(xr.DataArray(TEXTS, dims="text")),
    "lists in xarray": lambda: documents(
        xr.DataArray(pd.Series([["a", "a", "c"], [], ["a", "b", "b", "b"]], name="words").rename_axis("text"))
    ),
    "series with names": lambda: documents(pd.Series(TEXTS, index=["x", "y", "z"])),
    "vocabulary of CountVectorizer": lambda: documents(csr_array(COUNTS), words={"b": 1, "a": 0, "c": np.int64(2)}),
}


def counts_of(data: dict[str, Any]) -> np.ndarray[Any, Any]:
    found = np.zeros((data["num_documents"], data["num_words"]), int)
    np.add.at(found, (data["document"].cat.codes, data["word"].cat.codes), 1)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:.*interchange:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*interchange:FutureWarning")
def test_documents_come_in_many_forms(form: str) -> None:
    data = FORMS[form]()
    np.testing.assert_array_equal(counts_of(data), COUNTS)
    if "dictionary" in form or "vocabulary" in form:
        assert data["word"].cat.categories.tolist() == ["a", "b", "c"]
    if form == "series with names":
        assert data["document"].cat.categories.tolist() == ["x", "y", "z"]


def test_gensim_and_scikit_learn_are_read_as_they_are() -> None:
    corpora, text = pytest.importorskip("gensim.corpora"), pytest.importorskip("sklearn.feature_extraction.text")
    lists = [["aa", "aa", "cc"], [], ["aa", "bb", "bb", "bb"]]
    dictionary = corpora.Dictionary([["aa"], ["bb"], ["cc"]])
    data = documents([dictionary.doc2bow(words) for words in lists], words=dictionary)
    np.testing.assert_array_equal(counts_of(data), COUNTS)
    assert data["word"].cat.categories.tolist() == [dictionary[number] for number in range(3)]
    vectorizer = text.CountVectorizer()
    data = documents(vectorizer.fit_transform(TEXTS), words=vectorizer.get_feature_names_out())
    np.testing.assert_array_equal(counts_of(data), COUNTS)
    with pytest.raises(ValueError, match="topic models take counts, and no weights such as tf-idf"):
        documents(text.TfidfVectorizer().fit_transform(TEXTS))


def uci(folder: Path, text: str) -> Path:
    (folder / "docword.txt").write_text(text)
    (folder / "vocab.txt").write_text("a\nb\nc\n")
    return folder / "docword.txt"


UCI = "3\n3\n4\n1 1 2\n1 3 1\n3 1 1\n3 2 3\n"
MARKET = "%%MatrixMarket matrix coordinate real general\n3 3 4\n1 1 2\n1 3 1\n3 1 1\n3 2 3\n"
LDAC = "2 0:2 2:1\n0\n2 0:1 1:3\n"


def test_corpora_in_files_are_read(tmp_path: Path) -> None:
    data = read_uci(uci(tmp_path, UCI), tmp_path / "vocab.txt")
    np.testing.assert_array_equal(counts_of(data), COUNTS)
    assert data["word"].cat.categories.tolist() == ["a", "b", "c"]
    assert data["document"].cat.categories.tolist() == [1, 2, 3]
    (tmp_path / "docword.txt.gz").write_bytes(gzip.compress(UCI.encode()))
    np.testing.assert_array_equal(counts_of(read_uci(tmp_path / "docword.txt.gz")), COUNTS)
    (tmp_path / "corpus.dat").write_text(LDAC)
    np.testing.assert_array_equal(counts_of(read_ldac(tmp_path / "corpus.dat", ["a", "b", "c"])), COUNTS)
    assert read_ldac(tmp_path / "corpus.dat", ["a", "b", "c", "d"])["num_words"] == 4
    (tmp_path / "corpus.mm").write_text(MARKET)
    np.testing.assert_array_equal(counts_of(read_market(tmp_path / "corpus.mm", tmp_path / "vocab.txt")), COUNTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [(MARKET[:-6], "no whole matrix"), (MARKET.replace("1 1 2", "1 1 0.4"), "no weights such as tf-idf"),
     (MARKET.replace("1 3 1", "1 1 1"), "same document and word twice"), (MARKET[2:], "no whole matrix")],
)  # fmt: skip
def test_broken_matrices_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "corpus.mm").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_market(tmp_path / "corpus.mm")


FILES_REFUSED: dict[str, tuple[str, str]] = {
    "cut off": (UCI[:-6], "has 3 counts; expected 4, as line 3 says"),
    "word 0": (UCI.replace("1 1 2", "1 0 2"), "line 4 .* has '0'; expected a whole number from 1 to 3"),
    "a document more": (UCI.replace("3 2 3", "4 2 3"), "line 7 .* has '4'"),
    "twice": (UCI.replace("1 3 1", "1 1 1"), "line 5 .* word 1 of document 1 a second time"),
    "no head": (UCI[4:], "expected three lines with one number each first"),
    "a column": (UCI.replace("1 3 1", "1 3"), "line 5 .* has 2 columns"),
}


@pytest.mark.parametrize("case", FILES_REFUSED)
def test_broken_corpora_are_refused(tmp_path: Path, case: str) -> None:
    text, words = FILES_REFUSED[case]
    with pytest.raises(ValueError, match=words):
        read_uci(uci(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "words"),
    [("3 0:1\n", "line 1 .* has 1 words; expected 3"), ("1 0:x\n", "line 1 .* 'x'"), ("2 0:1 0:2\n", "a word twice")],
)
def test_broken_lda_c_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "corpus.dat").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_ldac(tmp_path / "corpus.dat")


def test_sparse_and_foreign_arrays_are_data() -> None:
    """As NumPy's protocol carries them; a matrix that no array holds is refused."""

    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.array([1.0, 2.0, 3.0])

    def model(x: Any, y: Any) -> None:
        with numpyro.plate("row", x.shape[0]):
            numpyro.sample("y", dist.Normal(x.sum(-1) * numpyro.sample("w", dist.Normal(0, 1)), 1.0), obs=y)

    bound = bl.bind(model, {"x": csr_array(COUNTS.astype(float)), "y": Foreign()})
    np.testing.assert_array_equal(bound.arrays["x"], COUNTS)
    np.testing.assert_array_equal(bound.observed["y"], [1, 2, 3])
    with pytest.raises(ValueError, match=r"entry 'x' is sparse, of shape .* too large"):
        bl.bind(model, {"x": csr_array((10**6, 10**6)), "y": Foreign()})


def test_texts_are_not_cut_at_separators_of_unicode(tmp_path: Path) -> None:
    """A line ends at a line feed or a carriage return; Python's splitlines would make four documents of the first."""
    path = tmp_path / "texts.txt"
    path.write_bytes("one two\u2028three\x0cfour\u0085five\r\nsix\rseven\n".encode())
    texts = read_texts(path)
    assert texts.index.tolist() == ["line 1", "line 2", "line 3"]
    assert documents(texts)["document"].value_counts().tolist() == [5, 1, 1]


def test_bytes_are_no_list_of_words() -> None:
    with pytest.raises(TypeError, match="document 0 is text; expected a list of its words"):
        documents([b"one two"])
