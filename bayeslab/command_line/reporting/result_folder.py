"""The folder that a report is written to, asked for before any work is done."""

import os
from pathlib import Path


def require_folder(folder: Path) -> None:
    """Raise OSError where there can be no folder of results of this name. Makes nothing."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    if not there.is_dir():
        raise NotADirectoryError(f"'{there}' is a file; name a folder for the results")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write results to '{folder}': the folder '{there}' is read-only")
