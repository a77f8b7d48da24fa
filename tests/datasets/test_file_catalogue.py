"""Every file of the catalogue holds the same genotypes; changed anywhere it is refused, or holds them still."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from bayeslab.datasets import genotypes, read_genotypes, read_structure, structure_options
from genotype_files import GENOTYPES, LETTERS, MAINPARAMS, OTHERS, PLAIN, POPULATIONS, STRUCTURE, Case, raw, rows, text

CASES = {f"STRUCTURE, {name}": case for name, case in STRUCTURE.items()} | OTHERS
NUMBERS = {letter: number for number, letter in LETTERS.items()}


def written(folder: Path, case: Case) -> Path:
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    return folder / next(iter(case.files))


def as_text(found: xr.Dataset) -> list[list[tuple[str, ...] | None]]:
    """The copies of every genotype by the names of their alleles, as digits, in order; None where none was read."""
    result: list[list[tuple[str, ...] | None]] = []
    for one in found["y"].values:
        result.append([])
        for locus, copies in enumerate(one):
            known = [NUMBERS.get(name, name.lstrip("0")) for name in found["alleles"].values[locus]]
            known = [_other(name, known) for name in known]
            names = tuple(sorted(known[code] for code in copies if code >= 0))
            result[-1].append(names or None)
    return result


def _other(name: str, known: list[str]) -> str:
    """The other allele of a locus, where a file names one only."""
    counted = NUMBERS.get(name.removeprefix("not "))
    return {"2": "1", "4": "3", "3": "1"}[counted] if name.startswith("not ") and counted else name


EXPECTED = [[pair and tuple(sorted(pair)) for pair in genotypes] for genotypes in GENOTYPES.values()]


@pytest.mark.parametrize("name", CASES)
def test_every_file_holds_the_same_genotypes(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    found = read_genotypes(written(tmp_path, case), **case.options)
    assert as_text(found) == EXPECTED
    assert found["individual"].values.tolist() == case.individuals
    assert found["locus"].values.tolist() == case.loci
    assert found["y"].dtype == np.int8
    if case.populations is not None:
        assert found["population"].values.tolist() == list(case.populations.values())
    assert genotypes(found)["num_individuals"] == 3


@pytest.mark.parametrize("name", MAINPARAMS)
def test_mainparams_say_how_a_file_is_read(tmp_path: Path, name: str) -> None:
    data, parameters = MAINPARAMS[name]
    (tmp_path / "a.str").write_bytes(data)
    (tmp_path / "mainparams").write_bytes(parameters)
    assert as_text(read_structure(tmp_path / "a.str", **structure_options(tmp_path / "mainparams"))) == EXPECTED


REFUSED: dict[str, tuple[Case, str]] = {
    "zero beside 1 to 4": (
        Case({"a.str": text("m1 m2 m3", *rows("0"))}),
        r"line 2 .* has 0 at locus 'm3', beside alleles up to 4, .* pass missing=0 if .* or missing=-9",
    ),
    "populations that are not said": (
        Case({"a.str": text("ID Pop m1 m2 m3", *rows(before=POPULATIONS))}),
        "line 1 .* has 'Pop' as the name of a column that the options take for a locus",
    ),
    "number of individuals": (Case({"a.str": PLAIN}, {"num_individuals": 4}), "has 3 individuals; expected 4"),
    "letters": (Case({"a.str": text("m1 m2 m3", *rows()).replace(b"1 3", b"A 3")}), "line 2 .* has 'A' in column 2"),
    "dosages": (
        Case({"a.raw": raw(["m1_C", "m2_T", "m3_G"]).replace(b" 1 0 NA", b" 0.5 0 NA")}),
        "line 2 .* '0.5' in column 7",
    ),
    "half a ped": (Case({"a.ped": b"1 a 0 0 1 -9 A\n"}), "line 1 .* 7 columns; expected 6, and two for each locus"),
    "another map": (Case(OTHERS["ped"].files | {"a.map": b"1 m1 0 10\n"}), "names 1 loci; expected the 3"),
    "a .fam with a heading": (
        Case(
            {
                "a.bed": b"\x6c\x1b\1\0",
                "a.bim": b"1 m1 0 10 A C\n",
                "a.fam": b"FID IID PAT MAT SEX PHENO\n1 a 0 0 1 1\n",
            }
        ),
        "line 1 .*a.fam has 'IID' as individual, column 2; expected family, individual",
    ),
    "both copies in a column": (
        Case({"a.ped": b"1 a 0 0 1 -9 AC GG\n1 b 0 0 2 -9 AA 00\n"}),
        "line 1 .* each column seems to hold both copies",
    ),
    "no parents": (Case({"a.ped": b"1 a 1 -9 1 1 A C\n1 b 2 -9 1 2 A A\n"}), "'-9' as mother"),
    "no sex or phenotype": (Case({"a.ped": b"1 a 0 0 A C G G\n"}), "line 1 .* has 'A' as sex, column 5"),
    "commas": (Case({"a.csv": PLAIN.replace(b" ", b",")}), "line 1 .* has columns set apart by ','"),
    "groups that are not said": (
        Case({"a.str": text("ID Sampling_site m1 m2 m3", *rows(before=POPULATIONS))}),
        "line 1 .* has 'Sampling_site' as the name of a column",
    ),
    "another program": (Case({"a.tped": b"1 m1 0 10 A C\n"}), "transposed PLINK; convert it"),
    "a file beside": (Case({"a.fam": b"1 a 0 0 1 -9\n"}), "goes with another file .* name the .bed"),
    "half a GENEPOP": (
        Case({"a.gen": OTHERS["GENEPOP"].files["a.gen"].replace(b" 0000", b"")}),
        "line 6 .* has 2 genotypes; expected 3",
    ),
    "digits": (
        Case({"a.gen": OTHERS["GENEPOP"].files["a.gen"].replace(b"0102", b"010")}),
        "line 6 .* two or three digits",
    ),
    "UTF-16": (Case({"a.str": PLAIN.decode().encode("utf-16")}), "line 1 .* UTF-16; convert it"),
    "cut off": (Case({"a.str.gz": STRUCTURE["gzip"].files["a.str.gz"][:-9]}), "cut off or damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_doubts_are_refused_with_the_place(tmp_path: Path, name: str) -> None:
    case, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        read_genotypes(written(tmp_path, case), **case.options)


def test_recessive_alleles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.str").write_bytes(text("m1 m2 m3", "1 -9 -9", *rows()))
    found = read_structure(tmp_path / "a.str", recessive_alleles=True, marker_names=True)
    with pytest.raises(ValueError, match="locus m1 has the recessive allele 1, as 1 loci have one"):
        genotypes(found)


MAINPARAMS_REFUSED = {
    "value": (b"#define NUMLOCI ten\n", "line 1 .* has 'ten' as NUMLOCI; expected an integer"),
    "switch": (b"\n#define LABEL 2\n", "line 2 .* has '2' as LABEL; expected 0 or 1"),
    "another file": (b"m1 m2\na 1 2\n", "has no line such as '#define NUMLOCI 10'"),
}


@pytest.mark.parametrize("name", MAINPARAMS_REFUSED)
def test_wrong_mainparams_are_refused(tmp_path: Path, name: str) -> None:
    content, words = MAINPARAMS_REFUSED[name]
    (tmp_path / "mainparams").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        structure_options(tmp_path / "mainparams")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


def cut_column(content: bytes, draw: Any) -> bytes:
    lines = content.split(b"\n")
    place = draw(st.sampled_from([n for n, line in enumerate(lines) if line.strip() and not line.startswith(b"#")]))
    cells = lines[place].split()
    del cells[draw(st.integers(0, len(cells) - 1))]
    lines[place] = (b"\t" if b"\t" in lines[place] else b" ").join(cells)
    return b"\n".join(lines)


def more_column(content: bytes, draw: Any) -> bytes:
    lines = content.split(b"\n")
    place = draw(st.sampled_from([n for n, line in enumerate(lines) if line.strip() and not line.startswith(b"#")]))
    cells = lines[place].split()
    cells.insert(draw(st.integers(1, len(cells))), cells[-1])
    lines[place] = (b"\t" if b"\t" in lines[place] else b" ").join(cells)
    return b"\n".join(lines)


def cut_end(content: bytes, draw: Any) -> bytes:
    """In the middle of a line: that whole lines are missing, nothing tells in most formats."""
    places = [n for n in range(1, len(content) - 1) if content[n - 1 : n + 1].strip() == content[n - 1 : n + 1]]
    return content[: draw(st.sampled_from(places))]


def same_line_ends(content: bytes, draw: Any) -> bytes:
    return content.replace(b"\n", b"\r\n")


def byte_order_mark(content: bytes, draw: Any) -> bytes:
    return b"\xef\xbb\xbf" + content


def zero_byte(content: bytes, draw: Any) -> bytes:
    place = draw(st.integers(0, len(content) - 1))
    return content[:place] + b"\0" + content[place + 1 :]


def wrong_encoding(content: bytes, draw: Any) -> bytes:
    place = draw(st.integers(0, len(content) - 1))
    return content[:place] + b"\xe9" + content[place:]


MUTATIONS = {each.__name__: each for each in (
    cut_column, more_column, cut_end, same_line_ends, byte_order_mark, zero_byte, wrong_encoding)}  # fmt: skip
TEXTS = [name for name, case in CASES.items() if next(iter(case.files.values())).isascii() and "zip" not in name]
TEXTS = [name for name in TEXTS if name not in ("STRUCTURE, xz", "STRUCTURE, old Mac lines")]


@pytest.mark.parametrize("name", TEXTS)
def test_line_ends_and_byte_order_marks_change_nothing(tmp_path: Path, name: str) -> None:
    """But that htslib takes no VCF with such a mark, and it is refused."""
    case = CASES[name]
    first = next(iter(case.files))
    for mutation in (same_line_ends, byte_order_mark):
        path = written(tmp_path, case._replace(files=case.files | {first: mutation(case.files[first], None)}))
        if mutation is byte_order_mark and "VCF" in name:
            with pytest.raises(ValueError, match=r"line 1 of .* byte order mark"):
                read_genotypes(path, **case.options)
        else:
            assert as_text(read_genotypes(path, **case.options)) == EXPECTED


@settings(deadline=None, derandomize=True, max_examples=60)
@pytest.mark.parametrize("mutation", MUTATIONS)
@given(data=st.data())
def test_a_changed_file_is_refused_or_the_same(folder: Path, mutation: str, data: Any) -> None:
    """Never other genotypes; what is cut may be labels alone."""
    case = CASES[data.draw(st.sampled_from(TEXTS))]
    name = next(iter(case.files))
    changed = case._replace(files=case.files | {name: MUTATIONS[mutation](case.files[name], data.draw)})
    path = written(folder, changed)
    try:
        found = read_genotypes(path, **case.options)
    except (ValueError, OSError) as error:
        found, said = None, str(error)
    finally:
        for each in case.files:
            (folder / each).unlink()
    if found is None:
        assert re.fullmatch(rf".*{re.escape(Path(name).stem.split('.')[0])}.*", said), said
        return
    alike = [given for given, wanted in zip(as_text(found), EXPECTED, strict=False) if given == wanted]
    assert len(alike) == len(found["y"]), (name, mutation)
