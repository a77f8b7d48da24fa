"""Writes results to files, completely or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xarray import Dataset, DataTree


def save(tree: "DataTree | Dataset", path: Path) -> None:
    """Write a result as netCDF. A file of this name is replaced once the new one is complete.

    The file is made in memory: where a disk is full, HDF5 would take the process down.
    """
    save_bytes(bytes(tree.to_netcdf(None, engine="h5netcdf")), path)


def save_text(text: str, path: Path) -> None:
    """Write a text, as `save` writes a result."""
    with _atomic_replacement(path) as part:
        part.write_text(text, encoding="utf-8")


def save_bytes(contents: bytes, path: Path) -> None:
    """Write a file, as `save` writes a result."""
    with _atomic_replacement(path) as part:
        part.write_bytes(contents)


def require_writable(path: Path) -> None:
    """Raise OSError where no file of this name can be written. It is asked before any work is done."""
    if path.is_dir():
        raise IsADirectoryError(f"'{path}' is a folder; name a file in it")
    if not path.parent.is_dir():
        raise NotADirectoryError(f"cannot write '{path}': there is no folder '{path.parent}'")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write '{path}': the folder '{path.parent}' is read-only")


@contextmanager
def _atomic_replacement(path: Path) -> Iterator[Path]:
    """The scope that gives a temporary file to write, which replaces `path` at the end and is deleted on an error."""
    require_writable(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        raise OSError(f"cannot write '{path}': {error.strerror or error}; what it held before is as it was") from error
    finally:
        part.unlink(missing_ok=True)
