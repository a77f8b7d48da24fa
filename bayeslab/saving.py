"""Results as files, whole or not at all."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xarray import DataTree


def save(tree: "DataTree", path: Path) -> None:
    """Write a result as netCDF. A file that was there is replaced once the new one is complete."""
    require_writable(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        tree.to_netcdf(part, engine="h5netcdf")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """Raises OSError where no file of this name can be written, so that it is known before any work is done."""
    if path.is_dir():
        raise IsADirectoryError(f"'{path}' is a folder; name a file in it, as '{path / 'fit.nc'}'")
    if not path.parent.is_dir():
        raise NotADirectoryError(f"cannot write '{path}': there is no folder '{path.parent}'")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write '{path}': the folder '{path.parent}' is read-only")
