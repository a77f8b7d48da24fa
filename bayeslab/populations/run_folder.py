"""The folder of a run: what is run in it, and whether a run can go on with what it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayeslab.datasets.files.texts import plain_suffix
from bayeslab.datasets.genetics.plink_text import map_beside
from bayeslab.populations.known_origins import origin_files
from bayeslab.results.datatree import package_versions
from bayeslab.results.saving import save_text

GENOTYPES_FILE = "genotypes.nc"
"""The file of the genotypes as filtered."""
RUN_FILE = "run.json"
"""The file that says what is run in a folder."""


def run_record(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What is run, for `claim_folder`: settings, the contents of all files that are read, and versions.

    settings: those of `Settings`, by their names. Makes nothing.
    Raises ValueError where the folder holds something that this run cannot go on with.
    """
    run = {**settings, "sha256": _fingerprint(Path(settings["file"])), **package_versions()}
    if settings["supervised"]:
        origins = [path for path in origin_files(Path(settings["file"])) if path.is_file()]
        run |= {"sha256 of origins": [_fingerprint(path) for path in origins]}
    run |= {f"sha256 of {path}": _fingerprint(Path(path)) for path in settings["start_from"] or ()}
    run = json.loads(json.dumps(run))
    if (folder / GENOTYPES_FILE).exists() and (changes := _changes(_known_run(folder), run)):
        raise ValueError(f"'{folder}' holds another run ({changes}); give another folder, or remove that one")
    return run


def claim_folder(run: Mapping[str, Any], folder: Path) -> None:
    """Make the folder where there is none, and write down what is run in it."""
    for part in (folder / "choice", folder / "fits"):
        part.mkdir(parents=True, exist_ok=True)
    save_text(json.dumps(run, indent=1) + "\n", folder / RUN_FILE)


def _known_run(folder: Path) -> dict[str, Any]:
    """What was run in a folder; raises ValueError where nothing says so."""
    path = folder / RUN_FILE
    problem = "has no" if not path.is_file() else "has a damaged"
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        known = None
    if not isinstance(known, dict) or not {"draws", "populations"} <= known.keys():
        raise ValueError(
            f"'{folder}' {problem} {RUN_FILE}, so nothing says of which run its {GENOTYPES_FILE} is; give another "
            "folder for the results"
        )
    return known


def _changes(known: dict[str, Any], run: dict[str, Any]) -> str:
    """What keeps a run from going on with the files of a known one; more draws and larger K do not."""
    names = sorted((run.keys() | known.keys()) - {"file", "draws", "populations"})
    changed = [name for name in names if run.get(name) != known.get(name)]
    changed += ["draws"] if run["draws"] < known["draws"] else []
    known_numbers, numbers = known["populations"], run["populations"]
    changed += ["populations"] if numbers[: len(known_numbers)] != known_numbers else []
    return ", ".join(f"{name} was {known.get(name)} and is {run.get(name)}" for name in changed)


def _fingerprint(path: Path) -> str:
    """The SHA-256 of the contents of the file, and of those that are read beside it: PLINK's .bim and .fam, or .map."""
    stem = path.with_suffix("") if path.suffix.lower() == ".bed" else path
    beside = [Path(f"{stem}{suffix}") for suffix in (".bed", ".bim", ".fam")]
    beside += [map_beside(path)] if plain_suffix(path) == ".ped" else []
    files = [part for part in dict.fromkeys([path, *beside]) if part.is_file()]
    if not files:
        raise FileNotFoundError(f"there is no file '{path}'")
    contents = hashlib.sha256()
    for part in files:
        with part.open("rb") as file:
            while block := file.read(2**22):
                contents.update(block)
    return contents.hexdigest()
