"""Posteriors of one model side by side: how far is each method from the first, and at what cost?

Every difference comes with its Monte Carlo standard error, a variable ending in `_mcse`, which
counts the draws of both posteriors; an error below two or three of them is not there to be seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.diagnostics.pareto_tail import largest_size, pareto_tail
from bayeslab.diagnostics.peaks import find_peaks
from bayeslab.results.datatree import posterior_draws
from bayeslab.results.parameters import SAMPLE_DIMS, stacked_parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset, DataTree

    Samples = NDArray[Any]

_DIFFERENCE_COLUMNS = (
    *("mean_error", "mean_error_mcse", "sd_ratio", "sd_ratio_mcse"),
    *("wasserstein", "wasserstein_floor", "wasserstein_mcse", "coverage", "coverage_mcse"),
)


def compare_posteriors(trees: Mapping[str, DataTree], var_names: Sequence[str] | None = None) -> Dataset:
    """One row a posterior: the worst of its parameters against the first tree, and its cost.

    mean_error_max, mean_error_rms: error of the mean in reference sd, over all parameters.
    sd_ratio_min, sd_ratio_max, sd_ratio_mean: sd over reference sd; the last is a geometric mean.
    wasserstein_max: 1-Wasserstein distance of the marginals in reference sd; wasserstein_floor
        is what two samples of these sizes from one distribution have.
    coverage_min, coverage_max: probability under the reference of the central 90 % interval.
    peaks_max: of the marginal with the most.
    k_hat: tail of the importance ratios (above 0.7: the approximation misses some of the
        posterior); elbo_gap: log evidence of the reference minus the ELBO.
    ess_min, ess_per_second, ess_per_gradient, compile_seconds, sampling_seconds.
    What does not apply is NaN; attrs and errors are those of `compare_parameters`. A row is
    table.sel(posterior=name).
    """
    return summary_table(compare_parameters(trees, var_names), trees)


def summary_table(parameters: Dataset, trees: Mapping[str, DataTree]) -> Dataset:
    """The table of `compare_posteriors` from that of `compare_parameters`."""
    from xarray import Dataset, concat

    summary = _summary(parameters)
    evidence = next(iter(trees.values())).attrs.get("log_evidence", np.nan)
    runs = [Dataset(_run_costs(tree, evidence)) for tree in trees.values()]
    table = summary.merge(concat(runs, dim="posterior").assign_coords(posterior=summary["posterior"]))
    table["ess_per_second"] = table["ess_min"] / table["sampling_seconds"].where(lambda s: s > 0)
    table["ess_per_gradient"] = table["ess_min"] / table["num_gradients"].where(lambda n: n > 0)
    return table.assign_attrs(parameters.attrs)


def compare_parameters(trees: Mapping[str, DataTree], var_names: Sequence[str] | None = None) -> Dataset:
    """One row a posterior and scalar parameter, (posterior, parameter), against the first tree.

    var_names: the sites to compare; all continuous sites that every tree has where not given.
    mean, sd, ess and number of peaks of every method; mean_error (signed), sd_ratio, wasserstein and coverage, as in
    `compare_posteriors`, of all but the first. A point estimate has a mean and a distance only.
    If a tree went through `align`, all others are aligned to the first in the same way.
    attrs: reference, only_in_some (the sites left out, tree by tree) and aligned (the sites).
    Of one tree alone there are no differences, only its own moments.
    Raises ValueError for no tree, for sites of different shapes, for unknown names.
    """
    return parameter_table(*align_all(trees), var_names)


def parameter_table(trees: Mapping[str, DataTree], sites_aligned: str, var_names: Sequence[str] | None) -> Dataset:
    """The table of `compare_parameters`, of trees that are aligned already, and of the sites by which they are."""
    from xarray import concat, full_like

    sites, only_in_some = _common_sites(trees, var_names)
    first, *others = [_parameter_draws(tree, sites) for tree in trees.values()]
    others = [_match_parameters(first, draws) for draws in others]
    reference = _moments(first)
    rows = [reference.assign({name: full_like(reference["mean"], np.nan) for name in _DIFFERENCE_COLUMNS})]
    for draws in others:
        own = _moments(draws)
        rows.append(own.merge(_differences(first, reference, draws, own)))
    table = concat(rows, dim="posterior", join="exact", data_vars="all")
    attrs = {"reference": next(iter(trees)), "only_in_some": only_in_some, "aligned": sites_aligned}
    return table.assign_coords(posterior=list(trees)).assign_attrs(attrs)


def k_hat(tree: DataTree) -> tuple[float, float]:
    """The Pareto tail of the ratios exp(lp - log_q) of a result, and its standard error; NaN without a log_q.

    Of draws that were resampled by weights it is that of the weights, which the result has in its attributes.
    """
    from xarray import Dataset

    if is_weighted(tree):
        return float(tree.attrs["k_hat"]), np.nan
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else Dataset()
    if "lp" not in stats or "log_q" not in stats:
        return np.nan, np.nan
    return pareto_tail(stats["lp"].values - stats["log_q"].values, largest_size(stats["lp"].values))


def is_weighted(tree: DataTree) -> bool:
    """Whether the draws of a result were resampled by importance weights."""
    return "importance_ess" in tree.attrs


def _moments(draws: DataArray) -> Dataset:
    """Mean, sd and bulk ESS of every parameter; a single draw has a mean without error."""
    from xarray import Dataset, full_like

    mean = draws.mean(SAMPLE_DIMS)
    if draws.sizes["chain"] * draws.sizes["draw"] == 1:
        unknown = full_like(mean, np.nan)
        return Dataset({"mean": mean, "mean_mcse": full_like(mean, 0.0), "sd": unknown,
                        "sd_mcse": unknown, "ess": unknown, "peaks": unknown})  # fmt: skip
    with np.errstate(all="ignore"):
        return Dataset(
            {
                "mean": mean,
                "mean_mcse": draws.azstats.mcse(method="mean"),
                "sd": draws.std(SAMPLE_DIMS, ddof=1),
                "sd_mcse": draws.azstats.mcse(method="sd"),
                "ess": draws.azstats.ess(method="bulk"),
                "peaks": _num_peaks(draws),
            }
        )


def _num_peaks(draws: DataArray) -> DataArray:
    """Numbers of peaks; effective sizes are those within the chains, since chains may keep to one peak each."""
    within = sum(draws.isel(chain=[c]).azstats.ess(method="bulk").fillna(0.0) for c in range(draws.sizes["chain"]))
    columns = zip(np.moveaxis(draws.values, 2, 0), np.asarray(within), strict=True)
    return (
        draws[0, 0]
        .drop_vars(SAMPLE_DIMS)
        .copy(data=[float(len(find_peaks(values.ravel(), ess))) for values, ess in columns])
    )


def _differences(first: DataArray, reference: Dataset, draws: DataArray, own: Dataset) -> Dataset:
    """The differences between draws and the first posterior, parameter by parameter, and their errors."""
    from xarray import Dataset

    scale = reference["sd"].where(lambda sd: sd > 0)
    scale_error = reference["sd_mcse"] / scale
    error = (own["mean"] - reference["mean"]) / scale
    ratio = own["sd"] / scale
    error_mcse = np.hypot(own["mean_mcse"], reference["mean_mcse"]) / scale
    columns = {
        "mean_error": error,
        "mean_error_mcse": np.hypot(error_mcse, error * scale_error),
        "sd_ratio": ratio,
        "sd_ratio_mcse": np.hypot(own["sd_mcse"] / scale, ratio * scale_error),
    }
    share = 1 / reference["ess"] + (1 / own["ess"]).fillna(0.0)
    distances = _wasserstein(first, draws, share).map(lambda distance: distance / scale)
    return Dataset(columns).merge(distances).merge(_coverage(first, draws))


def _wasserstein(first: DataArray, draws: DataArray, share: DataArray) -> Dataset:
    """The area between two distribution functions, what noise alone makes of it, and its error.

    share: the sum of one over the effective sample sizes.
    """
    from xarray import Dataset

    pairs = zip(np.moveaxis(first.values, 2, 0), np.moveaxis(draws.values, 2, 0), strict=True)
    distance, noise, *potentials = (
        np.stack(part) for part in zip(*(_kantorovich_potentials(*pair) for pair in pairs), strict=True)
    )
    errors = [
        _moments(each.copy(data=np.moveaxis(values, 0, 2)))["mean_mcse"]
        for each, values in zip((first, draws), potentials, strict=True)
    ]
    return Dataset(
        {
            "wasserstein": share.copy(data=distance),
            "wasserstein_floor": noise * np.sqrt(share),
            "wasserstein_mcse": np.hypot(errors[0], errors[1]),
        }
    )


def _kantorovich_potentials(x: Samples, y: Samples) -> tuple[Samples, ...]:
    """The 1-Wasserstein distance, the one that noise makes per root of share, and the potentials.

    The distance is the difference in mean of one function with slope plus or minus one, the
    potential (Kantorovich and Rubinstein), so that its error is that of two means.
    """
    grid = np.sort(np.concatenate([x.ravel(), y.ravel()]))
    below = [np.searchsorted(np.sort(each.ravel()), grid[:-1], "right") / each.size for each in (x, y)]
    gap, step = below[1] - below[0], np.diff(grid)
    pooled = np.arange(1, grid.size) / grid.size
    noise = np.sqrt(2 / np.pi * pooled * (1 - pooled)) @ step
    potential = np.concatenate([[0.0], np.cumsum(np.sign(gap) * step)])
    return np.abs(gap) @ step, noise, np.interp(x, grid, potential), np.interp(y, grid, potential)


def _coverage(first: DataArray, draws: DataArray) -> Dataset:
    """Probability under the first posterior of the interval between the 5 % and 95 % quantiles.

    Its error has two sources: the draws of the first, and the ends, which move by their own error.
    """
    from xarray import Dataset, full_like

    if draws.sizes["chain"] * draws.sizes["draw"] == 1:
        unknown = full_like(first[0, 0].drop_vars(SAMPLE_DIMS, errors="ignore"), np.nan)
        return Dataset({"coverage": unknown, "coverage_mcse": unknown})
    low, high = (draws.quantile(p, SAMPLE_DIMS).drop_vars("quantile") for p in (0.05, 0.95))
    inside = ((first >= low) & (first <= high)).astype(float)
    variance = inside.azstats.mcse(method="mean") ** 2
    for end, p in ((low, 0.05), (high, 0.95)):
        margin = draws.azstats.mcse(method="quantile", prob=p)
        moved = ((first >= end - margin) & (first <= end + margin)).mean(SAMPLE_DIMS) / 2
        variance = variance + moved**2
    return Dataset({"coverage": inside.mean(SAMPLE_DIMS), "coverage_mcse": np.sqrt(variance)})


def _summary(table: Dataset) -> Dataset:
    """One number a method: the worst parameter, or a mean with a bound on its error."""
    from xarray import Dataset

    error, ratio = table["mean_error"], table["sd_ratio"]
    logs: Any = np.log(ratio.where(ratio > 0))
    mean_ratio = np.exp(logs.mean("parameter"))
    columns = {
        **_worst_parameter("mean_error_max", abs(error), table["mean_error_mcse"], 1),
        "mean_error_rms": np.sqrt((error**2).mean("parameter")),
        "mean_error_rms_mcse": np.sqrt((table["mean_error_mcse"] ** 2).mean("parameter")),
        **_worst_parameter("sd_ratio_min", ratio, table["sd_ratio_mcse"], -1),
        **_worst_parameter("sd_ratio_max", ratio, table["sd_ratio_mcse"], 1),
        "sd_ratio_mean": mean_ratio,
        "sd_ratio_mean_mcse": mean_ratio * (table["sd_ratio_mcse"] / ratio).mean("parameter"),
        **_worst_parameter("wasserstein_max", table["wasserstein"], table["wasserstein_mcse"], 1),
        "wasserstein_floor": table["wasserstein_floor"].max("parameter"),
        **_worst_parameter("coverage_min", table["coverage"], table["coverage_mcse"], -1),
        **_worst_parameter("coverage_max", table["coverage"], table["coverage_mcse"], 1),
        "ess_min": table["ess"].min("parameter"),
        "peaks_max": table["peaks"].max("parameter"),
    }
    return Dataset(columns)


def _worst_parameter(name: str, values: DataArray, mcse: DataArray, sign: int) -> dict[str, DataArray]:
    """The largest (sign 1) or smallest (sign -1) value over parameters and the error of that one."""
    worst = (sign * values).fillna(-np.inf).argmax("parameter")
    columns = {name: values, f"{name}_mcse": mcse}
    return {key: each.isel(parameter=worst).drop_vars("parameter") for key, each in columns.items()}


def _run_costs(tree: DataTree, log_evidence: float) -> dict[str, float]:
    """The evidence, the cost and the k-hat of one run, as its tree records them."""
    recorded = ("log_evidence", "elbo", "num_gradients", "compile_seconds", "sampling_seconds")
    run = {name: float(tree.attrs.get(name, np.nan)) for name in recorded}
    k, k_mcse = k_hat(tree)
    gap = {"elbo_gap": log_evidence - run["elbo"], "elbo_gap_mcse": tree.attrs.get("elbo_se", np.nan)}
    return {**run, **gap, "k_hat": k, "k_hat_mcse": k_mcse}


def align_all(trees: Mapping[str, DataTree]) -> tuple[Mapping[str, DataTree], str]:
    """All trees in the order of components of the first, if one of them was aligned, and the sites by which they are.

    Raises ValueError for no trees.
    """
    if not hasattr(trees, "items"):
        raise TypeError(f"A comparison needs results by name, a dict, not {type(trees).__name__}.")
    if not trees:
        raise ValueError("A comparison needs at least one posterior, got none.")
    for name, tree in trees.items():
        posterior_draws(tree, f"compare_posteriors ({name!r})")
    alignment = next((tree["alignment"] for tree in trees.values() if "alignment" in tree.children), None)
    if alignment is None:
        return trees, ""
    dims, labels = json.loads(alignment.attrs["site_dims"]), json.loads(alignment.attrs["labels"])
    dims = {site: names for site, names in dims.items() if all(site in t["posterior"] for t in trees.values())}
    first, *others = trees
    up_to = alignment.attrs.get("up_to", "permutations")

    def aligned(tree: DataTree, reference: DataTree | None = None) -> DataTree:
        present = [site for site in labels if site in tree["posterior"]]
        return align(tree, dims, present, reference, up_to=up_to)

    reference = trees[first] if "alignment" in trees[first].children else aligned(trees[first])
    aligned_others = {name: aligned(trees[name], reference) for name in others}
    return {first: reference, **aligned_others}, ", ".join(dims)


def _common_sites(trees: Mapping[str, DataTree], var_names: Sequence[str] | None) -> tuple[list[str], str]:
    """The continuous sites that every tree has, with equal shapes; and the others, tree by tree."""
    if isinstance(var_names, str):
        raise TypeError(f"var_names must be a list of names such as [{var_names!r}], not one text")
    continuous = {}
    for name, tree in trees.items():
        sites = tree["posterior"].data_vars.items()
        continuous[name] = {str(site): values for site, values in sites if values.dtype.kind == "f"}
    (first, first_sites), *others = continuous.items()
    common = [site for site in first_sites if all(site in sites for _, sites in others)]
    for site in common if var_names is None else var_names:
        if site not in common:
            raise ValueError(f"{site!r} is no continuous site of every posterior; those are {common}.")
        for name, sites in others:
            if (first_shape := _shape(first_sites[site])) != (shape := _shape(sites[site])):
                raise ValueError(f"Site {site!r} has shape {first_shape} in {first!r} but {shape} in {name!r}.")
            _refuse_other_labels(site, {first: first_sites[site], name: sites[site]})
    if not common:
        raise ValueError(f"The posteriors {list(trees)} have no continuous site in common.")
    left_out = {name: [site for site in sites if site not in common] for name, sites in continuous.items()}
    text = "; ".join(f"{name}: {', '.join(sites)}" for name, sites in left_out.items() if sites)
    return list(common if var_names is None else var_names), text


def _refuse_other_labels(site: str, draws: Mapping[str, DataArray]) -> None:
    """Raise ValueError where two results name the elements of a site, as columns of a table, and not the same ones."""
    (first, ours), (other, theirs) = draws.items()
    dims = [[dim for dim in each.dims if dim not in SAMPLE_DIMS] for each in (ours, theirs)]
    for pair in zip(*dims, strict=True):
        labels = [each[dim] for each, dim in zip((ours, theirs), pair, strict=True)]
        own, another = ({*map(str, values.values)} if values.dtype.kind in "OUT" else set() for values in labels)
        if own and another and own != another:
            raise ValueError(
                f"Site {site!r} has elements {sorted(own)} in {first!r} and {sorted(another)} in {other!r}: results of "
                "other programs or data, of which az.compare compares predictions"
            )


def _shape(values: DataArray) -> tuple[int, ...]:
    """The shape of a site, without chains and draws."""
    return tuple(size for dim, size in values.sizes.items() if dim not in SAMPLE_DIMS)


def _parameter_draws(tree: DataTree, sites: list[str]) -> DataArray:
    """The scalar parameters of some sites, in float64."""
    return stacked_parameters(tree["posterior"].to_dataset()[sites]).astype(float)


def _match_parameters(first: DataArray, draws: DataArray) -> DataArray:
    """The parameters matched by name, by position where the names differ."""
    names, others = first["parameter"].values, draws["parameter"].values
    if set(names) == set(others) and len(set(names)) == len(names):
        return draws.sel(parameter=first["parameter"])
    return draws.assign_coords(parameter=first["parameter"])
