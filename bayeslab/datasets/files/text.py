"""Text from files as they come: compressed or not, with or without a byte order mark, in one of several encodings."""

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

GZIP_MAGIC = b"\x1f\x8b"
"""The bytes that files compressed by gzip and bgzip begin with."""
OPENERS: dict[bytes, Callable[..., Any]] = {
    GZIP_MAGIC: gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""What compressed files begin with, and what opens them."""
COMPRESSED_SUFFIXES = (".gz", ".bgz", ".bz2", ".xz")
"""The suffixes of compressed files."""
FOREIGN_MAGIC = {
    b"PK\x03\x04": "a ZIP archive, as of Excel",
    b"\xd0\xcf\x11\xe0": "a file of an older Excel or Word",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\x89HDF": "HDF5, as netCDF is",
    b"PAR1": "Parquet",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}
"""What files that hold no text begin with, and what they are."""
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks, the longer ones first, and the encodings that they stand for."""
MAX_TEXT_BYTES = 2**31
"""The largest text that is read into memory."""
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, OSError)
"""What the readers of compressed files raise where these are cut off or damaged."""


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, of what it holds where it is compressed; says which by its first bytes, whatever its name.

    Raises FileNotFoundError, and ValueError for a file that holds no text.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'.")
    with path.open("rb") as file:
        start = file.read(8)
    for magic, what in FOREIGN_MAGIC.items():
        if start.startswith(magic):
            raise ValueError(f"'{path}' is {what}; expected text.")
    for magic, opener in OPENERS.items():
        if start.startswith(magic):
            return opener(path, "rb")
    return path.open("rb")


def lines_of(text: str) -> list[str]:
    """The lines of a text, which end at a line feed, a carriage return, or both.

    Python's `splitlines` ends them at form feeds and at some characters of Unicode too, which texts have inside.
    """
    lines = re.split(r"\r\n|\n|\r", text)
    return lines[:-1] if not lines[-1] else lines


def beside_cut_cell(cells: Sequence[str]) -> str | None:
    """What stands beside the last of some cells and says that it may have lost its end: one that begins with it, or any
    where all others are longer; None where nothing says so."""
    *others, last = cells
    longer = [cell for cell in others if len(cell) > len(last)]
    continued = next((cell for cell in longer if cell.startswith(last)), None)
    return others[0] if continued is None and others and len(longer) == len(others) else continued


def read_text(path: Path, encoding: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The whole text of a file, and sentences on what was found where it is not plain UTF-8.

    encoding: by default that of the byte order mark, else UTF-8, else Windows-1252.
    Raises FileNotFoundError, and ValueError for a file that is cut off, too large or no text.
    """
    with open_bytes(path) as file:
        try:
            contents = file.read(MAX_TEXT_BYTES + 1)
        except DAMAGED as error:
            raise ValueError(
                f"'{path}' is cut off or damaged: its compressed data cannot be read ({error})."
            ) from error
    if len(contents) > MAX_TEXT_BYTES:
        raise ValueError(f"'{path}' has more than {MAX_TEXT_BYTES:,} bytes of text; expected less, such as part of it.")
    marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if contents.startswith(mark)), None)
    for name in [encoding or marked or "utf-8"] + ([] if encoding or marked else ["cp1252"]):
        text = _decoded(contents, name)
        if text is not None and "\0" not in text:
            plain = name in ("utf-8", "utf-8-sig") or encoding is not None
            return text, () if plain else (f"the text is in {'Windows-1252' if name == 'cp1252' else name.upper()}",)
    expected = f"text in {encoding or marked}" if encoding or marked else "text in UTF-8 or Windows-1252"
    raise ValueError(f"cannot read '{path}' as CSV or other text; expected {expected}.")


def _decoded(contents: bytes, encoding: str) -> str | None:
    """The text, None where the bytes are none in this encoding."""
    try:
        return contents.decode(encoding).removeprefix("\ufeff")  # a mark of the byte order is no text
    except (UnicodeDecodeError, UnicodeError):
        return None
    except LookupError:
        raise ValueError(f"there is no encoding '{encoding}'.") from None
