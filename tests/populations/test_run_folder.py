"""What is run in a folder: the contents of all files that are read, and folders that say nothing of it."""

import bz2
import gzip
from dataclasses import asdict
from pathlib import Path

import pytest

from bayeslab.models import structure_admixture, structure_correlated
from bayeslab.populations.run import Settings, run_structure
from bayeslab.populations.run_folder import claim_folder, run_record

PED = b"1 a 0 0 1 1 A C G G\n1 b 0 0 2 2 A A G T\n"
MAP = b"1 m1 0 10\n1 m2 0 20\n"
PACKED = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


def record(file: Path, folder: Path) -> dict[str, object]:
    return run_record(asdict(Settings(str(file), (1,))), folder)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("name", ["a.ped", "a.ped.gz"])
def test_another_map_is_another_run(tmp_path: Path, name: str, packed: str) -> None:
    """A folder of genotypes whose loci were named by an earlier .map is not gone on with."""
    file, folder = tmp_path / name, tmp_path / "out"
    file.write_bytes(gzip.compress(PED) if name.endswith("gz") else PED)
    without = record(file, folder)
    locus_file = tmp_path / f"a.map{packed}"
    locus_file.write_bytes(PACKED[packed](MAP))
    run = record(file, folder)
    assert run["sha256"] != without["sha256"]
    claim_folder(run, folder)
    (folder / "genotypes.nc").touch()
    assert record(file, folder) == run
    locus_file.write_bytes(PACKED[packed](MAP.replace(b"m2", b"m3")))
    with pytest.raises(ValueError, match=r"holds another run \(sha256 was .* and is .*\); give another folder"):
        record(file, folder)


def test_what_is_beside_other_files_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.str").write_text("m1\na 1\na 2\n")
    before = record(tmp_path / "a.str", tmp_path / "out")
    (tmp_path / "a.map").write_bytes(MAP)
    assert record(tmp_path / "a.str", tmp_path / "out") == before


@pytest.mark.parametrize(("text", "words"), [(None, "has no"), ("{", "has a damaged"), ("[1]", "has a damaged")])
def test_a_folder_that_does_not_say_its_run_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    (tmp_path / "a.ped").write_bytes(PED)
    (tmp_path / "genotypes.nc").touch()
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=rf"{words} run\.json, so nothing says of which run its genotypes\.nc is"):
        record(tmp_path / "a.ped", tmp_path)


REFUSED = {
    "reading": ({}, PED.replace(b"T", b"N"), "has 'N' in column 10"),
    "filters": ({"filters": {"min_minor_allele_frequency": 0.5}}, PED, "no locus is left of 2"),
    "choice": ({"share": 1e-9}, PED, "a share of 1e-09 of 4 genotypes is none of them"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_run_leaves_no_folder(tmp_path: Path, name: str) -> None:
    options, text, words = REFUSED[name]
    (tmp_path / "a.ped").write_bytes(text)
    settings = Settings(str(tmp_path / "a.ped"), (1,), **options)  # type: ignore[arg-type]
    models = structure_admixture.model, structure_correlated.model
    with pytest.raises(ValueError, match=words):
        run_structure(*models, settings, tmp_path / "above" / "out", say=lambda what: None)
    assert not (tmp_path / "above").exists()
