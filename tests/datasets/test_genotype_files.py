"""Genotypes from files: what independent writers wrote comes back."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from bed_reader import to_bed
from hypothesis import given
from hypothesis import strategies as st

from bayeslab.datasets import genotypes, read_genotypes, read_plink, read_structure, read_vcf
from bayeslab.datasets.genetics import plink, vcf
from genotype_panels import LOCI, PEOPLE, Y, plink_bytes, quick, structure_text, vcf_text, write_plink, write_vcf


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("genotypes")


@pytest.fixture(params=[".bed", ".vcf", ".vcf.gz", ".vcf.bgz", ".bcf", ".str", ".txt"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == ".bed":
        return write_plink(tmp_path)
    if request.param in (".str", ".txt"):
        path = tmp_path / f"panel{request.param}"
        path.write_text(structure_text(one_row=request.param == ".txt"))
        return path
    return write_vcf(tmp_path, request.param)


def opened(path: Path) -> xr.Dataset:
    return read_genotypes(path, **({"one_row": True} if path.suffix == ".txt" else {}))


def test_every_format_gives_the_same(file: Path) -> None:
    found = opened(file)
    np.testing.assert_array_equal(found["y"], Y)
    assert found["y"].dtype == np.int8
    assert (found["individual"].values.tolist(), found["locus"].values.tolist()) == (PEOPLE, LOCI)
    assert found["alleles"].values.tolist() == [["120", "124"] if file.suffix in (".str", ".txt") else ["G", "A"]] * 11
    expected = {"source": file.name, "individuals_read": 7, "loci_read": 11, "loci_not_biallelic": 0}
    expected |= {"copies_missing": (Y < 0).sum(), "genotypes_partly_missing": 0}
    assert expected.items() <= found.attrs.items()
    if "position" in found.coords:
        assert found["position"].values.tolist() == list(range(10, 21))
        assert set(found["chromosome"].values) == {"1"}


def test_saving_changes_nothing(file: Path) -> None:
    """As integers, and as the floats that xarray makes of them by default."""
    found = opened(file)
    found.to_netcdf(file.with_name("saved.nc"), engine="h5netcdf")
    again = read_genotypes(file.with_name("saved.nc"))
    xr.testing.assert_equal(again, found)
    assert again.attrs == found.attrs
    expected = genotypes(found)
    for other in (again, xr.load_dataset(file.with_name("saved.nc"), engine="h5netcdf")):
        data = genotypes(other)
        assert data["y"].identical(expected["y"])
        np.testing.assert_array_equal(data["num_alleles"], expected["num_alleles"])


def test_reading_in_blocks_is_reading_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = opened(file)
    for block in (1, 7, 21, 50):
        monkeypatch.setattr(plink, "GENOTYPES_PER_BLOCK", block)
        monkeypatch.setattr(vcf, "GENOTYPES_PER_BLOCK", block)
        assert opened(file).identical(at_once)


@quick
@given(st.integers(1, 10), st.integers(1, 9), st.integers(0, 2**20))
def test_plink_is_read_as_bed_reader_writes_it(folder: Path, individuals: int, loci: int, seed: int) -> None:
    count = np.random.default_rng(seed).choice(np.array([0, 1, 2, -127], np.int8), (individuals, loci))
    path = folder / "written.bed"
    to_bed(path, count, properties={"iid": np.arange(individuals).astype(str), "sid": np.arange(loci).astype(str)})
    y = read_plink(path)["y"].values
    np.testing.assert_array_equal(np.where(count < 0, -2, count), y.sum(-1))
    assert path.read_bytes() == plink_bytes(y)


def test_families_are_populations_and_names_are_made_unique(tmp_path: Path) -> None:
    fam = "".join(f"{family} {one} 0 0 0 -9\n" for family, one in zip("abcdxyz", "1123455", strict=True))
    bim = "1 . 0 5 A G\n1 . 0 5 A T\n2 . 0 5 A G\n" + "".join(
        f"2 {name} 0 {i} A G\n" for i, name in enumerate("aabcdefg")
    )
    found = read_plink(write_plink(tmp_path, bim=bim, fam=fam).with_suffix(""))
    assert found["individual"].values.tolist() == ["a:1", "b:1", "c:2", "d:3", "x:4", "y:5", "z:5"]
    assert found["population"].values.tolist() == list("abcdxyz")
    assert found["locus"].values[:6].tolist() == ["1:5:G:A", "1:5:T:A", "2:5", "2:0:G:A", "2:1:G:A", "b"]
    assert read_plink(write_plink(tmp_path))["population"].values.tolist() == ["east", "west", *[""] * 5]
    bare = read_plink(write_plink(tmp_path, fam="".join(f"0 {one} 0 0 0 0\n" for one in PEOPLE)))
    assert "population" not in bare.coords


CALLS = """1 5 . A C,G . PASS . GT:DP 0/2:3 .|1:. .:9
1 5 . A T . low . GT 1|0 ./. 0/1
X 9 . A . . . . GT 0 0/0 .
X 10 x A C . . . GT 1 1/0 0/0/1
"""


def test_calls_keep_the_copies_that_were_read(tmp_path: Path) -> None:
    head = vcf_text(Y[:3, :0]).replace("ID=1>", "ID=1>\n##contig=<ID=X>")
    path = write_vcf(tmp_path, ".vcf", head + CALLS.replace(" ", "\t"))
    found = read_vcf(path)
    first, second = [[0, 2, -1], [-1, 1, -1], [-1, -1, -1]], [[1, 0, -1], [-1, -1, -1], [0, 1, -1]]
    third, fourth = [[0, -1, -1], [0, 0, -1], [-1, -1, -1]], [[1, -1, -1], [1, 0, -1], [0, 0, 1]]
    assert found["y"].values.swapaxes(0, 1).tolist() == [first, second, third, fourth]
    assert found["locus"].values.tolist() == ["1:5:A:C:G", "1:5:A:T", "X:9", "x"]
    assert found["alleles"].values.tolist() == [["A", "C", "G"], ["A", "T", ""], ["A", "", ""], ["A", "C", ""]]
    counts = {"loci_not_biallelic": 2, "loci_not_passed": 1, "removed_loci_not_passed": 0, "loci_read": 4}
    assert counts.items() <= found.attrs.items()
    passed = read_genotypes(path, passed_only=True)
    assert passed["y"].values.swapaxes(0, 1).tolist() == [first, third, fourth]
    assert passed["locus"].values.tolist() == ["1:5", "X:9", "x"]
    assert {"removed_loci_not_passed": 1, "loci_read": 4}.items() <= passed.attrs.items()


def test_many_alleles_take_two_bytes(tmp_path: Path) -> None:
    ys = np.arange(300).reshape(50, 2, 3)
    (tmp_path / "a.str").write_text(
        "m1 m2\n" + "".join(f"i{i} {a} {b}\n" for i, one in enumerate(ys) for a, b in one.T)
    )
    found = read_structure(tmp_path / "a.str", 3, missing=-9)
    assert found["y"].dtype == np.int16
    np.testing.assert_array_equal(found["alleles"].values[:, found["y"].values[4, 0]][0], ["24", "25", "26"])
    alternatives = ",".join("A" * size for size in range(2, 131))
    line = f"1\t5\t.\tA\t{alternatives}\t.\t.\t.\tGT" + "\t129/0" * 7 + "\n"
    wide = read_vcf(write_vcf(tmp_path, ".vcf", vcf_text() + line))["y"]
    assert wide.dtype == np.int16
    np.testing.assert_array_equal(wide[:, :-1], Y)
    assert wide[:, -1].values.tolist() == [[129, 0]] * 7


def test_structure_has_every_column_and_line_of_the_manual(tmp_path: Path) -> None:
    path = tmp_path / "a.str"
    path.write_text(
        "m1 m2\n-1 120\n-1 0.5\n"
        "ann 3 1 7 20 x 120 -9\nann 3 1 7 20 y 100 5\n0.5 1\n"
        "bob 4 0 8 21 x 110 6\nbob 4 0 8 21 y 100 5\n1 1\n"
    )
    every = {"recessive_alleles", "map_distances", "phase_rows", "populations", "population_flags", "locations"}
    options = dict.fromkeys([*every, "phenotypes", "marker_names"], True) | {"extra_columns": 1}
    found = read_structure(path, **options)
    assert found["y"].values.tolist() == [[[2, 0], [-1, 0]], [[1, 0], [1, 0]]]
    assert found["alleles"].values.tolist() == [["100", "110", "120"], ["5", "6", ""]]
    expected = {
        "individual": ["ann", "bob"],
        "population": ["3", "4"],
        "population_flag": [1, 0],
        "location": ["7", "8"],
        "phenotype": [20, 21],
        "locus": ["m1", "m2"],
        "recessive_allele": ["-1", "120"],
        "map_distance": [-1, 0.5],
    }
    assert {name: found[name].values.tolist() for name in found.coords} == expected


def test_structure_without_labels_and_names_needs_the_number_of_loci(tmp_path: Path) -> None:
    path = tmp_path / "a.str"
    path.write_text("1 2 3\n3 2 1\n1 1 1\n-9 2 2\n")
    options = {"labels": False, "marker_names": False}
    found = read_structure(path, num_loci=3, **options)
    assert (found["individual"].values.tolist(), found["locus"].values.tolist()) == (["1", "2"], ["1", "2", "3"])
    assert found["y"].values.tolist() == [[[0, 1], [1, 1], [2, 0]], [[0, -1], [0, 1], [0, 1]]]
    haploid = read_structure(path, 1, num_loci=2, populations=True, **options)
    assert haploid["y"].shape == (4, 2, 1)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("N", "line 2 of .*a.ped has 'N' in column 7, an allele of locus 1, beside A and G; pass missing='N'"),
        (".", "pass missing='.'"),
        ("-", "pass missing='-'"),
    ],
)
def test_other_codes_of_missing_copies_are_refused_in_a_ped(code: str, words: str, tmp_path: Path) -> None:
    """A third allele that stands for nothing elsewhere; told, it is missing. Of a deletion "-" is an allele."""
    path = tmp_path / "a.ped"
    path.write_text(f"f a 0 0 1 -9 A G C -\nf b 0 0 1 -9 {code} {code} C C\n")
    with pytest.raises(ValueError, match=words):
        read_genotypes(path)
    read = read_genotypes(path, missing=code)
    assert read["y"].values[:, 0].tolist() == [[0, 1], [-1, -1]]
    assert read["alleles"].values[1].tolist() == (["C", ""] if code == "-" else ["-", "C"])
