"""Corpora from files of other programs: the bag of words of UCI, that of D. Blei's lda-c, and Matrix Market."""

from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bayeslab.datasets.arguments import MAX_NUMBERS_IN_MEMORY, as_path, is_listed, short_repr
from bayeslab.datasets.corpora.document_data import documents
from bayeslab.datasets.files.text import lines_of, read_text


def read_uci(path: str | PathLike[str], words: str | PathLike[str] | Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a topic model, as `documents` returns them, from a bag of words of UCI's repository.

    Three lines with the numbers of documents, words and counts; then a line for each count: document and word, from 1,
    and how often the word is in the document. words: the file of the vocabulary, a word a line, or the words.
    Documents are named by their numbers, from 1. Raises FileNotFoundError, and ValueError that names the line for what
    is not as it says, and for a file that is cut off.
    """
    from scipy.sparse import coo_array

    path = as_path(path)
    lines = _numbered_lines(path)[0]
    if len(lines) < 3 or any(len(row) != 1 for _, row in lines[:3]):
        raise ValueError(f"{path} is no bag of words of UCI: expected three lines with one number each first.")
    num_documents, num_words, num_counts = (_integer(path, number, row[0], 0) for number, row in lines[:3])
    if num_documents * num_words > MAX_NUMBERS_IN_MEMORY:
        raise ValueError(f"{path} has {num_documents} documents of {num_words} words; expected what memory can hold.")
    if len(lines) - 3 != num_counts:
        raise ValueError(f"{path} has {len(lines) - 3} counts; expected {num_counts}, as line {lines[2][0]} says.")
    entries = np.zeros((num_counts, 3), int)
    seen: set[tuple[int, int]] = set()
    for place, (number, row) in enumerate(lines[3:]):
        if len(row) != 3:
            raise ValueError(f"line {number} of {path} has {len(row)} columns; expected document, word and count.")
        largest = (num_documents, num_words, 2**53)
        entries[place] = [_integer(path, number, text, 1, most) for text, most in zip(row, largest, strict=True)]
        pair = (int(entries[place, 0]), int(entries[place, 1]))
        if pair in seen:
            raise ValueError(f"line {number} of {path} has word {pair[1]} of document {pair[0]} a second time.")
        seen.add(pair)
    places = (entries[:, 0] - 1, entries[:, 1] - 1)
    counts = coo_array((entries[:, 2], places), shape=(num_documents, num_words))
    return documents(counts, _vocabulary(words, num_words), list(range(1, num_documents + 1)))


def read_ldac(path: str | PathLike[str], words: str | PathLike[str] | Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a topic model, as `documents` returns them, from a corpus of lda-c.

    A line a document: how many different words it has, and for each of them word:count, with words from 0.
    words: the file of the vocabulary, a word a line, or the words; without it words are numbers up to the largest.
    Raises FileNotFoundError, and ValueError that names the line for what is not as it says.
    """
    path = as_path(path)
    corpus: list[list[tuple[int, int]]] = []
    lines, blank = _numbered_lines(path)
    if blank:
        raise ValueError(f"line {blank[0]} of {path} is blank; expected 0 for a document without words.")
    for number, row in lines:
        if len(row) - 1 != _integer(path, number, row[0], 0):
            raise ValueError(f"line {number} of {path} has {len(row) - 1} words; expected {row[0]}, as it begins with.")
        pairs = [text.partition(":") for text in row[1:]]
        bag = [(_integer(path, number, word, 0, 2**31), _integer(path, number, count, 1)) for word, _, count in pairs]
        if len({word for word, _ in bag}) < len(bag):
            raise ValueError(f"line {number} of {path} has a word twice; expected it once, with its count.")
        corpus.append(bag)
    largest = max((word for bag in corpus for word, _ in bag), default=-1)
    return documents(corpus, None if words is None else _vocabulary(words, largest + 1, at_least=True))


def read_market(path: str | PathLike[str], words: str | PathLike[str] | Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a topic model, as `documents` returns them, from a matrix in the format of Matrix Market.

    Rows are documents and columns are words, as gensim's MmCorpus writes them. words: the file of the vocabulary, a
    word a line, or the words. Documents are named by their numbers, from 1. Raises FileNotFoundError, and ValueError
    for a matrix that is damaged, or holds weights such as tf-idf in place of counts.
    """
    from scipy.io import mmread
    from scipy.sparse import issparse

    path = as_path(path)
    text = _whole_text(path)
    try:
        counts = mmread(BytesIO(text.encode()), spmatrix=False)
    except (ValueError, OverflowError, MemoryError) as error:
        raise ValueError(f"{path} is no whole matrix in the format of Matrix Market ({error}).") from error
    if counts.dtype.kind not in "iuf":
        raise ValueError(f"{path} has a matrix of {counts.dtype}; expected counts.")
    if issparse(counts) and len(set(zip(*counts.coords, strict=True))) < counts.nnz:
        raise ValueError(f"{path} has a count of the same document and word twice; expected it once.")
    return documents(counts, _vocabulary(words, counts.shape[1]), list(range(1, counts.shape[0] + 1)))


def _whole_text(path: Path) -> str:
    """The text of a file of counts; raises ValueError for one that ends within a line: a count may lack digits."""
    text, _ = read_text(path)
    if text and not text.endswith(("\n", "\r")):
        raise ValueError(
            f"line {len(lines_of(text))} of {path}, the last, does not end in a line break: the file may be cut off "
            "in the middle of a count. If it is whole, end it with a line break."
        )
    return text


def _numbered_lines(path: Path) -> tuple[list[tuple[int, list[str]]], list[int]]:
    """The number and the columns of every line that is not blank, and the numbers of blank ones between them."""
    lines = [(number, line.split()) for number, line in enumerate(lines_of(_whole_text(path)), 1)]
    while lines and not lines[-1][1]:
        lines.pop()
    return [line for line in lines if line[1]], [number for number, columns in lines if not columns]


def _integer(path: Path, number: int, text: str, least: int, most: int = 2**53) -> int:
    """The integer that a text stands for; raises ValueError that names the line where it stands for none."""
    if not (text.isascii() and text.isdigit() and len(text) < 19) or not least <= int(text) <= most:
        limit = f" to {most}" if most < 2**31 else ""
        raise ValueError(f"line {number} of {path} has {text[:30]!r}; expected a whole number from {least}{limit}.")
    return int(text)


def _vocabulary(words: Any, number: int, *, at_least: bool = False) -> list[str] | None:
    """The words, from a file where that is named; raises ValueError for another number of them."""
    if words is None:
        return None
    named = isinstance(words, str | PathLike)
    if not named and not is_listed(words):
        raise TypeError(f"words are {short_repr(words)}; expected the path of a file, or a list of words.")
    vocabulary = [line.strip() for line in lines_of(read_text(as_path(words))[0])] if named else list(words)
    while named and vocabulary and not vocabulary[-1]:
        vocabulary.pop()
    if named and "" in vocabulary:
        raise ValueError(f"line {vocabulary.index('') + 1} of {words} is blank; expected a word on every line.")
    if len(vocabulary) != number and not (at_least and len(vocabulary) > number):
        where = f"{words} has" if named else "words are"
        raise ValueError(f"{where} {len(vocabulary)} words; expected {'at least ' if at_least else ''}{number}.")
    return vocabulary
