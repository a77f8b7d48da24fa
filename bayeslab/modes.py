"""Modes of a mixture-like posterior: which chains are in the same one, how high it is, and what it says.

Besides the K! copies of every mode that `align` brings together there may be modes that no order of components makes
equal, and a chain seldom leaves one. Averages over chains then describe no mode at all, so each mode has its own here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.alignment import align

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset, DataTree

    Array = NDArray[Any]

SAMPLE = ("chain", "draw")
COLUMNS = ("share", "log_joint", "log_joint_sd", "num_chains", "mode_of_chain", "distance", "mode", "chain_")
NOISE = 1e-6
"""What is smaller, as a share of the largest value of the site, is rounding."""
SAME = 1e-3
"""The spread, as a share of the same, of what does not vary: that is how exactly optimisers agree."""


def modes(
    tree: DataTree, site_dims: Mapping[str, str | Sequence[str]], labels: Sequence[str] = (), max_distance: float = 1.0
) -> Dataset:
    """One row a mode, the highest mean log joint first, and the mode of every chain.

    site_dims, labels: as in `align`.
    max_distance: of two chains in one mode.
    share: of the draws, which is no probability of the mode: it depends on where the chains started. num_chains.
    log_joint, log_joint_sd: mean and sd over the draws of the mode, NaN without lp; then the largest share comes first.
    mode_of_chain (chain,); distance (chain, chain_): how clear the decision was.
    Every float site: its mean over the aligned draws of the mode, (mode, *site). Every site of labels: the
        probabilities of the components, (mode, *site, component).

    The distance of two chains, aligned to each other, is that of the component in which they differ most: the mean over
    its features of (difference of the chain means)^2 / (variance within the chains). Chains no further apart than
    max_distance are in one mode, and so is who is linked through others. At distance 1 the means are one sd apart
    and R-hat is sqrt(1 + 1 / 2) = 1.22. Chains of one distribution with n effective draws each are 2 / n apart, so
    slow chains stay together from about n = 15 on, and components with many features earlier.

    Not seen: modes that differ in sites outside site_dims alone, or by little in few of many features. A chain that moves
    between modes counts as one: with the mode where it spends more than two thirds, else as a mode of its own; several
    such chains may link the modes. Point estimates are together if they agree to 1e-3 of the largest value of a site.
    Raises ValueError for what `align` refuses, for values that are not finite, for a site named like a column.
    """
    from scipy.sparse.csgraph import connected_components
    from xarray import DataArray, Dataset, concat

    _check(tree, site_dims, max_distance)
    tree = align(tree, site_dims, labels)
    distance = _distances(tree, site_dims)
    _, place = connected_components(distance <= max_distance, directed=False)
    parts = [np.flatnonzero(place == part) for part in np.unique(place)]
    heights = _heights(tree)
    parts.sort(key=lambda chains: (-np.nan_to_num(heights[chains].mean(), nan=-np.inf), -len(chains), chains[0]))

    best = align(_only(tree, parts[0]), site_dims, labels)
    others = [align(_only(tree, chains), site_dims, labels, reference=best) for chains in parts[1:]]
    means = concat([_means(part["posterior"].to_dataset(), labels) for part in (best, *others)], dim="mode")

    mode_of_chain = np.empty(len(place), int)
    for mode, chains in enumerate(parts):
        mode_of_chain[chains] = mode
    number = np.array([len(chains) for chains in parts])
    return Dataset(
        {
            "share": ("mode", number / len(place)),
        }
    )
