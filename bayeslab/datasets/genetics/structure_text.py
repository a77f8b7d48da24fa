"""Genotypes from the text files of the program STRUCTURE."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import batched, chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer, as_path, require_flags
from bayeslab.datasets.genetics.form import (
    MAX_ALLELES_IN_ONE_BYTE,
    columns_of_lines,
    counted,
    existing_file,
    genotype_dataset,
    refuse_cut_end,
    refuse_repeated,
)
from bayeslab.datasets.genetics.structure_headings import (
    INTEGER_PATTERN,
    Layout,
    Line,
    locus_coords,
    names_markers,
    number_of_loci,
    refuse_other_separators,
    without_leading_names,
)
from bayeslab.programs.data import MISSING_COPY

MIN_ALLELE_LENGTH = 10
"""The smallest allele that is a length in base pairs: where all others are at least this, 0 is no allele."""
MIN_INDIVIDUALS_OF_BLOCKS = 6
"""The fewest individuals of whom it says something by itself that those with the same number stand together."""
DEFAULT_MISSING = -9
"""The integer for a copy that was not read, where nothing else is said."""
MAX_COPIES_OR_COLUMNS = 2**20
"""The largest number of copies or of columns that an option may ask for."""


def read_structure(
    path: str | PathLike[str],
    ploidy: int = 2,
    *,
    one_row: bool = False,
    missing: int | None = None,
    num_loci: int | None = None,
    num_individuals: int | None = None,
    marker_names: bool | None = None,
    recessive_alleles: bool = False,
    map_distances: bool = False,
    phase_rows: bool = False,
    labels: bool = True,
    populations: bool = False,
    population_flags: bool = False,
    locations: bool = False,
    phenotypes: bool = False,
    extra_columns: int = 0,
) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from the text format of STRUCTURE (J. Pritchard et al. 2010, manual 2.3).

    Alleles are integers; at each locus y counts them from 0 in ascending order, and `alleles` has them as text.

    ploidy: how many lines an individual has, one below the other; or, with one_row (ONEROWPERIND), how many columns a
        locus has, side by side.
    missing: the integer for a copy that was not read (MISSING); None for -9, where no 0 stands beside alleles from 2
        on, as in files of PLINK and Stacks, in which it is such a copy. Where -9 is there as well it still has to be
        said.
    num_loci, num_individuals: NUMLOCI and NUMINDS, which the file is held against; the first can be left out where the
        loci are named.
    marker_names: whether the first line names the loci (MARKERNAMES), and perhaps the columns before them; None finds
        out where that is certain. Without names, or with "." for one, loci are numbered from 1.
    recessive_alleles, map_distances: whether lines of those come next (RECESSIVEALLELES, MAPDISTANCES); they become
        coordinates recessive_allele and map_distance, and y has the alleles as they are in the file.
    phase_rows: whether a line of phases follows each individual (PHASEINFO); it is passed over.
    labels, populations, population_flags, locations, phenotypes, extra_columns: which columns precede the alleles, in
        this order (LABEL, POPDATA, POPFLAG, LOCDATA, PHENOTYPE, EXTRACOLS); extra ones are passed over. Without labels
        individuals are numbered from 1. Labels of populations and locations may be text.
    Lines that begin with # above all others are comments; compressed files are read as what they hold.
    Raises FileNotFoundError, and ValueError that names the line where the file is not as these options say, or where
    they leave open what it says: a wrong reading would look like genotypes; TypeError for an option of another type.
    """
    ploidy, extra_columns = (
        as_integer("ploidy", ploidy, maximum=MAX_COPIES_OR_COLUMNS),
        as_integer("extra_columns", extra_columns, maximum=MAX_COPIES_OR_COLUMNS),
    )
    num_loci = None if num_loci is None else as_integer("num_loci", num_loci, maximum=2**31)
    if ploidy < 1 or extra_columns < 0 or (num_loci is not None and num_loci < 1):
        raise ValueError(
            "ploidy and num_loci are at least 1, and extra_columns at least 0, but they are "
            f"{ploidy}, {num_loci} and {extra_columns}."
        )
    if missing is not None:
        missing = as_integer("missing", missing)
    if num_individuals is not None:
        num_individuals = as_integer("num_individuals", num_individuals, 1)
    require_flags(
        one_row=one_row, recessive_alleles=recessive_alleles, map_distances=map_distances, phase_rows=phase_rows,
        labels=labels, populations=populations, population_flags=population_flags, locations=locations,
        phenotypes=phenotypes, marker_names=marker_names is not None and marker_names,
    )  # fmt: skip
    path = existing_file(as_path(path))
    has_column = {
        "individual": labels,
        "population": populations,
        "population_flag": population_flags,
        "location": locations,
        "phenotype": phenotypes,
    }
    leading = (*(name for name in has_column if has_column[name]), *("extra",) * extra_columns)
    layout = Layout(leading, 1 if one_row else ploidy, ploidy if one_row else 1)

    lines = columns_of_lines(path)
    num_extra_headings = recessive_alleles + map_distances
    head = list(islice(lines, num_extra_headings + 2))
    if not head:
        raise ValueError(f"{path} is empty.")
    refuse_other_separators(path, head)
    if marker_names is None:
        marker_names = names_markers(path, head, num_extra_headings, layout, phase_rows)
    if marker_names:
        head[0] = without_leading_names(path, head, num_extra_headings, layout, num_loci)
    if num_loci is None:
        num_loci = number_of_loci(path, head, num_extra_headings, layout, marker_names)
    headings = {"locus": marker_names, "recessive_allele": recessive_alleles, "map_distance": map_distances}
    kinds = [kind for kind in headings if headings[kind]]
    loci = locus_coords(path, dict(zip(kinds, head, strict=False)), num_loci)

    body = chain(head[len(kinds) :], lines)
    code = DEFAULT_MISSING if missing is None else missing
    rows = list(_read_individuals(path, body, layout, num_loci, code, phase_rows))
    if not rows:
        raise ValueError(f"{path} has no individual below its {counted(len(kinds), 'heading')}.")
    if num_individuals not in (None, len(rows)):
        raise ValueError(f"{path} has {counted(len(rows), 'individual')}; expected {num_individuals}, num_individuals.")
    firsts, leaders, alleles = zip(*rows, strict=True)
    individuals = _individual_coords(path, layout.leading, leaders, firsts)
    if missing is None:
        _refuse_doubtful_zeros(path, alleles, firsts, loci["locus"])
    raw = np.stack(alleles)
    if not phase_rows:
        texts = [str(allele) for allele in raw[:, -1].ravel() if allele != code]
        if raw[-1, -1, -1] != code:
            refuse_cut_end(path, firsts[-1] + layout.lines - 1, texts, f"at locus {loci['locus'][-1]!r} the allele")
    if marker_names:
        _tell_like_populations(raw, loci["locus"])
    y, names = _recode_alleles(path, raw, code, loci["locus"])
    coords = {name: ("individual", values) for name, values in individuals.items()}
    coords |= {name: ("locus", values) for name, values in loci.items()}
    return genotype_dataset(path, y, names, coords)


def _read_individuals(
    path: Path, body: Iterable[Line], layout: Layout, num_loci: int, missing: int, phase_rows: bool
) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Each individual: its first line, its columns before the alleles, and its alleles (locus, copy) as in the file."""
    size, width = len(layout.leading), layout.width(num_loci)
    kept = sum(name != "extra" for name in layout.leading)
    for lines in batched(body, layout.lines + phase_rows):
        first, columns = lines[0]
        rows = lines[: layout.lines]
        for number, row in rows:
            if len(row) != width:
                raise ValueError(_wrong_width(path, number, len(row), layout, num_loci))
            if row[:kept] != columns[:kept]:
                raise ValueError(
                    f"line {number} of {path} begins with {' '.join(row[:kept])!r}, line {first} with "
                    f"{' '.join(columns[:kept])!r}; expected the same in the {layout.lines} lines of an individual."
                )
        if len(lines) < layout.lines + phase_rows:
            expected = counted(layout.lines + phase_rows, "line")
            raise ValueError(f"{path} ends after {len(lines)} of the {expected} of the individual of line {first}.")
        if phase_rows:
            _check_phases(path, lines[-1], num_loci)
        alleles = np.array([_alleles(path, number, row, size, missing) for number, row in rows], np.int32)
        yield first, columns[:kept], alleles.reshape(-1, num_loci, layout.copies).swapaxes(0, 1).reshape(num_loci, -1)


def _wrong_width(path: Path, number: int, num_columns: int, layout: Layout, num_loci: int) -> str:
    """The sentence for a line with another number of columns, with the option that it fits if there is one."""
    before, expected = len(layout.leading), layout.width(num_loci)
    ploidy = layout.lines * layout.copies
    if num_columns == before + num_loci * (ploidy if layout.copies == 1 else 1):
        way_out = f"one_row={layout.copies == 1} fits"
    elif num_columns > expected:
        way_out = "populations, population_flags, locations, phenotypes and extra_columns say what precedes the alleles"
    else:
        way_out = "the line is cut off, or labels=False or another ploidy fits"
    return (
        f"line {number} of {path} has {counted(num_columns, 'column')}; expected {expected}, "
        f"{before} before the alleles and {layout.copies} for each of the {num_loci} loci; {way_out}."
    )


def _alleles(path: Path, number: int, row: list[str], start: int, missing: int) -> np.ndarray:
    """The alleles of a line, from a column on; raises ValueError that names the column of one that is none."""
    try:
        alleles = np.array(list(map(int, row[start:])), np.int32)
    except (ValueError, OverflowError):
        alleles = None
    wrong = alleles is None or "_" in "".join(row[start:]) or (np.abs(alleles) >= 10**9).any()
    if alleles is not None and not wrong and not ((alleles < 0) & (alleles != missing)).any():
        return alleles
    for column, text in enumerate(row[start:], start + 1):
        where = f"line {number} of {path} has {text!r} in column {column}"
        if not INTEGER_PATTERN.fullmatch(text):
            raise ValueError(f"{where}; expected an integer of at most 9 digits as allele.")
        if int(text) < 0 and int(text) != missing:
            raise ValueError(f"{where}, and no allele is negative; pass missing={text} if it was not read.")
    raise AssertionError("one of the columns is wrong.")


def _check_phases(path: Path, line: Line, num_loci: int) -> None:
    """Raise ValueError where a line has no phases, which are one number from 0 to 1 for each locus."""
    number, columns = line
    try:
        right = len(columns) == num_loci and all(0 <= float(phase) <= 1 for phase in columns)
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"line {number} of {path} has no phases; expected {num_loci} numbers from 0 to 1.")


def _individual_coords(
    path: Path, leading: Sequence[str], leaders: Sequence[Sequence[str]], firsts: Sequence[int]
) -> dict[str, Sequence[Any]]:
    """The coordinates of individuals, from the columns before their alleles."""
    columns: dict[str, Sequence[Any]] = {"individual": [str(index + 1) for index in range(len(leaders))]}
    columns |= dict(zip(leading, zip(*leaders, strict=True), strict=False))
    for name in columns.keys() & {"population_flag", "phenotype"}:
        for text, first in zip(columns[name], firsts, strict=True):
            if not INTEGER_PATTERN.fullmatch(text) or (name == "population_flag" and text not in ("0", "1")):
                expected = "0 or 1" if name == "population_flag" else "an integer"
                raise ValueError(f"line {first} of {path} has {text!r} as {name}; expected {expected}.")
    for name in columns.keys() & {"population_flag", "phenotype"}:
        columns[name] = list(map(int, columns[name]))
    refuse_repeated(columns["individual"], f"{path} has individual", lambda index: f"line {firsts[index]}")
    return columns


def _refuse_doubtful_zeros(
    path: Path, alleles: Sequence[np.ndarray], firsts: Sequence[int], loci: Sequence[str]
) -> None:
    """Raise ValueError where 0 stands beside alleles from 2 on: it may be an allele, or missing, even where -9 is."""
    with_zero = next((place for place, one in enumerate(alleles) if (one == 0).any()), None)
    if with_zero is None or (largest := max(int(one.max()) for one in alleles)) < 2:
        return
    locus = int((alleles[with_zero] == 0).any(1).argmax())
    where = f"the individual of line {firsts[with_zero]} of {path} has 0 at locus {loci[locus]!r}, beside alleles up to"
    if any((one == DEFAULT_MISSING).any() for one in alleles):
        raise ValueError(
            f"{where} {largest}, while other copies are {DEFAULT_MISSING}: pass missing={DEFAULT_MISSING} if 0 is an "
            f"allele, or write {DEFAULT_MISSING} in its place if it stands for a copy that was not read."
        )
    raise ValueError(
        f"{where} {largest}, and nothing is {DEFAULT_MISSING}: pass missing=0 if 0 stands for a copy that was not "
        f"read, as in files of PLINK and Stacks, or missing={DEFAULT_MISSING} if it is an allele."
    )


def _tell_like_populations(raw: np.ndarray, loci: Sequence[str]) -> None:
    """Warn where the first locus looks like a column of populations that the options take for alleles.

    It is so where all copies of every individual are alike there, and individuals with the same number stand together,
    while other loci have individuals with two alleles. Few individuals stand together by chance: then no other locus
    may look so, and some have to have the same number.
    """
    others = raw[:, 1:]
    several = (others != others[:, :, :1]).any()
    if len(raw) >= MIN_INDIVIDUALS_OF_BLOCKS:
        is_likely = _stands_in_blocks(raw[:, :1])[0]
    else:
        repeats = len(np.unique(raw[:, 0, 0])) < len(raw)
        is_likely = repeats and _stands_in_blocks(raw).tolist() == [True] + [False] * (len(loci) - 1)
    if is_likely and several:
        warnings.warn(
            f"locus {loci[0]!r} has the same number in all copies of every individual, and individuals with the same "
            "number stand together, as in a column of populations: if it is one, pass populations=True.",
            stacklevel=3,
        )


def _stands_in_blocks(raw: np.ndarray) -> np.ndarray:
    """Whether at each locus copies of an individual are alike, and individuals with one of several numbers together."""
    numbers = raw[:, :, 0]
    changes = (np.diff(numbers, axis=0) != 0).sum(0)
    least = (np.diff(np.sort(numbers, 0), axis=0) != 0).sum(0)
    return (raw == raw[:, :, :1]).all((0, 2)) & (changes >= 1) & (changes == least)


def _recode_alleles(
    path: Path, raw: np.ndarray, missing: int, loci: Sequence[str]
) -> tuple[np.ndarray, list[list[str]]]:
    """The alleles counted from 0 at each locus, (individual, locus, copy), and their names by locus."""
    present = [np.unique(raw[:, locus]) for locus in range(len(loci))]
    present = [values[values != missing] for values in present]
    y = np.empty(raw.shape, np.int16 if max(map(len, present)) > MAX_ALLELES_IN_ONE_BYTE else np.int8)
    for locus, values in enumerate(present):
        if len(values) > 1 and values[0] == 0 and values[1] >= MIN_ALLELE_LENGTH:
            raise ValueError(
                f"locus {loci[locus]!r} of {path} has the allele 0 beside {values[1]}; pass missing=0 if it was not "
                "read, else number its alleles from 1."
            )
        alleles = raw[:, locus]
        y[:, locus] = np.where(alleles == missing, MISSING_COPY, np.searchsorted(values, alleles))
    return y, [list(map(str, values.tolist())) for values in present]
