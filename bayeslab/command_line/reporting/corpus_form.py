"""What the file or folder of documents is that `bayeslab topics` is given."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path

TABLE_SUFFIXES = (".csv", ".tsv")
"""The suffixes of tables."""
TEXT_COLUMNS = ("text", "texts", "document", "documents", "body", "content", "abstract", "message")
"""The columns of texts that need not be named."""
LDAC_LINE = re.compile(r"\d+(\s+\d+:\d+)*")
"""A line of a corpus of lda-c."""
MARKET_HEAD = "%%MatrixMarket"
"""What a matrix in the format of Matrix Market begins with, as gensim's MmCorpus writes it."""
MARKED_UP = {"<?xml": "XML", "<!doctype html": "HTML", "<html": "HTML", "{\\rtf": "RTF"}
"""What files of marked-up text begin with, in small letters: their marks would be words."""
UCI_HEAD = 3
"""The number of lines of a bag of words of UCI that hold one number: of documents, words and counts."""
NUM_LINES_READ = 5
"""The number of lines that a file is told from."""


def form_of(path: Path, options: Namespace) -> str:
    """What a path holds: "texts", "table", "uci", "lda-c" or "market".

    Raises ValueError for files whose words would be those of a format, as of JSON and HTML, and for numbers alone.
    """
    from bayeslab.datasets.files.text import lines_of, read_text
    from bayeslab.datasets.files.texts import plain_suffix

    if path.is_dir():
        if options.format not in (None, "texts") or options.text:
            raise ValueError(f"'{path}' is a folder, of texts; --text and other values of --format are for files")
        return "texts"
    if options.format:
        return options.format
    if options.text or options.name or plain_suffix(path) in TABLE_SUFFIXES:
        return "table"
    text = read_text(path, options.encoding)[0]
    lines = [line.strip() for line in lines_of(text) if line.strip()]
    first = lines[:NUM_LINES_READ]
    if not first:
        return "texts"
    if first[0].startswith(MARKET_HEAD):
        return "market"
    if len(first) >= UCI_HEAD and all(map(str.isdecimal, first[:UCI_HEAD])) and first[0] != "0":
        return "uci"
    if sum(":" in line and LDAC_LINE.fullmatch(line) is not None for line in first) * 2 >= len(first):
        return "lda-c"
    if _names_columns(first[0]):
        return "table"
    _refuse_other_forms(path, first[0], text)
    return "texts"


def _names_columns(line: str) -> bool:
    """Whether a first line is the heading of a table with a column of texts, or with documents and words."""
    from bayeslab.datasets.corpora.document_forms import LONG_FORM_COLUMNS

    for separator in "\t,;":
        names = [name.strip().strip('"').lower() for name in line.split(separator)]
        if len(names) > 1 and all(re.fullmatch(r"[\w.-]+", name) for name in names):
            long = all(set(names) & set(LONG_FORM_COLUMNS[column]) for column in ("document", "word"))
            return long or bool(set(names) & set(TEXT_COLUMNS))
    return False


def _refuse_other_forms(path: Path, first: str, text: str) -> None:
    """Raise ValueError for JSON, marked-up text and numbers."""
    what = next((name for start, name in MARKED_UP.items() if first.lower().startswith(start)), None)
    if first.startswith(("{", "[")) and what is None:
        for whole in (first, text):
            try:
                what = "JSON" if isinstance(json.loads(whole), dict | list) else None
                break
            except ValueError:
                continue
    if what is not None:
        raise ValueError(f"'{path}' is {what}; expected plain texts, or a table (CSV) with a column of texts")
    if not re.search(r"[^\W\d_]", text):
        raise ValueError(
            f"'{path}' holds no letters; expected texts, or counts of UCI (three lines with one number each first), "
            "of lda-c (lines such as '2 0:1 4:3') or of Matrix Market"
        )
