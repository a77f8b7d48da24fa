"""Individuals whose population is known, as a prior of their ancestry, and the files that say so."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.datasets.arguments import as_integer, as_path, as_positive, short_repr
from bayeslab.datasets.files.text import lines_of, read_text

if TYPE_CHECKING:
    from xarray import Dataset

UNKNOWN_LABELS = ("", "NA")
"""What stands for an origin that is not known in a file .pop of ADMIXTURE, beside all that begins with no letter or
digit."""

CERTAIN = 1e6
"""The strength at which an origin counts as known."""


def ancestry_prior(
    origins: Sequence[Hashable | None],
    num_populations: int | None = None,
    *,
    alpha: float = 1.0,
    strength: float = CERTAIN,
) -> np.ndarray[Any, Any]:
    """The argument alpha (individual, population) of `structure_admixture` where some individuals are of known origin.

    origins: the label of the population of every individual, None, NaN or "" where it is not known. Populations have
        the order in which labels first appear, and come first.
    num_populations: more than there are labels where others are looked for; by default their number.
    alpha: of all others. strength: the prior of a known individual is as if it had been seen to have so many copies
        more, all of its own population. The default leaves other populations a share of about a millionth; a
        strength of ten says that it is likely of its population, and may have ancestors of others, which is what
        STRUCTURE's USEPOPINFO with its MIGRPRIOR says in another form.
    Raises ValueError where nobody's origin is known, and for fewer populations than labels.
    """
    alpha, strength = as_positive("alpha", alpha), as_positive("strength", strength)
    labels = known_populations(origins)
    if not labels:
        raise ValueError(f"no individual has a known origin among {short_repr(list(origins))}; expected labels")
    number = len(labels) if num_populations is None else as_integer("num_populations", num_populations, 1)
    if number < len(labels):
        raise ValueError(f"num_populations is {number}, but {len(labels)} populations are known: {short_repr(labels)}")
    prior = np.full((len(origins), number), alpha)
    for individual, label in enumerate(origins):
        if not _is_unknown(label):
            prior[individual, labels.index(label)] += strength
    return prior


def _is_unknown(label: Any) -> bool:
    """Whether a label says nothing."""
    return label is None or label == "" or label != label


def known_populations(origins: Sequence[Hashable | None]) -> list[Hashable]:
    """The labels of the populations that are known, in the order in which they first appear."""
    return list(dict.fromkeys(label for label in origins if label is not None and not _is_unknown(label)))


def read_origins(path: str | PathLike[str]) -> list[str]:
    """The origin of every individual as a file .pop of ADMIXTURE has it, a line for each.

    A line that is blank, or begins with no letter or digit, is an individual of unknown origin.
    Returns labels in the order of the file, "" where none is known. A label has no blank in it.
    Raises FileNotFoundError, and ValueError, with the line, for a line of several words.
    """
    path = as_path(path)
    text, _ = read_text(path)
    origins = []
    for number, line in enumerate(lines_of(text), 1):
        words = line.split()
        if len(words) > 1:
            raise ValueError(
                f"line {number} of '{path}' is {short_repr(line)}; expected one word, the population of an individual "
                "or - where it is not known, in the order of the genotypes"
            )
        [label] = words or [""]
        origins.append("" if label in UNKNOWN_LABELS or not label[0].isalnum() else label)
    return origins


def origin_files(path: Path) -> list[Path]:
    """Where the origins of individuals are looked for, beside the file of genotypes."""
    return [path.with_suffix(".pop"), Path(f"{path}.pop")]


def with_known_origins(genotypes: Dataset, file: str | PathLike[str]) -> Dataset:
    """Genotypes as they were read, with the coordinate origin (individual,): a population, "" where it is not known.

    file: that of the genotypes. Origins are those of its .pop, if there is one beside it (ADMIXTURE's --supervised);
    else the populations of individuals whose population flag is 1 (STRUCTURE's POPFLAG and USEPOPINFO).
    Raises ValueError where there is neither, where a .pop has another number of lines than there are individuals, and
    where nobody's origin is known.
    """
    path = Path(file)
    beside = origin_files(path)
    individuals = genotypes.sizes["individual"]
    if source := next((name for name in beside if name.is_file()), None):
        origins, where = read_origins(source), f"'{source}'"
        while len(origins) > individuals and not origins[-1]:  # blank lines at the end
            origins.pop()
        if len(origins) != individuals:
            raise ValueError(f"{where} has {len(origins)} lines, but '{path}' {individuals} individuals")
    elif {"population", "population_flag"} <= genotypes.coords.keys():
        flags = genotypes["population_flag"].values.astype(int)
        labels = genotypes["population"].values.astype(str)
        origins, where = np.where(flags == 1, labels, "").tolist(), f"'{path}'"
    else:
        raise ValueError(
            f"'{path}' does not say whose origin is known; expected '{beside[0]}', with the population of every "
            "individual or -, as ADMIXTURE has it, or a file of STRUCTURE with populations=True and "
            "population_flags=True, whose flag is 1 where the population is known"
        )
    if not known_populations(origins):
        raise ValueError(f"no individual of {where} has a known origin; expected some")
    return genotypes.assign_coords(origin=("individual", origins))
