"""Files that are cut off or written in an unusual way: the right arrays, or a sentence with the place."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayeslab.datasets import read_genotypes, read_ldac, read_market, read_uci

VCF = (
    "##fileformat=VCFv4.2\n##contig=<ID=1>\n"
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="genotype">\n'
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ta\tb\n"
)
MARKET = "%%MatrixMarket matrix coordinate integer general\n"

CUT_OFF = {
    "STRUCTURE": ("a.str", "m1 m2\na 142 200\na 144 202\nb 142 200\nb 144 20", "line 5 .* 'm2' the allele '20'"),
    "STRUCTURE, shorter": ("a.str", "m1\na 142\na 144\nb 142\nb 30", "line 5 .* 'm1' the allele '30' stands beside"),
    "ped": ("a.ped", "1 a 0 0 1 1 G GTT\n1 b 0 0 2 2 G G", "line 2 .* at locus 1 the allele 'G' stands beside 'GTT'"),
    "GENEPOP": ("a.gen", "t\nl1\npop\na, 0102\nb, 01", "line 5 .* the genotype '01' stands beside '0102'"),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_file_that_ends_within_an_allele_is_refused(tmp_path: Path, name: str) -> None:
    """With a line break at its end it is whole, and read."""
    file, content, words = CUT_OFF[name]
    path = tmp_path / file
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"{words}.* may be cut off"):
        read_genotypes(path)
    path.write_text(content + "\n")
    assert read_genotypes(path).sizes["individual"] == 2
    path.write_bytes(gzip.compress(content.encode()))
    with pytest.raises(ValueError, match="may be cut off"):
        read_genotypes(path)


def test_the_only_individual_of_genepop_may_be_cut(tmp_path: Path) -> None:
    (tmp_path / "a.gen").write_text("t\nl1\nl2\npop\na, 0202 01")
    with pytest.raises(ValueError, match=r"line 5 .* the genotype '01' stands beside '0202'"):
        read_genotypes(tmp_path / "a.gen")


@pytest.mark.parametrize("last", ["202", "-9", "198"])
def test_a_file_without_a_last_line_break_is_read(tmp_path: Path, last: str) -> None:
    (tmp_path / "a.str").write_text(f"m1 m2\na 142 200\na 144 202\nb 142 200\nb 144 {last}")
    found = read_genotypes(tmp_path / "a.str")
    known = [*found["alleles"].values[1], "-9"]
    assert known[found["y"].values[1, 1, 1]] == last


CORPORA: dict[str, tuple[Callable[..., dict[str, Any]], str, str]] = {
    "uci": (read_uci, "2\n3\n2\n1 1 2\n2 3 12\n", "line 5 .*, the last, .* in the middle of a count"),
    "lda-c": (read_ldac, "2 0:1 3:2\n1 1:14\n", "line 2 .*, the last, .* in the middle of a count"),
    "market": (read_market, MARKET + "2 2 2\n1 1 5\n2 2 12\n", "line 4 .*, the last, .* in the middle of a count"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_that_ends_within_a_count_is_refused(tmp_path: Path, name: str) -> None:
    read, content, words = CORPORA[name]
    (tmp_path / "a").write_text(content)
    read(tmp_path / "a")
    (tmp_path / "a").write_text(content[:-2])
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "a")


def test_blank_lines_of_corpora_are_no_documents_or_words(tmp_path: Path) -> None:
    """A document without words is 0 in lda-c; were a blank line passed over, all below would have other numbers."""
    (tmp_path / "a").write_text("1 0:1\n\n1 1:1\n")
    (tmp_path / "words").write_text("a\n\nb\n")
    with pytest.raises(ValueError, match=r"line 2 of .* is blank; expected 0"):
        read_ldac(tmp_path / "a")
    (tmp_path / "a").write_text("1 0:1\n1 1:1\n\n\n")
    assert read_ldac(tmp_path / "a")["num_documents"] == 2
    with pytest.raises(ValueError, match=r"line 2 of .*words is blank"):
        read_ldac(tmp_path / "a", tmp_path / "words")


@pytest.mark.parametrize("name", ["a.ped", "a.ped.gz", "A.PED"])
def test_the_map_is_found_beside_any_ped(tmp_path: Path, name: str) -> None:
    content = b"1 a 0 0 1 1 A C G G\n1 b 0 0 2 2 A A G T\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (tmp_path / ("A.MAP" if name == "A.PED" else "a.map")).write_text("1 m1 0 10\n1 m2 0 -20\n")
    found = read_genotypes(tmp_path / name)
    assert found["locus"].values.tolist() == ["m1"]
    assert found.attrs["removed_loci_of_negative_position"] == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [("1 m1 0 10\nm2 0 20\n", "3 columns; expected 4"), ("1 m1 10\n1 m2 0 20\n", "4 columns; expected 3")],
)
def test_a_row_of_a_map_that_lacks_a_column_is_refused(tmp_path: Path, lines: str, words: str) -> None:
    """Without its chromosome it would read as one of three columns: the name as chromosome, 0 as name."""
    (tmp_path / "a.ped").write_text("1 a 0 0 1 1 A C G G\n1 b 0 0 2 2 A A G T\n")
    (tmp_path / "a.map").write_text(lines)
    with pytest.raises(ValueError, match=rf"line 2 of .*a\.map has {words} as in line 1"):
        read_genotypes(tmp_path / "a.ped")


@pytest.mark.parametrize("code", ["-1", "-99", "00", "000", "NaN", "n/a", "Unknown"])
def test_other_codes_of_missing_alleles_are_no_alleles(tmp_path: Path, code: str) -> None:
    (tmp_path / "a.ped").write_text(f"1 a 0 0 1 1 A C {code} {code}\n1 b 0 0 2 2 A A G T\n")
    with pytest.raises(ValueError, match=f"line 1 of .* has '{code}' in column 9, an allele of locus 2"):
        read_genotypes(tmp_path / "a.ped")
    assert (read_genotypes(tmp_path / "a.ped", missing=code)["y"].values[0, 1] == -1).all()


def test_an_allele_in_small_and_in_large_letters_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ped").write_text("1 a 0 0 1 1 a C\n1 b 0 0 2 2 A C\n")
    with pytest.raises(ValueError, match=r"line 1 of .* has 'a' at locus 1, beside 'A'"):
        read_genotypes(tmp_path / "a.ped")


VARIANTS = {
    "an allele twice": ("10\t.\tA\tC,C", "0/1", "line 5 of .* has alleles A, C, C"),
    "the reference again": ("10\t.\ta\tA", "0/1", "line 5 of .* has alleles a, A"),
    "no separator": ("10\t.\tA\tC", "01", "line 5 of .* digits after a 0"),
    "position": ("3000000000\t.\tA\tC", "0/1", "line 5 of .* position '3000000000'; expected at most"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_doubtful_variants_are_refused(tmp_path: Path, name: str) -> None:
    site, genotype, words = VARIANTS[name]
    (tmp_path / "a.vcf").write_text(f"{VCF}1\t{site}\t.\t.\t.\tGT\t{genotype}\t0/0\n")
    with pytest.raises(ValueError, match=words):
        read_genotypes(tmp_path / "a.vcf")


def test_alleles_of_two_digits_are_read(tmp_path: Path) -> None:
    alternatives = ",".join("A" + "C" * length for length in range(1, 13))
    (tmp_path / "a.vcf").write_text(f"{VCF}1\t10\t.\tA\t{alternatives}\t.\t.\t.\tGT:DP\t10/12:05\t./0:00\n")
    assert read_genotypes(tmp_path / "a.vcf")["y"].values[:, 0].tolist() == [[10, 12], [-1, 0]]


def test_genepop_without_a_title_or_with_old_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\nl1\nl2\npop\na, 0101 0102\nb, 0202 0102\n")
    expected = [[[0, 0], [0, 1]], [[1, 1], [0, 1]]]
    assert read_genotypes(tmp_path / "a.txt")["y"].values.tolist() == expected
    (tmp_path / "a.txt").write_bytes(b"t\rl1\rl2\rPop\ra, 0101 0102\rb, 0202 0102\r")
    assert read_genotypes(tmp_path / "a.txt")["y"].values.tolist() == expected


def test_plink_recode_structure_is_told_with_its_options(tmp_path: Path) -> None:
    path = tmp_path / "a.strct_in"
    path.write_text("m1 m2 \n-1 5 \na 1 1 2 0 0 \nb 1 1 1 3 4 \n")
    with pytest.raises(ValueError, match=r"line 2 of .* plink --recode structure .* map_distances=True, one_row=True"):
        read_genotypes(path)
    found = read_genotypes(path, map_distances=True, one_row=True, populations=True, missing=0)
    assert found["y"].values.tolist() == [[[0, 1], [-1, -1]], [[0, 0], [0, 1]]]


def test_a_locus_like_populations_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"i{one} {place} {allele} {rng.integers(1, 3)}"
        for one, place in enumerate((7, 7, 7, 8, 8, 9))
        for allele in (1, 2)
    ]
    (tmp_path / "a.str").write_text("\n".join(["Ort m1 m2", *rows, ""]))
    with pytest.warns(UserWarning, match="locus 'Ort' has the same number .* pass populations=True"):
        read_genotypes(tmp_path / "a.str")


@pytest.mark.parametrize("numbers", [(1, 1, 2, 2), (1, 2, 2), (3, 3, 1)])
def test_populations_of_few_individuals_are_told(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Of fewer than six, where no other locus is alike in all copies and in blocks."""
    path = tmp_path / "a.str"
    rows = [f"i{one} {n} {a} {5 + (a == 2) * (one % 2)}" for one, n in enumerate(numbers) for a in (1, 2)]
    path.write_text("\n".join(["Ort m1 m2", *rows, ""]))
    with pytest.warns(UserWarning, match="locus 'Ort' has the same number .* pass populations=True"):
        read_genotypes(path)
    rows = [f"i{one} {n} {a} {n}" for one, n in enumerate(numbers) for a in (1, 2)]
    path.write_text("\n".join(["Ort m1 m2", *rows, ""]))
    assert read_genotypes(path).sizes["locus"] == 3


@pytest.mark.parametrize("numbers", [(1, 2, 3), (1, 2, 1), (1, 1, 1)])
def test_few_individuals_apart_or_all_alike_are_no_populations(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    rows = [f"i{one} {number} {allele}" for one, number in enumerate(numbers) for allele in (1, 2)]
    (tmp_path / "a.str").write_text("\n".join(["m1 m2", *rows, ""]))
    assert read_genotypes(tmp_path / "a.str").sizes["locus"] == 2


def test_a_zero_beside_other_codes_of_missing_copies_is_asked_for(tmp_path: Path) -> None:
    """0 and 1 alone are alleles counted from 0; where they go on to 2, a 0 may be a copy that was not read."""
    path = tmp_path / "a.str"
    path.write_text("m1 m2\na 1 2\na 0 -9\nb 1 2\nb 2 1\n")
    words = "line 2 of .* has 0 at locus 'm1', beside alleles up to 2, while other copies are -9: pass missing=-9 if"
    with pytest.raises(ValueError, match=rf"{words} 0 is an allele, or write -9 in its place"):
        read_genotypes(path)
    assert read_genotypes(path, missing=-9)["alleles"].values.tolist() == [["0", "1", "2"], ["1", "2", ""]]
    path.write_text("m1 m2\na 1 0\na 0 -9\nb 1 1\nb 1 1\n")
    assert read_genotypes(path)["alleles"].values.tolist() == [["0", "1"], ["0", "1"]]


def test_loci_of_genepop_have_digits_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.gen").write_text("t\nl1\nl2\nl3\npop\na, 0201 003004 01\nb, 0102 003003 11\n")
    found = read_genotypes(tmp_path / "a.gen")
    names = [[str(name) for name in row if str(name)] for row in found["alleles"].values]
    assert names[:2] == [["01", "02"], ["003", "004"]]
    np.testing.assert_array_equal(found["y"].values[0, :2], [[1, 0], [0, 1]])
    (tmp_path / "b.gen").write_text("t\nl1\npop\na, 0201\nb, 003\n")
    with pytest.raises(ValueError, match="the same at the whole locus"):
        read_genotypes(tmp_path / "b.gen")


def test_individuals_of_genepop_go_on_in_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "a.gen"
    path.write_text("t\nl1, l2,\nl3\npop\na, 0101 0102\n0202\npop\nb,\n 0202 0102\n\n0101\nc, 0101 0101 0202\n")
    found = read_genotypes(path)
    assert found["y"].values[:, :, 1].tolist() == [[0, 1, 1], [1, 1, 0], [0, 0, 1]]
    assert found["population"].values.tolist() == ["1", "2", "2"]
    for wrong, match in (
        ("a, 0101 0102\n0202 0101\n", "line 6 .* has 4 genotypes; expected 3"),
        ("a, 0101 0102\nb, 0202 0101 0101\n", "line 5 .* has 2 genotypes; expected 3"),
        ("a, 0101 0102\n", "line 5 .* has 2 genotypes; expected 3"),
        ("a, 0101 0102\npop\n0101\n", "line 5 .* has 2 genotypes; expected 3"),
        ("a, 0101 0102 0101\n0101\n", "line 6 .* has no comma after a name"),
        ("0101 0102 0101\n", "line 5 .* has no comma after a name"),
    ):
        path.write_text("t\nl1, l2,\nl3\npop\n" + wrong)
        with pytest.raises(ValueError, match=match):
            read_genotypes(path)
