"""Texts from a folder of files, a document a file, or from one file, a document a line."""

from __future__ import annotations

from collections import Counter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bayeslab.datasets.arguments import as_path, short_repr
from bayeslab.datasets.files.text import COMPRESSED_SUFFIXES, lines_of, read_text

if TYPE_CHECKING:
    import pandas as pd


def read_texts(path: str | PathLike[str], encoding: str | None = None) -> pd.Series:
    """Texts with the names of documents as the index, for `documents`.

    path: a folder, of which every file of suffix .txt is a document, also in folders below and compressed, named by
        its path; or a file with a document on every line, named by the number of the line, blank lines passed over.
    encoding: by default that of the byte order mark, else UTF-8, else Windows-1252.
    Raises FileNotFoundError, and ValueError for a folder without such files, for a file that is damaged or no text, and
    for one without a line.
    """
    return texts_and_notes(path, encoding)[0]


def texts_and_notes(path: str | PathLike[str], encoding: str | None = None) -> tuple[pd.Series, tuple[str, ...]]:
    """What `read_texts` returns, and sentences on what was found where files are not plain UTF-8."""
    import pandas as pd

    path = as_path(path)
    if encoding is not None and not isinstance(encoding, str):
        raise TypeError(f"encoding is {short_repr(encoding)}; expected the name of one, such as 'utf-8'.")
    if path.is_dir():
        texts, notes = _texts_of_folder(path, encoding)
    else:
        text, notes = read_text(path, encoding)
        texts = {f"line {number}": line for number, line in enumerate(lines_of(text), 1) if line.strip()}
        if not texts:
            raise ValueError(f"'{path}' is empty; expected a text on every line.")
    return pd.Series(texts, dtype=object), notes


def _texts_of_folder(path: Path, encoding: str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """The texts of a folder by the paths of their files, and sentences on how many files are not plain UTF-8."""
    files = sorted(
        file
        for file in path.rglob("*")
        if plain_suffix(file) == ".txt" and file.is_file() and not _is_hidden(file.relative_to(path))
    )
    if not files:
        raise ValueError(
            f"the folder '{path}' has no file whose name ends in .txt, but hidden ones; expected one for each document."
        )
    texts, occurrences = {}, Counter[str]()
    for file in files:
        texts[file.relative_to(path).as_posix()], notes = read_text(file, encoding)
        occurrences.update(notes)
    return texts, tuple(f"of {number} of {len(files)} files {note}" for note, number in occurrences.items())


def _is_hidden(file: Path) -> bool:
    """Whether a file, or a folder that it is in, begins with a dot, as those that programs keep for themselves."""
    return any(part.startswith(".") for part in file.parts)


def plain_suffix(path: Path) -> str:
    """The suffix of a file in small letters, without that of its compression."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path
    return name.suffix.lower()
