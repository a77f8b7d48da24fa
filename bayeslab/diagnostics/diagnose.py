"""What is wrong with a result and what to do about it, in a few lines, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.compare import is_weighted, k_hat
from bayeslab.diagnostics.filter_checks import filter_problems, is_filtered
from bayeslab.results.datatree import posterior_draws
from bayeslab.results.parameters import SAMPLE_DIMS, stacked_parameters
from bayeslab.verification.optimum import OUT_OF_STEPS_REASON

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree

MAX_LINES = 5
"""The largest number of complaints that are shown."""
MAX_R_HAT = 1.01
"""The largest R-hat of chains that agree: Vehtari et al. (2021), doi:10.1214/20-BA1221."""
MIN_ESS_PER_CHAIN = 100
"""The smallest effective sample size per chain: Vehtari et al. (2021), doi:10.1214/20-BA1221."""
MIN_DRAWS_PER_CHAIN = 4
"""The smallest number of draws that R-hat and effective sample sizes are made of."""
MAX_K_HAT = 0.7
"""The largest k-hat of an approximation that misses nothing: Vehtari et al. (2024), arXiv:1507.02646."""
MIN_LOG_RATIO_SD = 0.1
"""The smallest standard deviation of log importance ratios that counts; ratios within a tenth of each other are as good
as equal."""
MIN_IMPORTANCE_EFFICIENCY = 0.05
"""The smallest efficiency of an approximation, 1 / (1 + variance of its importance weights, with mean 1)."""
MIN_BFMI = 0.3
"""The smallest Bayesian fraction of missing information: Betancourt (2016), arXiv:1604.00695."""


def diagnose(tree: DataTree) -> str:
    """What is wrong and what to do next, worst first, at most five lines; empty if all is well.

    Looks for draws that are no numbers, frozen chains, an optimisation that did not converge, separated classes,
    chains that disagree (R-hat), divergences, an approximation that misses part of the posterior
    (k-hat, importance weights), too few effective draws, trajectories cut short, slow exploration of energies (BFMI),
    observed values that may have been forgotten, and a prior that hardly allows what was found. A check whose
    statistics the tree lacks is skipped. Of the result of
    `particles.filter`: values that no particle allows, a guide that is too narrow, and runs that differ. Raises
    ValueError for a tree without numbers in its posterior, TypeError for what is no tree.
    """
    if is_filtered(tree):
        return "\n".join(filter_problems(tree))
    posterior = posterior_draws(tree, "diagnose")
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else {}
    return "\n".join([*_problems(tree, posterior, stats)][:MAX_LINES])


def _problems(tree: DataTree, posterior: Dataset, stats: Any) -> Iterator[str]:
    """All complaints, worst first."""
    draws = _numeric(posterior)
    unusable = (draws.isnull() | (abs(draws) == np.inf)).any(SAMPLE_DIMS)
    if unusable.any():
        name = draws["parameter"].values[unusable.values][0]
        yield (f"Not finite: {name} is NaN or infinite in some draws ({_count_text(unusable)} in all); "
               "check the data and the supports, and compute in float64.")  # fmt: skip
    frozen = _frozen_chains(draws, stats, _is_continuous(draws, posterior))
    if frozen:
        yield f"Frozen: {frozen}, so its draws say nothing; fit again with another key or a longer warm-up."
    if tree.attrs.get("converged", True) in (False, 0):
        yield f"Not converged: {tree.attrs.get('why_not_converged', OUT_OF_STEPS_REASON)}."
    separation_text = tree.attrs.get("separation")
    if separation_text:
        yield f"Separated: {separation_text}."
    population = _is_population(tree)
    yield from _disagreement(draws, population)
    advice = (
        "see above"
        if separation_text
        else "regions of high curvature are missed: raise target_accept_prob, or reparameterise (non-centred scales)"
    )
    yield from _flagged_draws(stats, ["diverging"], f"Divergences: {{}}; {advice}.")
    yield from _bad_importance_ratios(tree)
    yield from _few_draws(draws, population, "converged" in tree.attrs or "method" not in tree.attrs)
    yield from _flagged_draws(
        stats,
        ["reached_max_tree_depth", "reached_max_treedepth"],
        "Tree depth: {} at the maximum; trajectories are cut short: raise max_tree_depth, or rescale the parameters.",
    )
    yield from _low_bfmi(stats)
    if forgotten := tree.attrs.get("nothing_observed"):
        yield f"Nothing observed: {forgotten}, and no site has a value, so the result is of the prior."
    if conflict_text := tree.attrs.get("prior_conflict"):
        yield f"Prior: {conflict_text}."


def _numeric(posterior: Dataset) -> DataArray:
    """The draws of every continuous number, (chain, draw, parameter); of integers where there is nothing else.

    Labels cannot change when groups lie far apart, and R-hat is not made for them, nor for indicators that are kept as
    real numbers.
    """
    kinds = {name: "i" if _is_whole(values) else values.dtype.kind for name, values in posterior.data_vars.items()}
    names = [name for name, kind in kinds.items() if kind == "f"] or [n for n, kind in kinds.items() if kind in "iu"]
    if not names:
        raise ValueError(f"The posterior has no numeric site, only {sorted(map(str, posterior.data_vars))}.")
    return stacked_parameters(posterior[names]).astype(float)


def _is_whole(values: DataArray) -> bool:
    """Whether real numbers are whole ones in all draws, and not one alone."""
    is_real = values.dtype.kind == "f" and values.size > 0
    return bool(is_real and (values % 1 == 0).all() and values.min() < values.max())


def _is_continuous(draws: DataArray, posterior: Dataset) -> DataArray:
    """Which parameters are real numbers, and no labels or counts."""
    real = {str(name) for name, values in posterior.data_vars.items() if values.dtype.kind == "f"}
    flags = [str(name) in real or str(name).rpartition("[")[0] in real for name in draws["parameter"].values]
    return draws.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True).copy(data=np.array(flags, bool))


def _frozen_chains(draws: DataArray, stats: Any, continuous: DataArray) -> str:
    """Which chains did not move, empty if all did, or if the draws are labels that are the same in all chains.

    Of many labels some are so certain that a chain sees one value alone: only together do they tell.
    """
    if draws.sizes["draw"] == 1:
        return ""
    constant_everywhere = _constant_parameters(draws)
    is_constant = (draws.max("draw") == draws.min("draw")) & ~constant_everywhere
    moving_labels = ~continuous & ~constant_everywhere
    labels_frozen = (is_constant | ~moving_labels).all("parameter") & moving_labels.any("parameter")
    is_frozen = ((is_constant & continuous).any("parameter") | labels_frozen).values
    is_constant = is_constant & (continuous | labels_frozen)
    if continuous.any() and bool(_constant_parameters(draws).all()):  # a label may be certain
        is_frozen = np.ones(draws.sizes["chain"], bool)
    if "acceptance_rate" in stats:  # one in every draw is what Gibbs steps report
        rate = stats["acceptance_rate"]
        first = rate.isel(draw=0)
        is_frozen = is_frozen | (((rate == first) & (first != 1)) | rate.isnull()).all("draw").values
    if not is_frozen.any():
        return ""
    where = draws["chain"].values[is_frozen]
    names = draws["parameter"].values[is_constant.any("chain").values]
    name = f" in {names[0]}" if len(names) == 1 else ""
    return f"chain {', '.join(map(str, where))} did not move{name}"


def _constant_parameters(draws: DataArray) -> DataArray:
    """Parameters that have one value in all draws of all chains, as the zeros of a triangular matrix do."""
    return draws.max(SAMPLE_DIMS) == draws.min(SAMPLE_DIMS)


def _is_population(tree: DataTree) -> bool:
    """Whether draws came all at once, so that nothing was warmed up and nothing can go on with `previous`."""
    return is_weighted(tree) or tree.attrs.get("method") == "SMC"


def _disagreement(draws: DataArray, population: bool) -> Iterator[str]:
    """A complaint about R-hat. population: whether a chain is a population of particles."""
    if draws.sizes["chain"] == 1 or draws.sizes["draw"] < MIN_DRAWS_PER_CHAIN:
        return
    with np.errstate(all="ignore"):
        r_hat = draws.azstats.rhat().where(~_constant_parameters(draws))
    bad = r_hat > MAX_R_HAT
    if bad.any():
        name, value = _worst(r_hat)
        remedy = "warm up longer, look at az.plot_rank, and align components that switch labels"
        if population:
            remedy = "raise num_moves or num_samples, look at az.plot_rank, and align components that switch labels"
        what = "Populations" if population else "Chains"
        yield f"{what} disagree: R-hat is {value:.3g} for {name}, above {MAX_R_HAT} for {_count_text(bad)}; {remedy}."


def _few_draws(draws: DataArray, population: bool, is_point: bool) -> Iterator[str]:
    """A complaint about bulk and tail effective sample sizes, or that there are too few draws to tell.

    population: whether draws came all at once. is_point: whether one draw may be a point estimate.
    """
    number = draws.sizes["draw"]
    if draws.sizes["chain"] * number == 1 and is_point:
        return
    if number < MIN_DRAWS_PER_CHAIN:
        each = f" in each of {draws.sizes['chain']} chains" if draws.sizes["chain"] > 1 else ""
        yield f"Few draws: {number}{each}, too few to tell whether they are right; raise num_samples."
        return
    needed = MIN_ESS_PER_CHAIN * draws.sizes["chain"]
    with np.errstate(all="ignore"):
        sizes = [draws.azstats.ess(method=method).where(~_constant_parameters(draws)) for method in ("bulk", "tail")]
    ess = np.fmin(*sizes)
    few = ess < needed
    if few.any():
        name, value = _worst(-ess)
        remedy = "raise num_samples" if population else "raise num_samples, or continue with previous=tree"
        yield f"Few draws: {-value:.0f} effective ones for {name}, below {needed} for {_count_text(few)}; {remedy}."


def _flagged_draws(stats: Any, names: list[str], line: str) -> Iterator[str]:
    """A complaint about the draws at which a statistic is true."""
    for name in names:
        if name in stats and (bad := int((stats[name] > 0).sum())):
            total = stats[name].size
            yield line.format(f"{bad:,} of {total:,} draws ({bad / total:.2g})")


def _bad_importance_ratios(tree: DataTree) -> Iterator[str]:
    """A complaint about a heavy tail of importance ratios, or about their variance.

    Where the ratios hardly differ, the tail weighs nothing.
    """
    k = tree.attrs["k_hat"] if "k_hat" in tree.attrs else k_hat(tree)[0]
    if is_weighted(tree):
        if k > MAX_K_HAT:
            yield (f"Weights: k-hat is {k:.2f}, above {MAX_K_HAT}, so a few draws decide, and errors of the evidence "
                   "cannot be told; take a proposal that is closer, with heavier tails.")  # fmt: skip
        return
    if k > MAX_K_HAT and ratios_differ(tree):
        yield (f"Approximation: k-hat is {k:.2f}, above {MAX_K_HAT}, so part of the posterior is missed; "
               "take a richer guide, or NUTS.")  # fmt: skip
    elif (share := importance_efficiency(tree)) < MIN_IMPORTANCE_EFFICIENCY:
        yield (f"Approximation: by importance weights one of its draws is worth {share:.2g} of the posterior, which is "
               "far narrower; take a richer guide, or NUTS.")  # fmt: skip


def importance_efficiency(tree: DataTree) -> float:
    """The share of draws that an approximation is worth by its importance weights; NaN without any.

    k-hat says whether the weights have a finite variance, and not how large it is: they are bounded where the
    approximation is wider than the posterior, however much.
    """
    ratios = _log_ratios(tree)
    if ratios is None or ratios.size < MIN_ESS_PER_CHAIN:
        return np.nan
    weights = np.exp(ratios - np.max(ratios))
    return float(np.mean(weights) ** 2 / np.mean(weights**2))


def ratios_differ(tree: DataTree) -> bool:
    """Whether log p - log q differs between draws by so much that its tail weighs anything."""
    ratios = _log_ratios(tree)
    return ratios is None or float(ratios.std()) > MIN_LOG_RATIO_SD


def _log_ratios(tree: DataTree) -> np.ndarray[Any, Any] | None:
    """log p - log q at the draws of an approximation, None without them."""
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else {}
    return (stats["lp"] - stats["log_q"]).values if "lp" in stats and "log_q" in stats else None


def _low_bfmi(stats: Any) -> Iterator[str]:
    """A complaint about the Bayesian fraction of missing information."""
    if "energy" not in stats or stats["energy"].sizes["draw"] < MIN_DRAWS_PER_CHAIN:
        return
    with np.errstate(all="ignore"):
        bfmi = stats["energy"].azstats.bfmi()
    if (bfmi < MIN_BFMI).any():
        yield (f"Energy: BFMI is {float(bfmi.min()):.2f}, below {MIN_BFMI}, so tails are explored slowly; "
               "reparameterise heavy tails and hierarchical scales.")  # fmt: skip


def _worst(values: DataArray) -> tuple[str, float]:
    """The parameter with the largest value, and that value."""
    position = int(np.argmax(values.fillna(-np.inf).values))
    return str(values["parameter"].values[position]), float(values[position])


def _count_text(bad: DataArray) -> str:
    """How many of all parameters are bad, in words."""
    return f"{int(bad.sum())} of {bad.size} parameters"
