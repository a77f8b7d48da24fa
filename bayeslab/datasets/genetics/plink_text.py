"""Genotypes from the text files of PLINK: .ped with .map beside it, and .raw of --recode A."""

import re
from collections.abc import Sequence
from itertools import compress
from os import PathLike
from pathlib import Path

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_path, short_repr
from bayeslab.datasets.files.text import COMPRESSED_SUFFIXES
from bayeslab.datasets.genetics.form import (
    MAX_ALLELES_IN_ONE_BYTE,
    columns_of_lines,
    counted,
    existing_file,
    genotype_dataset,
    refuse_cut_end,
    refuse_repeated,
)
from bayeslab.programs.data import MISSING_COPY

NUM_LEADING = 6
"""The number of columns before genotypes: family, individual, father, mother, sex, phenotype."""
RAW_HEADER = ("FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE")
"""What the first line of a .raw begins with."""
MISSING_ELSEWHERE = re.compile(r"0+|-[0-9]+|[?.]+|n|na|n/a|nan|null|none|missing|unknown", re.IGNORECASE)
"""What stands for a copy that was not read in files of other programs, and for no allele in any."""
COMPOUND_GENOTYPE = re.compile(r"[ACGTNacgtn0-]{2}|[^/]+/[^/]+")
"""Both copies of a genotype in one column."""
COUNTED_ALLELE = re.compile(r"(.+)_([^_()/]+)(?:\(/([^()]+)\))?")
"""The name of a column of a .raw: locus, counted allele, and perhaps the other one."""


def read_ped(path: str | PathLike[str], *, missing: str = "0") -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from PLINK's .ped; the .map of the same name gives loci their names.

    missing: the text of a copy that was not read, PLINK's --missing-genotype.
    Alleles are any other text; y counts those of a locus in the order of their texts.
    Individuals and populations are named as in `read_plink`. Without a .map loci are numbered from 1. Loci whose
    position in the .map is negative are left out, as in PLINK; attrs["removed_loci_of_negative_position"] counts them.
    Raises FileNotFoundError, and ValueError that names the line for another number of columns, for odd numbers of
    alleles, for names that cannot be told apart, and for alleles such as N that elsewhere are copies that were not
    read.
    """
    if not isinstance(missing, str) or len(missing.split()) != 1:
        raise TypeError(f"missing is {short_repr(missing)}; expected a word, such as '0' or 'N'.")
    path = existing_file(as_path(path))
    lines = list(columns_of_lines(path))
    if not lines:
        raise ValueError(f"{path} is empty.")
    first, columns = lines[0]
    width = len(columns)
    if width < NUM_LEADING + 2 or (width - NUM_LEADING) % 2:
        raise ValueError(
            f"line {first} of {path} has {counted(width, 'column')}; expected {NUM_LEADING}, and two for each locus."
        )
    _require_width(path, lines, width)
    num_loci = (width - NUM_LEADING) // 2
    texts = np.array([row[NUM_LEADING:] for _, row in lines], object).reshape(len(lines), num_loci, 2)
    alleles = [sorted(set(texts[:, locus].ravel()) - {missing}) for locus in range(num_loci)]
    _refuse_compound_genotypes(path, first, {text for known in alleles for text in known})
    _refuse_other_missing(path, lines, alleles, missing)
    _refuse_two_cases(path, lines, alleles)
    read = [text for text in texts[:, -1].ravel() if text != missing]
    if texts[-1, -1, -1] != missing:
        refuse_cut_end(path, lines[-1][0], read, f"at locus {num_loci} the allele")
    largest = max(map(len, alleles), default=0)
    y = np.full(texts.shape, MISSING_COPY, np.int16 if largest > MAX_ALLELES_IN_ONE_BYTE else np.int8)
    for locus, known in enumerate(alleles):
        for code, text in enumerate(known):
            y[:, locus][texts[:, locus] == text] = code
    y = _missing_last(y)
    coords = individual_coords(path, [row for _, row in lines], [number for number, _ in lines])
    coords |= _loci_of_map(map_beside(path), path, num_loci)
    kept = np.asarray(coords["position"][1]) >= 0 if "position" in coords else np.ones(num_loci, bool)
    if not kept.any():
        raise ValueError(f"{map_beside(path)} leaves out all loci, by negative positions.")
    coords |= {name: ("locus", list(compress(coords[name][1], kept))) for name in coords if coords[name][0] == "locus"}
    counts = {"loci_read": num_loci, "removed_loci_of_negative_position": num_loci - int(kept.sum())}
    return genotype_dataset(path, y[:, kept], list(compress(alleles, kept)), coords, counts)


def read_raw(path: str | PathLike[str]) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from PLINK's .raw, as --recode A writes it: counts of one allele.

    y is 1 for the counted allele and 0 for the other, whose name the file may have (--recode A include-alt). Columns of
    --recode AD that end in _HET are passed over.
    Raises FileNotFoundError, and ValueError that names line and column for counts other than 0, 1, 2 and NA, as
    dosages are.
    """
    path = existing_file(as_path(path))
    lines = list(columns_of_lines(path))
    if not lines or tuple(lines[0][1][:NUM_LEADING]) != RAW_HEADER:
        raise ValueError(f"{path} does not begin with {' '.join(RAW_HEADER)}, as every .raw of PLINK does.")
    header = lines[0][1]
    if len(lines) == 1:
        raise ValueError(f"{path} has no individual below its 1 heading.")
    _require_width(path, lines, len(header))
    kept = [place for place in range(NUM_LEADING, len(header)) if not header[place].endswith("_HET")]
    matches = [COUNTED_ALLELE.fullmatch(header[place]) for place in kept]
    names, alleles = [], []
    for place, match in zip(kept, matches, strict=True):
        if match is None:
            raise ValueError(
                f"line {lines[0][0]} of {path} has {header[place]!r} as column {place + 1}; expected the name of a "
                "locus and its counted allele, such as rs1_A."
            )
        names.append(match[1])
        alleles.append((match[3] or f"not {match[2]}", match[2]))
    codes = {"0": (0, 0), "1": (0, 1), "2": (1, 1), "NA": (MISSING_COPY, MISSING_COPY)}
    y = np.empty((len(lines) - 1, len(kept), 2), np.int8)
    for one, (number, row) in enumerate(lines[1:]):
        for locus, place in enumerate(kept):
            if row[place] not in codes:
                raise ValueError(
                    f"line {number} of {path} has {row[place]!r} in column {place + 1}; expected 0, 1, 2 or NA copies "
                    f"of {alleles[locus][1]}."
                )
            y[one, locus] = codes[row[place]]
    refuse_repeated(names, f"{path} has locus", lambda locus: f"column {kept[locus] + 1}")
    coords = individual_coords(path, [row for _, row in lines[1:]], [number for number, _ in lines[1:]])
    return genotype_dataset(path, y, alleles, {**coords, "locus": ("locus", names)})


def individual_coords(
    path: Path, rows: Sequence[Sequence[str]], lines: Sequence[int]
) -> dict[str, tuple[str, list[str]]]:
    """The names of individuals, and of populations where families are some, from PLINK's first two columns."""
    _refuse_other_columns(path, rows, lines)
    individuals = [row[1] for row in rows]
    if len(set(individuals)) < len(individuals):
        individuals = [f"{row[0]}:{row[1]}" for row in rows]
    refuse_repeated(individuals, f"{path} has individual", lambda one: f"line {lines[one]}")
    coords = {"individual": ("individual", individuals)}
    populations = ["" if row[0] in ("0", row[1]) else row[0] for row in rows]
    if any(populations):
        coords["population"] = ("individual", populations)
    return coords


def _require_width(path: Path, lines: Sequence[tuple[int, list[str]]], width: int) -> None:
    """Raise ValueError for a line with another number of columns than the first."""
    for number, row in lines:
        if len(row) != width:
            raise ValueError(
                f"line {number} of {path} has {counted(len(row), 'column')}; expected {width} as in line {lines[0][0]}."
            )


def _refuse_compound_genotypes(path: Path, first: int, alleles: set[str]) -> None:
    """Raise ValueError where each column has both copies of a locus: two loci would be read as one."""
    if alleles and all(map(COMPOUND_GENOTYPE.fullmatch, alleles)):
        raise ValueError(
            f"line {first} of {path} has {min(alleles)!r} and the like as alleles, so that each column seems to hold "
            "both copies of a genotype; expected two columns for each locus, as plink --recode writes them."
        )


def _refuse_other_columns(path: Path, rows: Sequence[Sequence[str]], lines: Sequence[int]) -> None:
    """Raise ValueError where the leading columns are no family, individual, father, mother, sex and phenotype.

    Some of them may be missing (PLINK's --no-fid, --no-parents, ...), or a line may name them: it would be an
    individual, and in a .fam give all others the genotypes of their neighbours.
    """
    no_individuals = len(rows) > 1 and all(row[1] == "0" for row in rows)
    for number, row in zip(lines, rows, strict=True):
        wrong = {
            "individual": row[1].lower() == "iid" or (row[1] == "0" and no_individuals),
            "father": row[2] == "-9",
            "mother": row[3] == "-9",
            "sex": row[4].lower() in ("a", "c", "g", "t", "sex", "gender"),
        }
        for (what, is_wrong), place in zip(wrong.items(), range(1, NUM_LEADING), strict=False):
            if is_wrong:
                raise ValueError(
                    f"line {number} of {path} has {row[place]!r} as {what}, column {place + 1}; expected family, "
                    "individual, father, mother, sex and phenotype of an individual in the first six columns."
                )


def _refuse_other_missing(
    path: Path, lines: Sequence[tuple[int, list[str]]], alleles: Sequence[Sequence[str]], missing: str
) -> None:
    """Raise ValueError for an allele that is the code of a copy that was not read in other files.

    "-" is that of a deletion too: it is one where the locus has another allele alone.
    """
    for locus, known in enumerate(alleles):
        others = [text for text in known if MISSING_ELSEWHERE.fullmatch(text) or (text == "-" and len(known) > 2)]
        if others:
            column = NUM_LEADING + 2 * locus
            number, row = next(line for line in lines if others[0] in line[1][column : column + 2])
            column += row[column : column + 2].index(others[0]) + 1
            beside = " and ".join(text for text in known if text != others[0]) or "nothing"
            raise ValueError(
                f"line {number} of {path} has {others[0]!r} in column {column}, an allele of locus {locus + 1}, beside "
                f"{beside}; pass missing={others[0]!r} if it stands for a copy that was not read, in place of "
                f"{missing!r}."
            )


def _refuse_two_cases(path: Path, lines: Sequence[tuple[int, list[str]]], alleles: Sequence[Sequence[str]]) -> None:
    """Raise ValueError where a locus has a nucleotide in small and in large letters, which is one allele."""
    for locus, known in enumerate(alleles):
        small = [text for text in known if re.fullmatch("[ACGTacgt]+", text) and {text.upper()} & ({*known} - {text})]
        if small:
            column = NUM_LEADING + 2 * locus
            number = next(number for number, row in lines if small[0] in row[column : column + 2])
            raise ValueError(
                f"line {number} of {path} has {small[0]!r} at locus {locus + 1}, beside {small[0].upper()!r}; expected "
                "one spelling of an allele."
            )


def _missing_last(y: np.ndarray) -> np.ndarray:
    """The copies of every genotype in ascending order of their codes, those that were not read last."""
    ordered = np.sort(np.where(y == MISSING_COPY, np.iinfo(y.dtype).max, y), -1)
    return np.where(ordered == np.iinfo(y.dtype).max, MISSING_COPY, ordered).astype(y.dtype)


def map_beside(path: Path) -> Path:
    """The .map of a .ped, which may be compressed, and either may be in large letters."""
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path
    names = [plain.with_suffix(suffix) for suffix in (".map", ".MAP")]
    names += [Path(f"{name}{suffix}") for name in names for suffix in COMPRESSED_SUFFIXES]
    return next((name for name in names if name.is_file()), names[0])


def _loci_of_map(path: Path, ped: Path, num_loci: int) -> dict[str, tuple[str, list]]:
    """The coordinates of loci from a .map, numbers where there is none."""
    if not path.is_file():
        return {"locus": ("locus", [str(locus + 1) for locus in range(num_loci)])}
    rows = list(columns_of_lines(path))
    for number, row in rows:
        if len(row) not in (3, 4) or not re.fullmatch(r"-?[0-9]{1,18}", row[-1]):
            raise ValueError(
                f"line {number} of {path} has {' '.join(row)[:60]!r}; expected chromosome, name, position."
            )
    _require_width(path, rows, len(rows[0][1]) if rows else 0)  # a row that lacks its name would have another one
    if len(rows) != num_loci:
        raise ValueError(f"{path} names {len(rows)} loci; expected the {num_loci} of {ped}.")
    names = [str(place + 1) if row[1] == "." else row[1] for place, (_, row) in enumerate(rows)]
    refuse_repeated(names, f"{path} has locus", lambda locus: f"line {rows[locus][0]}")
    return {
        "locus": ("locus", names),
        "chromosome": ("locus", [row[0] for _, row in rows]),
        "position": ("locus", [int(row[-1]) for _, row in rows]),
    }
