"""Ancestry of individuals and divergence of populations, after a fit of STRUCTURE.

A result has ancestry (individual, population), as those of `structure_admixture` and `structure_correlated`, or origins
z (individual,), as those of `structure`, and frequencies (population, locus, allele). Of many frequencies `fit` keeps
means and standard deviations of every chain in place of draws. Populations have the order that `align` gives them by
ancestry, the same in all functions here: a tree that was aligned before keeps its order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.results.parameters import SAMPLE_DIMS
from bayeslab.results.saving import save_text

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame
    from xarray import DataArray, Dataset, DataTree

    Array = NDArray[Any]

SUMMARY_COLUMNS = ("mean", "sd", "low", "high")
"""The variables of a summary of ancestry."""
MAX_MOVED_ANCESTRY_SHARE = 0.1
"""The largest share of all ancestry that may differ between a chain's own means and its aligned draws; more means that
populations changed places within the chain."""


def ancestry_summary(tree: DataTree, probability: float = 0.9) -> Dataset:
    """The ancestry of every individual over all chains and draws: mean, sd, low and high (individual, population).

    low, high: the ends of the equal-tailed interval of this probability, from the quantiles of the aligned draws.
    Of origins z the mean is the posterior probability of each population, one number without an interval: sd is 0, low
    and high are the mean. So it is with point estimates.
    Raises ValueError for a tree with neither ancestry nor z, and for a probability outside of 0 to 1.
    """
    from xarray import Dataset

    tails = _tail_probabilities(probability)
    draws, _ = _align_draws(tree, _ancestry(tree))
    values, site = draws.values, "ancestry" if "ancestry" in _group(tree, "posterior") else "origins"
    if site == "origins":
        values = values.mean((0, 1), keepdims=True)  # their spread would say nothing new
    dims, columns = ("individual", "population"), _moments(values.reshape(-1, *values.shape[2:]), tails)
    variables = {name: (dims, column) for name, column in zip(SUMMARY_COLUMNS, columns, strict=True)}
    coords = {dim: draws[dim].values for dim in dims}
    return Dataset(variables, coords, {"of": site, "probability": probability})


def match_populations(summaries: Mapping[int, Dataset]) -> dict[int, Array]:
    """Colours for the populations (population,) of every K, numbers from 0, so that colours agree across K.

    summaries: from `ancestry_summary`, by number of populations, of the same individuals.
    The populations of the smallest K are numbered in their order. Those of every further K are paired with those of the
    K before so that the ancestry they share, sum_i min(q_ik, q'_ik'), is largest (the Hungarian algorithm): of a
    population that splits the larger part keeps the colour. What is left gets the first colours that are not in use.
    Raises ValueError for no summaries, for a K that is not the number of populations, and for other individuals.
    """
    _check_summaries(summaries)
    colours: dict[int, Array] = {}
    previous: Array = np.zeros((0, 0))
    for number in sorted(summaries):
        current = summaries[number]["mean"].transpose("individual", "population").values
        if colours:
            partners = pair_columns(previous, current)
            numbers = np.full(number, -1)
            numbers[partners] = colours[len(partners)]
            numbers[numbers < 0] = np.setdiff1d(np.arange(number), numbers)
        else:
            numbers = np.arange(number)
        previous, colours[number] = current, numbers
    return colours


def divergence(tree: DataTree, probability: float = 0.9) -> Dataset:
    """How far apart the allele frequencies of populations are, as means over the posterior.

    With J_kk' the mean over loci of sum_j p_klj p_k'lj, the probability that two copies, one of each, are alike:
        heterozygosity (population,)      H_k = 1 - J_kk, expected within the population
        distance (population, other)      (1 - J_kk') - (H_k + H_k') / 2, the net nucleotide distance (M. Nei and W.-H.
                                          Li 1979, doi:10.1073/pnas.76.10.5269) that STRUCTURE prints
        fst (population, other)           1 - (H_k + H_k') / 2 / (1 - J_kk'), a ratio of means over loci (R. Hudson, M.
                                          Slatkin and W. Maddison 1992, doi:10.1093/genetics/132.2.583)
    STRUCTURE takes the posterior means of the frequencies for p, which gives less: here their variance counts.
    Each has its sd, low and high, as distance_sd. Where draws of frequencies are not kept these are NaN, with the
    reason in their attrs; E[p^2] is then mean^2 + sd^2 of every chain, its populations in one order, and the mean over
    chains goes into the formulas, which leaves out the posterior covariances of different populations.
    attrs["computed"] says which it is.
    Raises ValueError for a tree without frequencies, for frequencies that are not in the order of the ancestry, and
    where they are not kept and populations changed places within a chain.
    """
    from xarray import Dataset

    tails, has_draws = _tail_probabilities(probability), "frequencies" in _group(tree, "posterior")
    identity, names = _gene_identity_of_draws(tree) if has_draws else _gene_identity_of_means(tree)
    pair = ("population", "other")
    variables: dict[str, Any] = {}
    for name, values in _divergence_measures(identity).items():
        columns = _moments(values, tails)
        dims = pair[: values.ndim - 1]
        variables[name] = (dims, columns[0])
        for part, column in zip(SUMMARY_COLUMNS[1:], columns[1:], strict=True):
            unknown = np.full_like(column, np.nan), {"reason": "draws of frequencies are not kept"}
            variables[f"{name}_{part}"] = (dims, column) if has_draws else (dims, *unknown)
    source = "draws of frequencies" if has_draws else "means and sd of frequencies, without covariances of populations"
    return Dataset(variables, dict.fromkeys(pair, names), {"computed": f"from {source}", "probability": probability})


def q_table(summary: Dataset, groups: Sequence[str] | None = None) -> DataFrame:
    """One row for every individual and population: individual, group where given, population, mean, sd, low, high.

    groups: the label of every individual (individual,), such as where it was sampled.
    Raises ValueError for groups of another length.
    """
    from pandas import DataFrame

    _check_summary(summary)
    labels = group_labels(summary, groups)
    individuals, populations = summary.sizes["individual"], summary.sizes["population"]
    columns: dict[str, Any] = {"individual": np.repeat(summary["individual"].values, populations)}
    if labels is not None:
        columns["group"] = np.repeat(labels, populations)
    columns["population"] = np.tile(summary["population"].values, individuals)
    for name in SUMMARY_COLUMNS:
        columns[name] = summary[name].transpose("individual", "population").values.ravel()
    return DataFrame(columns)


def write_q(summary: Dataset, path: Path | str) -> None:
    """Write mean ancestry as a Q matrix, as ADMIXTURE does: a row an individual, a column a population, no header.

    Numbers have six decimals and spaces between them. A file that was there is replaced once the new one is complete.
    Raises OSError where no file of this name can be written.
    """
    _check_summary(summary)
    mean = summary["mean"].transpose("individual", "population").values
    rows = (" ".join(f"{share:.6f}" for share in row) for row in mean / mean.sum(1, keepdims=True))
    save_text("".join(f"{row}\n" for row in rows), Path(path))


def group_labels(summary: Dataset, groups: Sequence[str] | None) -> Array | None:
    """The labels of groups (individual,) as text, None where there are none.

    Raises ValueError for another number of them than there are individuals.
    """
    if groups is None:
        return None
    labels = np.asarray([str(label) for label in np.asarray(groups)])
    if len(labels) != summary.sizes["individual"]:
        raise ValueError(
            f"groups has {len(labels)} labels; expected one for each of {summary.sizes['individual']} individuals."
        )
    return labels


def _moments(draws: Array, tails: tuple[float, float]) -> tuple[Array, Array, Array, Array]:
    """Mean, sd and the two quantiles over draws (draw, ...)."""
    low, high = np.quantile(draws, tails, axis=0).astype(float)
    return draws.mean(0, dtype=float), draws.std(0, dtype=float), low, high


def _tail_probabilities(probability: float) -> tuple[float, float]:
    """The probabilities of the ends of an equal-tailed interval."""
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}; expected that of an interval, between 0 and 1.")
    return (1 - probability) / 2, (1 + probability) / 2


def _group(tree: DataTree, name: str) -> dict[Any, DataArray]:
    """The variables of a group, none where the tree does not have it."""
    return dict(tree[name].to_dataset().data_vars) if name in tree.children else {}


def _ancestry(tree: DataTree) -> DataArray:
    """Ancestry (chain, draw, individual, population), in the order that the tree has.

    Of origins z, all ancestry of an individual is in the population that it comes from.
    """
    posterior, dims = _group(tree, "posterior"), (*SAMPLE_DIMS, "individual", "population")
    if "ancestry" in posterior:
        if set(posterior["ancestry"].dims) != set(dims):
            raise ValueError(
                f"Site 'ancestry' has dimensions {list(posterior['ancestry'].dims)}; expected {list(dims)}."
            )
        return posterior["ancestry"].transpose(*dims)
    frequencies = _group(tree, "posterior_mean") | posterior
    if "z" in posterior and set(posterior["z"].dims) == set(dims[:3]) and "frequencies" in frequencies:
        populations = frequencies["frequencies"]["population"]
        places = populations.copy(data=np.arange(populations.size))
        return (posterior["z"] == places).astype(float).transpose(*dims)
    raise ValueError(
        f"The posterior has no ancestry and no origins z of individuals, only {sorted(map(str, posterior))}."
    )


def _align_draws(tree: DataTree, values: DataArray) -> tuple[DataArray, Array]:
    """Values with the populations of all draws in one order, and their old places (chain, draw, population)."""
    from xarray import DataTree

    groups = {"posterior": values.to_dataset(name="site")}
    if "lp" in (stats := _group(tree, "sample_stats")):
        groups["sample_stats"] = stats["lp"].to_dataset()
    aligned = align(DataTree.from_dict(groups), {"site": "population"})
    return aligned["posterior"].to_dataset()["site"], aligned["alignment"].to_dataset()["permutation"].values


def _divergence_measures(alike: Array) -> dict[str, Array]:
    """Heterozygosity (draw, population), and distance and fst (draw, population, other), from J."""
    within = 1 - np.diagonal(alike, axis1=1, axis2=2)
    between, mean_within = 1 - alike, (within[:, :, None] + within[:, None]) / 2
    share_within = np.divide(mean_within, between, out=np.ones_like(mean_within), where=between > 0)
    return {"heterozygosity": within, "distance": between - mean_within, "fst": 1 - share_within}


def _gene_identity_of_draws(tree: DataTree) -> tuple[Array, Array]:
    """J (draw, population, other) of every draw, and the names of populations."""
    posterior = _group(tree, "posterior")
    frequencies = posterior["frequencies"].transpose(*SAMPLE_DIMS, "population", ...)
    source = next((site for site in ("ancestry", "z") if site in posterior), "frequencies")
    if (source in (moved := _aligned_sites(tree))) != ("frequencies" in moved):
        raise ValueError(f"Only one of the sites '{source}' and 'frequencies' is aligned; align them together.")
    values = frequencies if source == "frequencies" else _ancestry(tree)
    order = _align_draws(tree, values)[1].reshape(-1, frequencies.sizes["population"])
    identity = np.empty((len(order), order.shape[1], order.shape[1]))
    for draw, table in enumerate(frequencies.values.reshape(len(order), *frequencies.shape[2:])):
        flat = table[order[draw]].reshape(order.shape[1], -1).astype(float)
        identity[draw] = flat @ flat.T / frequencies.sizes["locus"]
    return identity, frequencies["population"].values


def _gene_identity_of_means(tree: DataTree) -> tuple[Array, Array]:
    """J (1, population, other), its mean over chains, and the names of populations."""
    means, sds = (_group(tree, f"posterior_{name}") for name in ("mean", "sd"))
    if "frequencies" not in means:
        sites = sorted(map(str, {**_group(tree, "posterior"), **means}))
        raise ValueError(f"The result has no frequencies of populations, only {sites}.")
    ancestry = _ancestry(tree)
    orders, identities = _population_positions(tree, ancestry), []
    mean, sd = (group["frequencies"].transpose("chain", "population", ...).values for group in (means, sds))
    for order, *moments in zip(orders, mean, sd, strict=True):
        flat, spread = (moment[order].reshape(len(order), -1).astype(float) for moment in moments)
        identities.append((flat @ flat.T + np.diag(np.square(spread).sum(1))) / means["frequencies"].sizes["locus"])
    return np.mean(identities, axis=0, keepdims=True), ancestry["population"].values


def _population_positions(tree: DataTree, ancestry: DataArray) -> Array:
    """The positions of the populations of the aligned draws in the means of every chain (chain, population).

    Means of frequencies have the order of those of ancestry, or of most draws of ancestry where it has none.
    """
    aligned, _ = _align_draws(tree, ancestry)
    means = _group(tree, "posterior_mean")
    if "ancestry" in means:
        means_by_chain = means["ancestry"].transpose("chain", "individual", "population").values
    else:
        means_by_chain = ancestry.values.mean(1, dtype=float)
    orders = []
    for name, aligned_means, chain_means in zip(
        ancestry["chain"].values, aligned.values.mean(1, dtype=float), means_by_chain, strict=True
    ):
        orders.append(pair_columns(aligned_means, chain_means))
        moved_share = 1 - np.minimum(aligned_means, chain_means[:, orders[-1]]).sum() / len(aligned_means)
        if moved_share > MAX_MOVED_ANCESTRY_SHARE:
            raise ValueError(
                f"Populations changed places within chain {name}, so the means of its frequencies are of none; "
                "leave the chain out, or fit so few loci that draws of frequencies are kept."
            )
    return np.stack(orders)


def _aligned_sites(tree: DataTree) -> set[str]:
    """The sites that `align` permuted."""
    if "alignment" not in tree.children:
        return set()
    settings = tree["alignment"].to_dataset().attrs
    return {*json.loads(settings["site_dims"]), *json.loads(settings["labels"])}


def pair_columns(first: Array, second: Array) -> Array:
    """For every column of the first, the column of the second that it is paired with by the Hungarian algorithm, so
    that pairs share most ancestry; the second has as many columns or more."""
    from scipy.optimize import linear_sum_assignment

    shared = np.array([np.minimum(column[:, None], second).sum(0) for column in first.T])
    return linear_sum_assignment(shared, maximize=True)[1]


def _check_summary(summary: Any) -> None:
    """Raises ValueError for what is no summary of ancestry."""
    if not set(SUMMARY_COLUMNS) <= set(getattr(summary, "data_vars", ())):
        raise ValueError(
            f"expected a summary from ancestry_summary, got a {type(summary).__name__} without mean, sd, low and high."
        )


def _check_summaries(summaries: Mapping[int, Dataset]) -> None:
    """Raises ValueError unless summaries are by number of populations and of the same individuals."""
    if not summaries:
        raise ValueError("expected summaries by their number of populations, got none.")
    first = summaries[min(summaries)]
    for number, summary in summaries.items():
        _check_summary(summary)
        if summary.sizes["population"] != number:
            raise ValueError(f"the summary of K = {number} has {summary.sizes['population']} populations.")
        if not np.array_equal(summary["individual"].values, first["individual"].values):
            raise ValueError(f"the summaries of K = {min(summaries)} and K = {number} have different individuals.")
