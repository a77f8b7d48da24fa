"""ADMIXTURE's .Q and .P: read, held against genotypes, taken as a start of chains, and compared with a fit."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayeslab.datasets.arguments import as_path, short_repr
from bayeslab.datasets.files.text import lines_of, read_text
from bayeslab.populations.ancestry import pair_columns
from bayeslab.populations.choice import Means, log_densities
from bayeslab.programs.data import MISSING_COPY

if TYPE_CHECKING:
    from xarray import Dataset

    Array = NDArray[Any]

MAX_ROUNDING = 1e-3
"""The largest distance of a row of ancestry from a sum of 1 that is rounding."""
MIN_PROBABILITY = 1e-5
"""The smallest share and frequency that a start has; ADMIXTURE writes 0.00001 for what is at its bound."""
MAX_LOSS_BY_ANCESTRY = 0.01
"""The largest share of the log likelihood that the ancestry of a rough fit may lose against one ancestry for all."""
MAX_FREQUENCY_GAP = 0.1
"""The largest difference, beyond four standard errors, between the frequency of a locus that .Q and .P say and that of
the genotypes, that is no sign of another locus or of the other allele. At the maximum of the likelihood there is next
to none; files that were fitted to more individuals, or fewer, have sampling errors."""


class AncestryComparison(NamedTuple):
    """How far ancestry is from that of a fit, populations of both paired by the ancestry that they share.

    order: the column of the other that goes with each population of the fit. difference: (individual, population), the
    mean of the fit less the other. mean, largest: of its size over all shares. individual: that has the largest.
    """

    order: Array
    difference: Array
    mean: float
    largest: float
    individual: Any


def read_q(path: str | PathLike[str]) -> Array:
    """Ancestry (individual, population) from a .Q of ADMIXTURE: a row an individual, a column a population.

    Rows are scaled to sum to 1. Raises FileNotFoundError, and ValueError, with line and column, for what is no number
    from 0 to 1, for rows of different lengths and for a row that does not sum to 1.
    """
    shares = _read_matrix(path, "an individual")
    off = np.flatnonzero(np.abs(shares.sum(1) - 1) > MAX_ROUNDING * max(1, shares.shape[1] / 10))
    if len(off):
        raise ValueError(f"line {off[0] + 1} of '{path}' sums to {shares[off[0]].sum():.4g}; expected shares, up to 1")
    return shares / shares.sum(1, keepdims=True)


def read_frequencies(path: str | PathLike[str]) -> Array:
    """Frequencies (locus, population) from a .P of ADMIXTURE: a row a locus, a column a population.

    Which of the two alleles they are of the file does not say; `admixture_start` finds it out.
    Raises FileNotFoundError, and ValueError, with line and column, for what is no number from 0 to 1.
    """
    return _read_matrix(path, "a locus")


def admixture_start(genotypes: Dataset, ancestry: ArrayLike, frequencies: ArrayLike) -> dict[str, Array]:
    """The start of `fit` at what ADMIXTURE has found: ancestry (individual, population), frequencies (population,
    locus, allele).

    genotypes: as a reader or `filter_genotypes` returns them. ancestry: (individual, population), of `read_q`.
    frequencies: (locus, population), of `read_frequencies`, of either allele, the same one at all loci.
    The order of individuals and loci is that of the genotypes. At the maximum of the likelihood the mean of the
    frequencies, weighted by ancestry, is the frequency that each locus shows, by which loci and alleles are checked;
    and individuals are predicted better by their own ancestry than by that of all.
    Raises ValueError, in one sentence, for another number of individuals, loci or populations, for loci with other
    than two alleles, and where individuals, loci or alleles are in another order.
    """
    q, p = np.asarray(ancestry, float), np.asarray(frequencies, float)
    y = genotypes["y"].transpose("individual", "locus", "copy").values
    _check_sizes(q, p, y)
    known = [[name for name in names if name] for names in genotypes["alleles"].values.tolist()]
    several = [locus for locus, names in enumerate(known) if len(names) != 2]
    if several:
        name = genotypes["locus"].values[several[0]]
        raise ValueError(
            f"locus {name} has {len(known[several[0]])} alleles; a .P has loci of two, so expected genotypes of these"
        )
    read = y != MISSING_COPY
    seen = np.maximum(read.sum((0, 2)), 1)
    shown = (y == 1).sum((0, 2)) / seen
    expected = ((read.sum(2).T @ q) * p).sum(1) / seen
    most = MAX_FREQUENCY_GAP + 4 * np.sqrt(shown * (1 - shown) / seen)
    fits, fits_other = (np.abs(frequency - shown) <= most for frequency in (expected, 1 - expected))
    gap, other_gap = np.abs(expected - shown).mean(), np.abs(1 - expected - shown).mean()
    if other_gap < gap:
        p, fits, fits_other = 1 - p, fits_other, fits
    _check_loci(genotypes["locus"].values.tolist(), fits, fits_other)
    start = {
        "ancestry": np.maximum(q, MIN_PROBABILITY),
        "frequencies": np.clip(np.stack([1 - p.T, p.T], -1), MIN_PROBABILITY, 1 - MIN_PROBABILITY),
    }
    start["ancestry"] /= start["ancestry"].sum(1, keepdims=True)
    _check_individuals(y, start)
    return start


def compare_ancestry(summary: Dataset, ancestry: ArrayLike) -> AncestryComparison:
    """How far ancestry (individual, population), such as that of a .Q, is from the means of `ancestry_summary`.

    Raises ValueError for another number of individuals or populations.
    """
    mean = summary["mean"].transpose("individual", "population").values
    other = np.asarray(ancestry, float)
    if other.shape != mean.shape:
        raise ValueError(f"ancestry has shape {other.shape}; expected that of the fit, {mean.shape}")
    order = pair_columns(mean, other)
    difference = mean - other[:, order]
    sizes = np.abs(difference)
    individual = summary["individual"].values[sizes.max(1).argmax()]
    return AncestryComparison(order, difference, float(sizes.mean()), float(sizes.max()), individual)


def _read_matrix(path: str | PathLike[str], row: str) -> Array:
    """The numbers of a file, a row a line, between 0 and 1."""
    path = as_path(path)
    text, _ = read_text(path)
    rows: list[list[float]] = []
    for number, line in enumerate(lines_of(text.rstrip()), 1):
        words = line.split()
        for column, word in enumerate(words, 1):
            if not _is_share(word):
                raise ValueError(
                    f"line {number}, column {column} of '{path}' is {short_repr(word)}; expected a number from 0 to 1"
                )
        if not words or (rows and len(words) != len(rows[0])):
            expected = f"{len(rows[0])} as in line 1" if rows else "one a population"
            raise ValueError(
                f"line {number} of '{path}' has {len(words)} numbers; expected {expected}, a line being {row}"
            )
        rows.append([float(word) for word in words])
    if not rows:
        raise ValueError(f"'{path}' is empty; expected a line for {row}, with a number for each population")
    return np.array(rows)


def _is_share(word: str) -> bool:
    """Whether a word is a number from 0 to 1, up to rounding."""
    try:
        return -1e-9 <= float(word) <= 1 + 1e-6
    except ValueError:
        return False


def _check_sizes(q: Array, p: Array, y: Array) -> None:
    """Raise ValueError unless there are an individual a row, a locus a row, and as many populations in both."""
    if q.ndim != 2 or p.ndim != 2 or q.shape[1] != p.shape[1]:
        raise ValueError(
            f"ancestry has shape {q.shape} and frequencies {p.shape}; expected (individual, population) and "
            "(locus, population), of as many populations"
        )
    for what, given, wanted in (("individuals", len(q), y.shape[0]), ("loci", len(p), y.shape[1])):
        if given != wanted:
            file = ".Q" if what == "individuals" else ".P"
            raise ValueError(
                f"the {file} has {given} {what}, but the genotypes {wanted}; expected those of one data set"
            )


def _check_loci(names: Sequence[Any], fits: Array, fits_other: Array) -> None:
    """Raise ValueError where loci are not those of the genotypes, or some have the other allele."""
    if fits.all():
        return
    first = names[int(np.flatnonzero(~fits)[0])]
    count = f"{(~fits).sum()} of {len(fits)} loci, {first} the first of them"
    if (fits | fits_other).all() and (~fits).mean() < 0.5:
        raise ValueError(
            f"the frequencies of {count}, are those of the other allele than at the rest; expected one orientation"
        )
    raise ValueError(
        f"the frequencies in the .P do not fit what {count}, show; expected the loci of the genotypes in their order"
    )


def _check_individuals(y: Array, start: dict[str, Array]) -> None:
    """Raise ValueError where individuals are not predicted better by their own ancestry than by that of all."""
    q, p = start["ancestry"], start["frequencies"]
    if q.shape[1] == 1:
        return
    own = log_densities(y, [Means(q, p)]).sum()
    common = log_densities(y, [Means(np.broadcast_to(q.mean(0), q.shape), p)]).sum()
    if own < common - MAX_LOSS_BY_ANCESTRY * abs(common):  # of a rough fit it may be a little below
        raise ValueError(
            f"the ancestry in the .Q predicts the genotypes worse than one ancestry for all does (log likelihoods "
            f"{own:,.0f} and {common:,.0f}); expected the individuals of the genotypes in their order"
        )
