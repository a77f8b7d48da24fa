"""Modes of a mixture-like posterior: which chains are in the same one, how high it is, and what it says.

Besides the K! copies of every mode that `align` brings together there may be modes that no order of components makes
equal, and chains seldom move between them. An average over such chains describes no mode, so each has its own here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.results.parameters import SAMPLE_DIMS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset, DataTree

    Dims = str | Sequence[str]
    Array = NDArray[Any]

RESERVED_NAMES = {"share", "num_chains", "log_joint", "log_joint_sd", "mode_of_chain", "distance", "mode", "chain_"}
"""Names of the columns and dimensions of the table, which sites cannot have."""
MAX_RELATIVE_ROUNDING = 1e-6
"""The share of the largest value of a site below which differences are rounding."""
OPTIMISER_RELATIVE_TOLERANCE = 1e-3
"""The share of the largest value of a site to which optimisers agree."""


def modes(
    tree: DataTree, site_dims: Mapping[str, Dims], labels: Sequence[str] = (), max_distance: float = 1.0
) -> Dataset:
    """One row a mode, the highest log joint first, and the mode of every chain.

    site_dims, labels: as in `align`. max_distance: how far apart chains of one mode may be.
    share: of the draws; no probability of the mode, since it depends on where the chains started. num_chains.
    log_joint, log_joint_sd: mean and sd over the draws of the mode; NaN without lp, then the largest share is first.
    mode_of_chain (chain,). distance (chain, chain_): shows how clear the decision was.
    Every float site: its mean over the aligned draws of the mode, (mode, ...), in one order of components.
    Every site of labels: the probabilities of the components, (mode, ..., component).

    Two chains are aligned to each other. A component is apart by the mean over its features of (difference of the
    chain means)^2 / (variance within the chains), and the chains by the component that is farthest apart. Chains and
    groups of chains are joined while their mean distance is at most max_distance. At distance 1 the means are one sd
    apart, which R-hat shows as sqrt(1 + 1 / 2) = 1.22; chains of one distribution with n effective draws each are some
    2 / n apart, whatever their number of draws.

    Not seen: modes that differ only in sites outside site_dims, or by little in few of many features. A chain that
    moves between two modes counts as one, with the mode where it spends most of its draws; near one half it may be a
    mode of its own. Chains that have not mixed (n below 15) may look like modes. Point estimates are together if they
    agree to some 1e-3 of the largest value of a site.
    Raises ValueError for what `align` refuses, for values that are not finite, for a site named like a column.
    """
    from xarray import concat

    _check_arguments(tree, site_dims, max_distance)
    aligned = align(tree, site_dims, labels)
    posterior, lp = aligned["posterior"].to_dataset(), _log_joint(aligned)
    distance = _distances(posterior[list(site_dims)], lp, site_dims)
    groups = _cluster_chains(distance, max_distance)
    groups.sort(key=lambda chains: (-lp[chains].mean().fillna(-np.inf).item(), -len(chains), chains[0]))

    best = align(_select_chains(posterior, lp, groups[0]), site_dims, labels)
    others = [align(_select_chains(posterior, lp, chains), site_dims, labels, reference=best) for chains in groups[1:]]
    rows = [_mode_row(mode, site_dims, labels) for mode in (best, *others)]
    table = concat(rows, dim="mode", data_vars="all", join="exact")
    mode_of_chain = np.argmax([np.isin(np.arange(len(distance)), chains) for chains in groups], axis=0)
    return table.assign(
        share=table["num_chains"] / len(distance),
        mode_of_chain=("chain", mode_of_chain),
        distance=(("chain", "chain_"), distance),
    ).assign_coords(mode=range(len(rows)), chain=lp["chain"].values, chain_=lp["chain"].values)


def _distances(posterior: Dataset, lp: DataArray, site_dims: Mapping[str, Dims]) -> Array:
    """The distances between all chains (chain, chain), every two of them aligned to each other, since chains of
    different modes have no common order."""
    distances = np.zeros((lp.sizes["chain"], lp.sizes["chain"]))
    for pair in combinations(range(len(distances)), 2):
        pair_posterior = align(_select_chains(posterior, lp, pair), site_dims)["posterior"].to_dataset()
        distances[pair] = distances[pair[::-1]] = _distance(pair_posterior, site_dims)
    return distances


def _distance(two: Dataset, site_dims: Mapping[str, Dims]) -> float:
    """How far apart two chains are in their worst component: mean squared difference in within-chain sd."""
    squares, varies = [], []
    for site, dims in site_dims.items():
        values = two[site].transpose(*SAMPLE_DIMS, dims if isinstance(dims, str) else dims[0], ...).values.astype(float)
        values = values.reshape(*values.shape[:3], -1)
        largest = np.abs(values).max()
        difference, sd = np.abs(np.subtract(*values.mean(1))), np.sqrt(values.var(1).mean(0))
        scale = np.where(sd > MAX_RELATIVE_ROUNDING * largest, sd, OPTIMISER_RELATIVE_TOLERANCE * largest)
        varies.append(np.maximum(difference, sd) > MAX_RELATIVE_ROUNDING * largest)
        squares.append(np.square(np.divide(difference, scale, out=np.zeros_like(sd), where=varies[-1])))
    features = np.concatenate(varies, axis=1).sum(1)
    return float((np.concatenate(squares, axis=1).sum(1) / np.maximum(features, 1)).max())


def _cluster_chains(distance: Array, max_distance: float) -> list[Array]:
    """The positions of the chains of every mode, by average linkage: one chain in between does not join two modes."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(distance) == 1:
        return [np.arange(1)]
    number = fcluster(linkage(squareform(distance), "average"), max_distance, "distance")
    return [np.flatnonzero(number == each) for each in np.unique(number)]


def _mode_row(tree: DataTree, sites: Mapping[str, Dims], labels: Sequence[str]) -> Dataset:
    """The row of one mode, from its aligned chains."""
    from xarray import concat

    posterior, lp, permutation = tree["posterior"].to_dataset(), tree["sample_stats/lp"], tree["alignment/permutation"]
    numeric = [site for site, x in posterior.data_vars.items() if x.dtype.kind == "f" or site in sites]
    columns = {"num_chains": lp.sizes["chain"], "log_joint": lp.mean(), "log_joint_sd": lp.std()}
    for site in labels:
        shares = [(posterior[site] == component).mean(SAMPLE_DIMS) for component in range(permutation.shape[-1])]
        columns[site] = concat(shares, dim=permutation.dims[-1]).transpose(..., permutation.dims[-1])
    return posterior[numeric].mean(SAMPLE_DIMS).assign(columns)


def _select_chains(posterior: Dataset, lp: DataArray, chains: Sequence[int] | Array) -> DataTree:
    """The draws of some chains, with what `align` needs."""
    from xarray import DataTree

    groups = {"posterior": posterior, "sample_stats": lp.to_dataset(name="lp")}
    return DataTree.from_dict({name: group.isel(chain=list(chains)) for name, group in groups.items()})


def _log_joint(tree: DataTree) -> DataArray:
    """The log joint of every draw (chain, draw), NaN where none is recorded."""
    from xarray import DataArray

    if "sample_stats" in tree.children and "lp" in (stats := tree["sample_stats"].to_dataset()):
        return stats["lp"].transpose(*SAMPLE_DIMS)
    posterior = tree["posterior"].to_dataset()
    return DataArray(
        np.full([posterior.sizes[dim] for dim in SAMPLE_DIMS], np.nan), {"chain": posterior["chain"]}, SAMPLE_DIMS
    )


def _check_arguments(tree: DataTree, site_dims: Mapping[str, Dims], max_distance: float) -> None:
    """Raises ValueError for a distance that is not positive, and for a site named like a column."""
    if not max_distance > 0:
        raise ValueError(f"max_distance must be positive, got {max_distance}.")
    posterior: Mapping[Any, DataArray] = tree["posterior"].data_vars if "posterior" in tree.children else {}
    for site, values in posterior.items():
        if taken := RESERVED_NAMES & {site, *values.dims}:
            raise ValueError(f"The result has columns of its own named {sorted(taken)}: rename those of site {site!r}.")
