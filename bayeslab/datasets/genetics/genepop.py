"""Genotypes from files of GENEPOP."""

import re
from os import PathLike
from pathlib import Path

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_path
from bayeslab.datasets.files.text import lines_of, read_text
from bayeslab.datasets.genetics.form import (
    MAX_ALLELES_IN_ONE_BYTE,
    counted,
    existing_file,
    genotype_dataset,
    refuse_cut_end,
    refuse_repeated,
)
from bayeslab.programs.data import MISSING_COPY

POPULATION_LINE = re.compile(r"\s*pop\s*", re.IGNORECASE)
"""A line that begins a population."""


def read_genepop(path: str | PathLike[str]) -> xr.Dataset:
    """Genotypes y (individual, locus, copy) from a file of GENEPOP (M. Raymond and F. Rousset 1995, J Hered 86:248).

    A title, the names of loci, a line each or set apart by commas, and populations, each after a line `pop`: a name, a
    comma, and a genotype of two or three digits a copy for each locus, on one line or several; zeros where a copy was
    not read. Populations are numbered from 1; names of individuals that repeat, as those of places do, get their
    number.
    Raises FileNotFoundError, and ValueError that names the line for another number of genotypes, and for digits that no
    genotype has.
    """
    path = existing_file(as_path(path))
    text, _ = read_text(path)
    numbered = list(enumerate(lines_of(text), 1))
    lines = numbered[:1] + [(number, line) for number, line in numbered[1:] if line.strip()]  # a title may be blank
    starts = [place for place, (_, line) in enumerate(lines) if POPULATION_LINE.fullmatch(line)]
    if not starts or starts[0] < 2:
        raise ValueError(f"{path} is no file of GENEPOP: expected a title, names of loci, and a line 'pop'.")
    loci = [name.strip() for _, line in lines[1 : starts[0]] for name in line.split(",") if name.strip()]
    refuse_repeated(loci, f"{path} has locus", lambda locus: f"place {locus + 1}")
    names: list[str] = []
    populations: list[str] = []
    genotypes: list[list[str]] = []
    where: list[int] = []
    population = 0
    for place in range(starts[0], len(lines)):
        number, line = lines[place]
        if place in starts:
            population += 1
            continue
        name, comma, rest = line.partition(",")
        goes_on = not comma and genotypes and len(genotypes[-1]) < len(loci)
        row = [*genotypes.pop(), *line.split()] if goes_on else rest.split()
        last = place + 1 == len(lines) or place + 1 in starts or "," in lines[place + 1][1]
        if not (comma or goes_on) or len(row) > len(loci) or (last and len(row) < len(loci)):
            width = counted(len(row), "genotype") if comma or goes_on else "no comma after a name"
            raise ValueError(
                f"line {number} of {path} has {width}; expected {len(loci)} genotypes, one for each locus."
            )
        genotypes.append(row)
        if not goes_on:
            names.append(name.strip())
            populations.append(str(population))
            where.append(number)
    if not names:
        raise ValueError(f"{path} has no individual.")
    beside_last = [*genotypes[-1][:-1], *(row[-1] for row in genotypes)]
    refuse_cut_end(path, lines[-1][0], beside_last, "the genotype")
    y, alleles = _alleles(path, genotypes, where)
    repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    individuals = [f"{name}:{one + 1}" if name in repeated else name for one, name in enumerate(names)]
    coords = {
        "individual": ("individual", individuals),
        "locus": ("locus", loci),
        "population": ("individual", populations),
    }
    return genotype_dataset(path, y, alleles, coords)


def _alleles(path: Path, genotypes: list[list[str]], where: list[int]) -> tuple[np.ndarray, list[list[str]]]:
    """The codes (individual, locus, copy) and the names of alleles by locus."""
    widths = [{len(row[locus]) for row in genotypes} for locus in range(len(genotypes[0]))]
    digits = [next((size for size in (3, 2) if own <= {size, 2 * size}), 0) for own in widths]
    for number, row in zip(where, genotypes, strict=True):
        for locus, text in enumerate(row):
            if not (text.isascii() and text.isdigit()) or not digits[locus]:
                raise ValueError(
                    f"line {number} of {path} has {text[:20]!r} as genotype of locus {locus + 1}; expected two or "
                    "three digits a copy, the same at the whole locus."
                )
    ploidy = max(max(own) // size for own, size in zip(widths, digits, strict=True))
    raw = np.zeros((len(genotypes), len(genotypes[0]), ploidy), int)
    for one, row in enumerate(genotypes):
        for locus, text in enumerate(row):
            size = digits[locus]
            for copy in range(len(text) // size):
                raw[one, locus, copy] = int(text[copy * size : (copy + 1) * size])
    known = [np.setdiff1d(np.unique(raw[:, locus]), [0]) for locus in range(raw.shape[1])]
    wide = max(map(len, known)) > MAX_ALLELES_IN_ONE_BYTE
    y = np.full(raw.shape, MISSING_COPY, np.int16 if wide else np.int8)
    for locus, values in enumerate(known):
        there = raw[:, locus] > 0
        y[:, locus][there] = np.searchsorted(values, raw[:, locus][there])
    return y, [[f"{value:0{size}d}" for value in values.tolist()] for values, size in zip(known, digits, strict=True)]
