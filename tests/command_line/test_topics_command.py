"""From documents in every form to topics: what is read, what is left out, what is written."""

import gzip
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayeslab.command_line.main import main
from bayeslab.command_line.reporting.corpus import read_corpus, stop_words
from bayeslab.datasets import documents, read_texts, select_words

TEXTS = ["The ship, the storm.", "bread and butter", "The storm and the tide"]
WORDS = [["the", "ship", "the", "storm"], ["bread", "and", "butter"], ["the", "storm", "and", "the", "tide"]]
COUNTS = {"ship": [1, 0, 0], "storm": [2, 0, 1], "bread": [0, 3, 0]}
"""Counts of words in three documents."""
UCI = "3\n3\n4\n1 1 1\n1 2 2\n3 2 1\n2 3 3\n"
LDAC = "2 0:1 1:2\n1 2:3\n1 1:1\n"
MARKET = "%%MatrixMarket matrix coordinate integer general\n" + "3 3 4\n" + UCI[6:]
LONG = "doc_id,term,n\na,ship,1\na,storm,2\nc,storm,1\nb,bread,3\n"


def options(**given: Any) -> Namespace:
    names = ("format", "text", "name", "vocabulary", "separator", "encoding")
    return Namespace(**dict.fromkeys(names) | given)


def word_lists(data: Any) -> dict[str, list[str]]:
    """The words of every document by its name, from the columns of tokens."""
    frame = pd.DataFrame({name: data[name].astype(str) for name in ("document", "word")})
    return frame.groupby("document", observed=True, sort=False)["word"].agg(list).to_dict()


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_texts_on_lines_are_read(tmp_path: Path, end: str, encoding: str) -> None:
    path = written(tmp_path / "lines.dat", end.join([*TEXTS, "", "Menü"]) + end, encoding)
    corpus = read_corpus(path, options())
    assert list(word_lists(corpus.data).values()) == [*WORDS, ["menü"]]
    assert corpus.data["document"].cat.categories[-1] == "line 5"
    assert corpus.texts


def test_a_folder_of_texts_is_read(tmp_path: Path) -> None:
    """Also what is below and compressed; other files, and hidden ones, are passed over."""
    (tmp_path / "old").mkdir()
    (tmp_path / ".copies").mkdir()
    written(tmp_path / ".copies" / "b.txt", TEXTS[0])
    written(tmp_path / "b.txt", TEXTS[0])
    written(tmp_path / "old" / "a.TXT", TEXTS[1])
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(TEXTS[2].encode()))
    written(tmp_path / "readme.md", "not me")
    found = word_lists(read_corpus(tmp_path, options()).data)
    assert found == {"b.txt": WORDS[0], "c.txt.gz": WORDS[2], "old/a.TXT": WORDS[1]}


TABLES = {
    "commas": ("id,body\n1,{}\n2,{}\n3,{}\n", {}),
    "semicolons": ("id;body;when\n1;{};x\n2;{};y\n3;{};z\n", {}),
    "the only column": ("mail\n{}\n{}\n{}\n", {}),
    "a name": ("subject,mail\nu,{}\nv,{}\nw,{}\n", {"text": "mail", "name": "subject"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_column_of_texts_is_read(tmp_path: Path, name: str) -> None:
    """With quotes, and lines that end inside of them."""
    form, given = TABLES[name]
    cells = ['"{}"'.format(text.replace(" ", "\n", 1).replace("and", '""and""')) for text in TEXTS]
    found = word_lists(read_corpus(written(tmp_path / "mails.csv", form.format(*cells)), options(**given)).data)
    assert list(found.values()) == WORDS
    assert list(found) == (["u", "v", "w"] if name == "a name" else ["row 1", "row 2", "row 3"])


COUNTED = {
    "uci": ("docword.news.txt", UCI),
    "lda-c": ("news.dat", LDAC),
    "lda-c by tabs": ("news.dat", LDAC.replace(" ", "\t")),
    "Matrix Market": ("news.mm", MARKET),
    "a word a row": ("news.csv", LONG),
    "a table of any name": ("news.txt", LONG),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_read_with_the_vocabulary_beside_them(tmp_path: Path, name: str) -> None:
    file, text = COUNTED[name]
    written(tmp_path / "vocab.news.txt", "ship\nstorm\nbread\n")
    corpus = read_corpus(written(tmp_path / file, text), options())
    counts = pd.crosstab(corpus.data["document"].astype(str), corpus.data["word"].astype(str))
    np.testing.assert_array_equal(np.sort(counts[list(COUNTS)].values, 0), np.sort(pd.DataFrame(COUNTS).values, 0))
    assert not corpus.texts


def test_words_without_a_vocabulary_are_no_documents(tmp_path: Path) -> None:
    """Both are numbers, and those of words that are in no document are left out."""
    corpus = read_corpus(written(tmp_path / "a.dat", "2 0:1 3:2\n2 3:1 4:2\n1 4:3\n2 0:2 3:1\n"), options())
    assert set(corpus.data["word"].astype(str)) == {"word 0", "word 3", "word 4"}
    assert set(corpus.data["document"].astype(str)).isdisjoint({"word 0", "word 3", "word 4"})


@pytest.mark.parametrize("empty", [1, 2])
def test_a_corpus_of_lda_c_may_begin_with_empty_documents(tmp_path: Path, empty: int) -> None:
    corpus = read_corpus(written(tmp_path / "a.dat", "0\n" * empty + "2 0:1 3:2\n1 2:5\n"), options())
    assert corpus.data["num_documents"] == empty + 2
    assert "counts of lda-c" in corpus.notes[0]


TERMS = [f"spring,{text.replace(',', '')} in the year {year}" for year, text in enumerate(TEXTS)]
"""A season and a text a row, under names that a table of words has too."""
WRONG = {
    "no column": (["t.csv", "--text", "c"], "has no column 'c'; its columns are a, b"),
    "which column": (["t.csv"], "say with --text which column of"),
    "name twice": (["t.csv", "--text", "a", "--name", "b"], "line 3 of 't.csv' has 'x' a second time in column 'b'"),
    "a count of text": (["long.csv"], "line 3 of 'long.csv' has 'two' as a count"),
    "uci cut off": (["docword.txt"], "has 3 counts; expected 4"),
    "vocabulary of texts": (["lines.txt", "--vocabulary", "lines.txt"], "--vocabulary is for counts"),
    "too few words": (["lines.txt", "-k", "9"], "9 topics are more than the 3 words"),
    "no words": (["lines.txt", "--min-documents", "4"], "see --min-documents, --max-share and --stop-words"),
    "share": (["lines.txt", "--max-share", "2"], "--max-share is 2.0; expected a number from 0 to 1"),
    "no file": (["none.txt"], "there is no file or folder 'none.txt'"),
    "no stop words": (["lines.txt", "--stop-words", "german"], "there is no file 'german' of stop words"),
    "empty folder": (["."], "has no file whose name ends in .txt"),
    "learned by a point": (["lines.txt", "-k", "2", "--method", "map", "--alpha", "learn"], "map does not learn alpha"),
    "a file of results": (["lines.txt", "-o", "lines.txt"], "'lines.txt' is a file; name a folder"),
    "a file above results": (["lines.txt", "-o", "lines.txt/out"], "'lines.txt' is a file; name a folder"),
    "JSON": (["a.jsonl"], "'a.jsonl' is JSON; expected plain texts, or a table"),
    "HTML": (["a.html"], "'a.html' is HTML; expected plain texts"),
    "numbers": (["a.svm"], "'a.svm' holds no letters; expected texts, or counts of UCI"),
    "weights": (["tf.csv"], "'tf.csv' has weights as column 'tfidf' and no counts"),
    "counts of another name": (["melted.csv"], "beside whole numbers in column 'value': name it count if these are"),
    "an empty word": (["empty.csv"], "line 3 of 'empty.csv' has no word"),
    "texts and a word": (["terms.csv"], "pass --text document if it has the texts, else give documents short names"),
    "number of topics": (["lines.txt", "-k", "0"], "'0' is no range such as 2-6"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_said_in_a_sentence(name: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    given, words = WRONG[name]
    if given[0] != ".":
        written(tmp_path / "lines.txt", "\n".join(TEXTS))
        written(tmp_path / "t.csv", "a,b\nu,x\nv,x\n")
        written(tmp_path / "long.csv", LONG.replace("storm,2", "storm,two"))
        written(tmp_path / "docword.txt", UCI[:-6])
        written(tmp_path / "a.jsonl", '{"text": "a ship"}\n{"text": "a storm"}\n')
        written(tmp_path / "a.html", "<!DOCTYPE html>\n<p>a ship</p>\n")
        written(tmp_path / "a.svm", "1 0.5 2\n")
        written(tmp_path / "tf.csv", "doc_id,term,tfidf\n1,ship,0.4\n2,storm,0.5\n")
        written(tmp_path / "melted.csv", "document,word,value\n1,ship,3\n1,storm,0\n2,ship,1\n")
        written(tmp_path / "empty.csv", "document,word\n1,ship\n1,\n")
        written(tmp_path / "terms.csv", "".join(f"{row}\n" for row in ["term,document", *TERMS]))
    assert main(["topics", "-o", "out", *given, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_column_called_document_has_texts_where_that_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "terms.csv", "\n".join(["term,document", *TERMS, ""]))
    found = list(word_lists(read_corpus(path, options(text="document")).data).values())
    assert found == [[*words, "in", "the", "year"] for words in WORDS]
    with pytest.raises(ValueError, match="column 'document' of the table has another text of 5 or more words"):
        documents(pd.read_csv(path))


def test_long_names_of_documents_are_no_texts(tmp_path: Path) -> None:
    rows = [f"{word},A letter to a friend in {year}" for year in (1801, 1802) for word in ("ship", "storm")]
    corpus = read_corpus(written(tmp_path / "a.csv", "\n".join(["term,document", *rows, ""])), options())
    assert word_lists(corpus.data) == {f"A letter to a friend in {year}": ["ship", "storm"] for year in (1801, 1802)}


def test_the_encoding_of_texts_is_told(tmp_path: Path) -> None:
    """Of a file, and of how many files of a folder."""
    for number, encoding in enumerate(("utf-8", "cp1252", "cp1252")):
        written(tmp_path / f"{number}.txt", "Menü", encoding)
    assert "the text is in Windows-1252" in read_corpus(tmp_path / "1.txt", options()).notes
    assert "of 2 of 3 files the text is in Windows-1252" in read_corpus(tmp_path, options()).notes
    assert read_corpus(tmp_path / "0.txt", options()).notes == ("read as texts, a document a line",)


def test_words_are_left_out_by_their_documents() -> None:
    data = documents(WORDS) | {"num_topics": 2}
    kept = select_words(data, min_documents=2, max_share=0.7, stop_words=["and"])
    assert word_lists(kept) == {"0": ["the", "the", "storm"], "2": ["the", "storm", "the"]}
    assert (kept["num_words"], kept["num_documents"], kept["num_topics"]) == (2, 3, 2)
    assert list(kept["word"].cat.categories) == ["storm", "the"]
    assert word_lists(select_words(data)) == word_lists(data)


def test_stop_words_are_those_of_a_file(tmp_path: Path) -> None:
    assert stop_words(str(written(tmp_path / "stop.txt", "The\r\n\r\nand\r\n"))) == {"the", "The", "and"}
    assert "the" in stop_words("english")


def test_texts_of_a_folder_have_an_encoding(tmp_path: Path) -> None:
    written(tmp_path / "a.txt", "Žluť", "cp1250")
    assert read_texts(tmp_path, "cp1250").to_list() == ["Žluť"]


THEMES = (
    "ship wave sail harbour captain storm anchor tide fish island",
    "bread butter oven flour sugar recipe spoon salt dinner soup",
)


def letters(path: Path, seed: int = 0) -> Path:
    """Thirty letters of twenty words, each of one of two themes, and a word that all have."""
    rng = np.random.default_rng(seed)
    lines = [" ".join([*rng.choice(THEMES[number % 2].split(), 20), "dear"]) for number in range(30)]
    return written(path, "\n".join(lines))


def test_topics_are_written(tmp_path: Path, capsys: Any) -> None:
    """What an earlier report of several numbers and chains left is not beside this one."""
    path, out = letters(tmp_path / "letters.txt"), tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    for name in ("report.html", "choice.csv", "figures/choice.png", "figures/stability.png", "mine.csv"):
        (out / name).touch()
    assert main(["topics", str(path), "-k", "2", "-o", str(out), "--method", "map", "--chains", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    themes = [set(theme.split()) for theme in THEMES]
    found = [set(topic["words"][:8]) for topic in record["topics"]]
    assert any(found[0] <= first and found[1] <= second for first, second in (themes, themes[::-1]))
    assert all({"u_mass", "c_v"} == topic["coherence"].keys() for topic in record["topics"])
    assert {file.name for file in out.iterdir()} == {
        "figures", "report.html", "topics.csv", "documents.csv", "fit.nc", "mine.csv"
    }  # fmt: skip
    assert {figure.name for figure in (out / "figures").iterdir()} == {"topics.png", "shares.png"}
    table = pd.read_csv(out / "documents.csv")
    assert table["document"].to_list()[:2] == ["line 1", "line 2"]
    assert (table["tokens"] == 20).all()
    assert table["largest"].to_list() == table["largest"].to_list()[:2] * 15
    np.testing.assert_allclose(table[["topic_0", "topic_1"]].values.sum(1), 1, rtol=1e-6)
    page = (out / "report.html").read_text()
    assert page.count("<img") == 2
    assert 'alt=""' not in page
    assert "1 of 21 words left out" in page


@pytest.mark.slow
def test_the_number_of_topics_is_chosen(tmp_path: Path, capsys: Any) -> None:
    path, out = letters(tmp_path / "letters.txt"), tmp_path / "out"
    command = ["topics", str(path), "-k", "1,2", "-o", str(out), "--chains", "2", "--warmup", "50", "--draws", "50"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "Of 1, 2, 2 predict hidden words best" in shown.out
    assert "All are found by each of the 2 chains." in shown.out
    assert pd.read_csv(out / "choice.csv")["perplexity"].is_monotonic_decreasing
    figures = {"topics.png", "shares.png", "stability.png", "choice.png"}
    assert {figure.name for figure in (out / "figures").iterdir()} == figures
