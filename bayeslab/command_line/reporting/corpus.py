"""Documents of `bayeslab topics` from what it is given: told by what a file holds, or by an option."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayeslab.command_line.reporting.corpus_form import TEXT_COLUMNS, form_of
from bayeslab.command_line.tables.table_file import TextTable, read_table

if TYPE_CHECKING:
    from pandas import Series

WEIGHTS = ("tfidf", "tf_idf", "tf-idf", "weight", "weights", "score", "idf")
"""Columns of numbers in place of counts, with which rows would be counted once each."""
VOCABULARY_FILES = ("vocab.{}", "vocab.{}.txt", "{}.vocab", "vocab.txt")
"""The files of the vocabulary that may be beside a corpus, of its own name or of one without."""


class Corpus(NamedTuple):
    """The data of `documents`. texts: whether words are in the order of texts. notes: sentences on how it was read."""

    data: Mapping[str, Any]
    texts: bool
    notes: tuple[str, ...]


def read_corpus(path: Path, options: Namespace) -> Corpus:
    """The documents of a folder of texts, a text a line, a table, or counts of UCI, lda-c or Matrix Market.

    options: format, text, name, vocabulary, separator and encoding, None where they are not given.
    Raises FileNotFoundError, and ValueError where a file is not as it says, with the line.
    """
    from bayeslab.datasets import documents, read_ldac, read_market, read_uci

    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder '{path}'")
    form = form_of(path, options)
    readers = {"uci": read_uci, "lda-c": read_ldac, "market": read_market}
    if options.vocabulary is not None and form not in readers:
        raise ValueError(f"--vocabulary is for counts of UCI, lda-c and Matrix Market, and '{path}' was read as {form}")
    if form == "table":
        return _from_table(read_table(path, options.separator, options.encoding), options)
    if form in readers:
        vocabulary = options.vocabulary or _vocabulary_beside(path)
        data = readers[form](path, vocabulary)
        where = f"words from '{vocabulary}'" if vocabulary else "words are numbers, as no --vocabulary was given"
        if not vocabulary:  # documents have numbers too, which would have other codes
            data |= {"word": data["word"].cat.rename_categories("word {}".format)}
        return Corpus(data, False, (f"read as counts of {form}, {where}",))
    from bayeslab.datasets.files.texts import texts_and_notes

    texts, notes = texts_and_notes(path, options.encoding)
    what = "a document a file" if path.is_dir() else "a document a line"
    return Corpus(documents(texts), True, (*notes, f"read as texts, {what}", *_repeated(texts)))


def stop_words(name: str) -> frozenset[str]:
    """The stop words of English, or those of a file, a word a line: as they are written and in small letters."""
    if name == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return ENGLISH_STOP_WORDS
    from bayeslab.datasets.files.text import lines_of, read_text

    path = Path(name)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file '{name}' of stop words; expected one, with a word a line, or english"
        )
    words = [word.strip() for word in lines_of(read_text(path)[0]) if word.strip()]
    return frozenset(words) | {word.lower() for word in words}  # only those of texts are in small letters


def _from_table(table: TextTable, options: Namespace) -> Corpus:
    """The documents of a column of texts, or of columns document, word and count."""
    import pandas as pd

    from bayeslab.datasets import documents
    from bayeslab.datasets.corpora.document_forms import are_texts, long_form_columns

    frame = pd.DataFrame(table.columns)
    if options.text is None and options.name is None and (columns := long_form_columns(frame)) is not None:
        if are_texts(frame[document := columns["document"]]):
            raise ValueError(
                f"column '{document}' of '{table.path}' has another long text in most rows, beside a column "
                f"'{columns['word']}': pass --text {document} if it has the texts, else give documents short names"
            )
        renamed = frame.rename(columns={name: wanted for wanted, name in columns.items()})
        return Corpus(
            documents(_with_counts(renamed, table)), False, (*table.notes, "read as a word of a document a row")
        )
    text, names = _text_column(table, options.text), _names(table, options.name)
    texts = pd.Series(table.columns[text], names, dtype=object)
    empty = ~texts.str.strip().astype(bool)
    notes = (*table.notes, f"texts are those of column '{text}'")
    if empty.any():
        notes += (f"{int(empty.sum())} rows without a text are left out",)
    texts = texts[~empty]
    return Corpus(documents(texts), True, (*notes, *_repeated(texts)))


def _with_counts(frame: Any, table: TextTable) -> Any:
    """Columns document, word and count, the last as numbers; raises ValueError with the line of what is no count."""
    columns = [name for name in ("document", "word", "count") if name in frame]
    weights = [name for name in frame if str(name).lower() in WEIGHTS]
    if weights and "count" not in columns:
        raise ValueError(f"'{table.path}' has weights as column '{weights[0]}' and no counts; topic models take counts")
    others = [name for name in frame if name not in columns and all(cell.strip().isdecimal() for cell in frame[name])]
    if others and "count" not in columns and not frame.duplicated(["document", "word"]).any():
        raise ValueError(
            f"'{table.path}' has each word of a document in one row, beside whole numbers in column '{others[0]}': "
            "name it count if these are its counts, else leave it out"
        )
    for name in ("document", "word"):
        for line, cell in zip(table.lines, frame[name], strict=True):
            if not cell.strip():
                raise ValueError(f"line {line} of '{table.path}' has no {name}")
    if "count" in columns:
        for line, cell in zip(table.lines, frame["count"], strict=True):
            if not (cell.strip().isascii() and cell.strip().isdecimal() and len(cell) < 16):
                raise ValueError(f"line {line} of '{table.path}' has {cell[:30]!r} as a count; expected a whole number")
        frame = frame.assign(count=frame["count"].astype("int64"))
    return frame[columns]


def _text_column(table: TextTable, given: str | None) -> str:
    """The column of texts. Raises ValueError where it is not there, or could be any."""
    names = list(table.columns)
    if given is not None:
        if given not in names:
            raise ValueError(f"'{table.path}' has no column '{given}'; its columns are {', '.join(names)}")
        return given
    known = [name for name in names if name.lower() in TEXT_COLUMNS]
    if len(known) == 1 or len(names) == 1:
        return (known or names)[0]
    raise ValueError(
        f"say with --text which column of '{table.path}' has the texts; its columns are {', '.join(names)}"
    )


def _names(table: TextTable, given: str | None) -> list[str]:
    """The names of documents, from a column, or labels of rows, or rows by number."""
    if given is None:
        return table.labels or [f"row {number}" for number in range(1, table.num_rows + 1)]
    if given not in table.columns:
        raise ValueError(f"'{table.path}' has no column '{given}'; its columns are {', '.join(table.columns)}")
    names, seen = table.columns[given], set()
    for line, name in zip(table.lines, names, strict=True):
        if not name.strip() or name in seen:
            what = f"'{name}' a second time" if name.strip() else "no name"
            raise ValueError(
                f"line {line} of '{table.path}' has {what} in column '{given}'; expected names of documents"
            )
        seen.add(name)
    return names


def _vocabulary_beside(path: Path) -> Path | None:
    """The file of the vocabulary beside a corpus, None where there is none: vocab.news.txt of docword.news.txt."""
    from bayeslab.datasets.files.text import COMPRESSED_SUFFIXES

    name = path.with_suffix("").name if path.suffix in COMPRESSED_SUFFIXES else path.name
    own = name.removeprefix("docword.")
    candidates = [path.with_name(form.format(each)) for form in VOCABULARY_FILES for each in (own, Path(own).stem)]
    return next((file for file in candidates if file.is_file() and file != path), None)


def _repeated(texts: Series) -> tuple[str, ...]:
    """A sentence on texts that are there more than once."""
    repeated = int(texts.duplicated().sum())
    return (f"{repeated} documents have the text of another, so hidden words are easily guessed",) if repeated else ()
