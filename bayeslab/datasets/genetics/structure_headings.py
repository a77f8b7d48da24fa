"""The lines above the individuals in the text files of the program STRUCTURE, and the columns before alleles."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayeslab.datasets.genetics.form import counted, refuse_repeated

Line = tuple[int, list[str]]
"""The number of a line in its file, from 1, and its columns."""

INTEGER_PATTERN = re.compile(r"[+-]?[0-9]{1,9}")
"""An integer that fits into 32 bits."""

LEADING_NAMES = frozenset(
    (
        *("pop", "pops", "popid", "popdata", "popflag", "popinfo", "popname", "population", "populations", "flag"),
        *("populationid", "subpop", "subpopulation", "group", "groups", "grp", "cluster", "deme", "family", "fid"),
        *("loc", "locdata", "location", "locality", "site", "region", "area", "country", "origin", "phenotype"),
        *("pheno", "trait", "species", "taxon", "breed", "strain", "cohort", "year", "sex", "gender", "age"),
        *("samplingsite", "samplingpop", "samplinglocation", "samplelocation", "collection", "colony", "stock"),
        *("id", "ind", "indiv", "individual", "individuals", "sample", "sampleid", "label", "name", "iid"),
    )
)
"""What the columns before alleles are called where a line names them: letters alone, in small ones."""
MAX_LEADING_NAMES = 8
"""How many of the first columns are looked at for such names."""


class Layout(NamedTuple):
    """The columns before the alleles, how many lines an individual has, and how many columns a locus."""

    leading: tuple[str, ...]
    lines: int
    copies: int

    def width(self, num_loci: int) -> int:
        return len(self.leading) + num_loci * self.copies


def refuse_other_separators(path: Path, head: list[Line]) -> None:
    """Raise ValueError where commas or semicolons set columns apart: each line would be one column."""
    for number, columns in head:
        separator = next((sign for sign in ",;" if sign in columns[0]), None)
        if len(columns) == 1 and separator is not None:
            raise ValueError(
                f"line {number} of {path} has columns set apart by {separator!r}; expected spaces or tabs."
            )


def names_markers(path: Path, head: list[Line], above: int, layout: Layout, phase_rows: bool) -> bool:
    """Whether the first line names the loci: it has fewer columns than an individual, and not only numbers."""
    if phase_rows:
        raise ValueError(f"{path} has phase_rows, so say with marker_names whether its first line names the loci.")
    if len(head) < above + 2:
        return False
    number, first = head[0]
    row = head[above + 1][1]
    if above == 0 and row[0] == "-1" and len(row) == len(first):
        raise ValueError(
            f"line {head[1][0]} of {path} seems to hold distances of loci, as plink --recode structure writes them: "
            "pass map_distances=True, one_row=True, populations=True and missing=0."
        )
    alike = len(head[above][1]) == len(row)
    if alike and layout.width(1) > 1:
        start = len(layout.leading)
        texts = [bool(INTEGER_PATTERN.fullmatch(text)) for text in first[start:]]
        numbers = all(INTEGER_PATTERN.fullmatch(text) for text in row[start:])
        return above == 0 and layout.copies == 1 and start > 0 and numbers and bool(texts) and not any(texts)
    beyond = first[len(layout.leading) :] or first
    if any(not INTEGER_PATTERN.fullmatch(name) for name in beyond):
        return True
    raise ValueError(
        f"line {number} of {path} may name the loci or may be of an individual; pass marker_names=True or "
        "marker_names=False."
    )


def without_leading_names(path: Path, head: list[Line], above: int, layout: Layout, num_loci: int | None) -> Line:
    """The line that names the loci, without names of the columns before them.

    Raises ValueError where it names a column as that of populations, or another that precedes alleles, and the options
    take it for a locus: it would be read as one.
    """
    number, names = head[0]
    width, before = len(names), len(layout.leading)
    row = head[above + 1][1] if len(head) > above + 1 else []
    expected = (len(row) - before) // layout.copies if num_loci is None else num_loci
    if before and width == expected + before:
        names = names[before:]
    for place, name in enumerate(names):
        if re.sub(r"[\W_]", "", name.lower()) in LEADING_NAMES and place < MAX_LEADING_NAMES:
            raise ValueError(
                f"line {number} of {path} has {name!r} as the name of a column that the options take for a locus; say "
                "what precedes the alleles with labels, populations, population_flags, locations, phenotypes or "
                "extra_columns, or rename that locus."
            )
    return number, names


def number_of_loci(path: Path, head: list[Line], above: int, layout: Layout, named: bool) -> int:
    """The number of named loci; raises ValueError without names, as nothing tells their columns from others."""
    if named:
        return len(head[0][1])
    number, columns = head[min(above, len(head) - 1)]
    size, remainder = divmod(len(columns) - len(layout.leading), layout.copies)
    number_given = "num_loci" if remainder or size < 1 else f"num_loci={size}"
    raise ValueError(
        f"{path} has no line with a name for each locus and nothing else, so nothing tells its alleles from other "
        f"columns: pass {number_given} if {len(layout.leading)} of the {counted(len(columns), 'column')} of line "
        f"{number} precede the alleles, or say which do."
    )


def locus_coords(path: Path, lines: dict[str, Line], num_loci: int) -> dict[str, Sequence[Any]]:
    """The coordinates of loci, from the lines above the individuals."""
    for number, columns in lines.values():
        if len(columns) != num_loci:
            width = counted(len(columns), "column")
            raise ValueError(f"line {number} of {path} has {width}; expected {num_loci}, one for each locus.")
    coords: dict[str, Sequence[Any]] = {"locus": [str(locus + 1) for locus in range(num_loci)]}
    coords |= {name: columns for name, (_, columns) in lines.items()}
    coords["locus"] = [str(place + 1) if name == "." else name for place, name in enumerate(coords["locus"])]
    refuse_repeated(coords["locus"], f"{path} has locus", lambda locus: f"column {locus + 1}")
    if "map_distance" in lines:
        number, columns = lines["map_distance"]
        try:
            coords["map_distance"] = list(map(float, columns))
        except ValueError as error:
            raise ValueError(f"line {number} of {path} has distances that are no numbers ({error}).") from None
    return coords
