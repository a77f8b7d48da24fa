"""Files of genotypes that are damaged, foreign or in doubt are refused in one sentence, and never read as others."""

import gzip
import io
import re
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from bayeslab.datasets import read_genotypes, read_plink, read_vcf
from genotype_panels import LOCI, PEOPLE, Y, plink_bytes, quick, structure_text, table, vcf_text, write_plink, write_vcf

REFUSALS = (ValueError, OSError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("genotypes")


def refused(path: Path, *words: str, **options: Any) -> None:
    """In one sentence that names the file."""
    with pytest.raises(REFUSALS) as caught:
        read_genotypes(path, **options)
    sentence = str(caught.value)
    assert re.fullmatch(rf".*{path.stem}.*\.", sentence), sentence
    assert all(re.search(each, sentence) for each in words), sentence


ANYTHING = {
    "empty": b"",
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01",
    "text": b"some words\nof a letter, in lines\nthat say nothing\n",
    "numbers": b"1,2,3\n4,5,6\n",
    "blank": b"\n\n",
    "zeros": bytes(100),
}
SUFFIXES = [".bed", ".vcf", ".vcf.gz", ".bcf", ".str", ".txt", ".nc"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_foreign_files_are_refused(tmp_path: Path, suffix: str) -> None:
    write_plink(tmp_path)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("panel.vcf", vcf_text())
    for content in [*ANYTHING.values(), archive.getvalue(), gzip.compress(b"not this")]:
        path = tmp_path / f"panel{suffix}"
        path.write_bytes(content)
        refused(path)


@quick
@given(st.sampled_from(SUFFIXES), st.binary(max_size=200))
def test_random_bytes_are_refused(folder: Path, suffix: str, content: bytes) -> None:
    write_plink(folder)
    path = folder / f"panel{suffix}"
    path.write_bytes(content)
    refused(path)


@quick
@given(st.integers(0, len(plink_bytes(Y)) - 1), st.binary(min_size=1, max_size=20))
def test_a_bed_of_another_length_is_refused(folder: Path, cut: int, more: bytes) -> None:
    path = write_plink(folder)
    whole = path.read_bytes()
    for content in (whole[:cut], whole + more, whole[: cut // 4] + more + whole[cut // 4 :]):
        path.write_bytes(content)
        refused(path)


@quick
@given(st.integers(0, len(Y) - 1), st.integers(0, Y.shape[1] - 1), st.booleans())
def test_a_bim_or_fam_with_another_number_of_lines_is_refused(folder: Path, one: int, locus: int, more: bool) -> None:
    """One individual less needs no other length: what the last byte of a locus holds beyond the others tells."""
    path = write_plink(folder)
    for suffix, line in ((".bim", locus), (".fam", one)):
        lines = path.with_suffix(suffix).read_text().splitlines(keepends=True)
        extra = lines[line].replace("rs", "new").replace("\ti", "\tnew")
        changed = [*lines, extra] if more else lines[:line] + lines[line + 1 :]
        path.with_suffix(suffix).write_text("".join(changed))
        if not (more and suffix == ".fam"):
            refused(path, "bytes; expected|beyond the 6 individuals")
        path.with_suffix(suffix).write_text("".join(lines))


@quick
@given(st.sampled_from([".vcf.gz", ".vcf.bgz", ".bcf", ".nc"]), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_compressed_files_are_read_whole_or_refused(folder: Path, suffix: str, where: float, change: int) -> None:
    """Cut off anywhere, or with a byte that is another; such bytes can be without a meaning."""
    path = folder / "panel.nc"
    if suffix == ".nc":
        read_plink(write_plink(folder)).to_netcdf(path, engine="h5netcdf")
    else:
        path = write_vcf(folder, suffix)
    whole = path.read_bytes()
    place = int(where * len(whole))
    path.write_bytes(whole[:place])
    refused(path)
    if suffix != ".nc":
        path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
        with suppress(*REFUSALS):
            np.testing.assert_array_equal(read_vcf(path)["y"], Y)


@quick
@given(st.integers(0, len(vcf_text()) - 1))
def test_a_vcf_that_is_cut_off_is_refused(folder: Path, place: int) -> None:
    """Between two lines nothing tells that there were more."""
    text = vcf_text()[:place]
    path = folder / "panel.vcf"
    path.write_text(text)
    lines = text.count("\n") - vcf_text(Y[:, :0]).count("\n")
    if lines > 0 and text.endswith("\n"):
        np.testing.assert_array_equal(read_vcf(path)["y"], Y[:, :lines])
    else:
        refused(path)


@quick
@given(st.data(), st.booleans(), st.booleans())
def test_structure_text_that_lacks_something_is_refused(folder: Path, data: Any, one_row: bool, whole: bool) -> None:
    """A column, or with individuals of two lines a line."""
    lines = structure_text(one_row=one_row).splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    columns = lines[place].split()
    del columns[data.draw(st.integers(0, len(columns) - 1))]
    changed = [] if whole and not one_row else [" ".join(columns)]
    path = folder / "panel.str"
    path.write_text("\n".join([*lines[:place], *changed, *lines[place + 1 :]]))
    refused(path, one_row=one_row)


STRUCTURE: dict[str, tuple[str, dict[str, Any], str]] = {
    "populations": (
        structure_text(populations=True),
        {},
        "line 2 .* 13 columns; expected 12, 1 before .*; populations, ",
    ),
    "one row": (structure_text(one_row=True), {}, "line 2 .* has 23 columns; expected 12.*; one_row=True fits"),
    "two rows": (structure_text(), {"one_row": True}, "line 2 .* 12 columns; expected 23.*; one_row=False fits"),
    "no labels": (structure_text(), {"labels": False}, "line 2 .* has 12 columns; expected 11, 0 before the alleles"),
    "ploidy": (structure_text(), {"ploidy": 1}, "individual 'i0' twice, at line 2 and line 3"),
    "too many lines": (structure_text(), {"ploidy": 4}, "line 4 .* begins with 'i1', line 2 with 'i0'"),
    "half": ("m n\na 1 2\na 1 2\nb 2 1\n", {}, "ends after 1 of the 2 lines of the individual of line 4"),
    "no names": ("a 1 2\na 1 2\n", {}, "pass num_loci=2 if 1 of the 3 columns of line 1 precede"),
    "numbers": ("1 2\na 1 2\na 1 2\n", {}, "line 1 .* may name the loci or may be of an individual; pass marker_names"),
    "no labels or names": ("1 2\n1 2\n", {"labels": False}, "may name the loci"),
    "phases": ("m\na 1\na 2\n0.5\n", {"phase_rows": True}, "say with marker_names"),
    "no phases": (
        "m\na 1\na 2\n7\n",
        {"phase_rows": True, "marker_names": True},
        "line 4 .* no phases; expected 1 number",
    ),
    "missing": (
        "m n\na 1 2\na 1 -1\n",
        {},
        "line 3 .* has '-1' in column 3, and no allele is negative; pass missing=-1",
    ),
    "zero": (
        "m n\na 1 0\na 1 98\n",
        {},
        "line 2 .* has 0 at locus 'n', beside alleles up to 98, .* pass missing=0 if .* or missing=-9",
    ),
    "letter": ("m n\na 1 A\na 1 2\n", {}, "line 2 .* has 'A' in column 3; expected an integer"),
    "underscore": ("m n\na 1 1_0\na 1 2\n", {}, "line 2 .* has '1_0' in column 3"),
    "large": ("m n\na 1 99999999999\na 1 2\n", {}, "line 2 .* has '99999999999' in column 3"),
    "heading": ("who pop m n\na 1 1 2\na 1 2 1\n", {}, "line 1 .* has 'pop' as the name of a column"),
    "heading of rows": (
        "who m n\na 1 2\n",
        {"num_loci": 1, "one_row": True},
        "line 1 .* has 'm' in column 2; expected",
    ),
    "flag": ("m\na 3 1\na 3 2\n", {"population_flags": True}, "line 2 .* has '3' as population_flag; expected 0 or 1"),
    "loci": ("m n\na 1 2\na 1 2\n", {"num_loci": 3}, "line 1 .* has 2 columns; expected 3, one for each locus"),
    "names twice": ("m m\na 1 2\na 1 2\n", {}, "has locus 'm' twice, at column 1 and column 2"),
    "labels twice": ("m\na 1\na 2\nb 1\nb 1\na 1\na 1\n", {}, "has individual 'a' twice, at line 2 and line 6"),
    "distances": ("m n\n1 x\na 1 2\na 1 2\n", {"map_distances": True}, "line 2 .* has distances that are no numbers"),
    "nobody": ("m n\n", {"marker_names": True}, "has no individual below its 1 heading"),
    "bytes": ("m n\na 1 \0\na 1 2\n", {}, "line 2 .* has a byte of zero"),
    "wrong ploidy": (structure_text(), {"ploidy": 0}, "ploidy and num_loci are at least 1"),
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_structure_text_that_leaves_a_doubt_is_refused(tmp_path: Path, case: str) -> None:
    text, options, words = STRUCTURE[case]
    (tmp_path / "a.str").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_genotypes(tmp_path / "a.str", **options)


LINE = "1\t5\t.\tA\tC\t.\t.\t.\tGT" + "\t0/1" * 7 + "\n"
BAD_VCF = {
    "sites only": (re.sub(r"\tFORMAT.*", "", vcf_text(Y[:, :0])), "line 5 of .* names no individuals"),
    "no variants": (vcf_text(Y[:, :0]), "has no variants"),
    "no header": ("##fileformat=VCFv4.2\n" + LINE, "line 2 of .* begins with '1.*; expected #CHROM"),
    "no genotypes": (vcf_text() + LINE.replace("GT", "DP"), "line 17 of .* has no genotypes: FORMAT is 'DP'"),
    "columns": (vcf_text() + LINE.replace("\t0/1\n", "\n"), "line 17 of .* has 15 columns .*; expected 16"),
    "spaces": (vcf_text() + LINE.replace("\t", " "), "line 17 of .* has 1 column set apart by tabs"),
    "position": (vcf_text() + LINE.replace("5", "x", 1), "line 17 of .* has position 'x'"),
    "nothing": (vcf_text() + LINE.replace("C", ""), "line 17 of .* has nothing as ALT"),
    "allele": (vcf_text() + LINE.replace("0/1\n", "0/2\n"), "line 17 of .* has an allele beyond the 2"),
    "wraps": (vcf_text() + LINE.replace("0/1\n", "0/65537\n"), "line 17 of .* has an allele of five digits"),
    "letters": (vcf_text() + LINE.replace("0/1\n", "0/A\n"), "line 17 of .* has genotypes that htslib cannot read"),
    "same line": (vcf_text() + LINE + LINE, "has locus '1:5:A:C' twice, at line 17 and line 18"),
    "same name": (vcf_text().replace("i3", "i2"), "has individual 'i2' twice, at column 12 of line 5 and column 13"),
    "filters": (vcf_text().replace("PASS", "low"), "no site that passed its filters; 11 failed one"),
}


@pytest.mark.parametrize("place", ["i3", "rs3", "\tA\t"])
def test_vcf_in_another_encoding_is_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / "panel.vcf"
    path.write_bytes(vcf_text().replace(place, place.replace(place.strip(), "é"), 1).encode("latin-1"))
    refused(path, "line [569] of .* is no text in UTF-8")


@pytest.mark.parametrize("case", BAD_VCF)
def test_wrong_vcf_is_refused(tmp_path: Path, case: str) -> None:
    text, words = BAD_VCF[case]
    refused(write_vcf(tmp_path, ".vcf", text), words, passed_only=True)


BIM = table(*["1" * 11, LOCI, "0" * 11, range(11), "A" * 11, "G" * 11])
FAM = table(*["0" * 7, PEOPLE, *["0" * 7] * 4])
BAD_PLINK: dict[str, tuple[dict[str, str], str]] = {
    "columns of bim": ({"bim": BIM.replace("\tG", "", 1)}, "line 1 of .*panel.bim has 5 columns; expected 6"),
    "columns of fam": ({"fam": FAM + "a b\n"}, "line 8 of .*panel.fam has 2 columns; expected 6"),
    "position": ({"bim": BIM.replace("\t5\t", "\tx\t")}, "line 6 of .*panel.bim has position 'x'"),
    "alleles": ({"bim": BIM.replace("G", "A", 1)}, "line 1 of .*panel.bim has 'A' as both alleles"),
    "locus": (
        {"bim": BIM.replace("rs5\t0\t5", "rs4\t0\t4")},
        "panel.bim has locus '1:4:G:A' twice, at line 5 and line 6",
    ),
    "individual": ({"fam": FAM.replace("i5", "i4")}, "panel.fam has individual '0:i4' twice, at line 5 and line 6"),
    "empty bim": ({"bim": "\n"}, "panel.bim is empty"),
    "empty fam": ({"fam": " \n"}, "panel.fam is empty"),
}


@pytest.mark.parametrize("case", BAD_PLINK)
def test_wrong_tables_of_plink_are_refused(tmp_path: Path, case: str) -> None:
    files, words = BAD_PLINK[case]
    refused(write_plink(tmp_path, **files), words)


def test_other_errors_are_one_sentence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_plink(tmp_path)
    path.write_bytes(b"\x6c\x1b\0" + plink_bytes(Y)[3:])
    refused(path, "individual after individual .*convert it with plink --make-bed")
    path.write_bytes(b"\x6c\x1b\2" + plink_bytes(Y)[3:])
    refused(path, "has 02 as byte 3; expected 01")
    path.write_bytes(plink_bytes(Y))
    for suffix in (".bim", ".fam", ".bed"):
        path.with_suffix(suffix).unlink()
        refused(path, f"there is no file .*panel.{suffix[1:]}")
        write_plink(tmp_path)
    refused(tmp_path / "panel.vcf", "there is no file")
    refused(path.with_suffix(".fam"), "goes with another file that holds the genotypes: name the .bed")
    np.testing.assert_array_equal(read_genotypes(path.with_suffix(""))["y"], Y)
    for package, suffix in (("bed_reader", ".bed"), ("cyvcf2", ".vcf")):
        written = path if suffix == ".bed" else write_vcf(tmp_path, suffix)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=r"pip install 'bayeslab\[genetics\]'"):
            read_genotypes(written)


FORMS: dict[str, tuple[Callable[[xr.Dataset], xr.Dataset], str]] = {
    "variable": (lambda one: one.drop_vars("alleles"), r"has no variable alleles; expected alleles \(locus, allele\)"),
    "order": (lambda one: one.transpose("locus", ...), r"has dimensions \(locus, individual, copy\) of y"),
    "names": (lambda one: one.drop_vars("locus"), "has no variable locus"),
    "floats": (lambda one: one.assign(y=one["y"].astype(float)), "has y of float64; expected integers"),
    "number": (lambda one: one.assign(y=one["y"].where(one["y"] < 1, 5)), "number at locus rs0 .*expected -1 to 1"),
    "twice": (lambda one: one.assign_coords(locus=["a"] * 11), "has locus 'a' twice, at position 0 and position 1"),
}


@pytest.mark.parametrize("case", FORMS)
def test_netcdf_of_another_form_is_refused(tmp_path: Path, case: str) -> None:
    change, words = FORMS[case]
    change(read_plink(write_plink(tmp_path))).to_netcdf(tmp_path / "panel.nc", engine="h5netcdf")
    refused(tmp_path / "panel.nc", words)
