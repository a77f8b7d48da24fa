"""How strongly neighbouring loci are linked, beside loci that are far apart."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer, as_share
from bayeslab.datasets.genetics.filters import chromosomes
from bayeslab.datasets.genetics.form import check_form
from bayeslab.programs.data import MISSING_COPY

MAX_PAIRS = 20_000
"""The most pairs of each kind that are looked at."""
MIN_PAIRS_FAR_APART = 50
"""The fewest different pairs of loci far apart that say how much structure correlates loci."""
MIN_SHARE = 0.1
"""The share of neighbours up to which their correlation is not worth a word."""


class Linkage(NamedTuple):
    """The shares of pairs whose squared correlation exceeds a number: of neighbours, and of loci far apart, which
    population structure correlates too. NaN where there are no neighbours, or too few pairs far apart."""

    neighbours: float
    far_apart: float

    @property
    def is_strong(self) -> bool:
        """Whether neighbours are correlated often, and much more often than structure alone would have it."""
        return self.neighbours > MIN_SHARE and self.neighbours > 2 * self.far_apart

    @property
    def is_unclear(self) -> bool:
        """Whether neighbours are correlated often, and it cannot be told whether by linkage or by structure."""
        return self.neighbours > MIN_SHARE and np.isnan(self.far_apart)


def genotype_linkage(dataset: xr.Dataset, *, r2: float = 0.5, window: int = 50, seed: int = 0) -> Linkage:
    """The linkage of loci in genotypes as the readers of files return them.

    r2: squared correlation of the copies of the first allele, over individuals with all copies of both, above which a
        pair counts. Neighbours are next to each other on a chromosome; loci are far apart on different ones, or from
        `window` loci on. Of more than MAX_PAIRS pairs some are taken at random (seed); fewer than MIN_PAIRS_FAR_APART
        different ones far apart say nothing.
    Raises ValueError for another form, for a share outside of 0 to 1 and a window below 2.
    """
    r2, window = as_share("r2", r2), as_integer("window", window, 2)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    check_form(dataset, "the dataset")
    groups = chromosomes(dataset, np.arange(dataset.sizes["locus"]))
    neighbours = np.concatenate([np.stack([group[:-1], group[1:]], 1) for group in groups])
    rank, number = np.empty(dataset.sizes["locus"], int), np.empty(dataset.sizes["locus"], int)
    for place, group in enumerate(groups):
        rank[group], number[group] = np.arange(len(group)), place
    pairs = rng.integers(0, len(rank), (4 * MAX_PAIRS, 2))
    first, second = pairs.T
    is_far = (number[first] != number[second]) | (np.abs(rank[first] - rank[second]) >= window)
    chosen, far = rng.permutation(len(neighbours))[:MAX_PAIRS], pairs[is_far][:MAX_PAIRS]
    if len(np.unique(np.sort(far, 1), axis=0)) < MIN_PAIRS_FAR_APART:
        far = far[:0]
    return Linkage(_share_above(dataset, neighbours[chosen], r2), _share_above(dataset, far, r2))


def _share_above(dataset: xr.Dataset, pairs: np.ndarray, r2: float) -> float:
    """The share of pairs (pair, 2) of loci whose squared correlation exceeds a number, NaN without pairs."""
    if not len(pairs):
        return np.nan
    y = dataset["y"].values
    step, above = max(1, 2**22 // y[:, 0].size), 0
    for start in range(0, len(pairs), step):
        first, second = (y[:, pairs[start : start + step, side]] for side in (0, 1))
        read = ((first != MISSING_COPY) & (second != MISSING_COPY)).all(-1).astype(float)
        one, other = ((copies == 0).sum(-1) * read for copies in (first, second))
        total = read.sum(0)
        covariance = total * (one * other).sum(0) - one.sum(0) * other.sum(0)
        variances = [total * (count**2).sum(0) - count.sum(0) ** 2 for count in (one, other)]
        above += int((covariance**2 > r2 * variances[0] * variances[1]).sum())
    return above / len(pairs)
