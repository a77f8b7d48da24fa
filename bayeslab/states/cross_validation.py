"""How well a program predicts parts of its data that it has not seen, and which of several programs does it best."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp

from bayeslab.diagnostics.diagnose import MAX_K_HAT
from bayeslab.diagnostics.pareto_tail import largest_size, pareto_tail
from bayeslab.diagnostics.score_tables import standard_error, with_differences
from bayeslab.fitting import fit
from bayeslab.methods.exact import Exact
from bayeslab.methods.mean_field import MeanField
from bayeslab.prediction.group_likelihood import log_likelihood
from bayeslab.prediction.predict import predict
from bayeslab.prediction.prior_draws import without_weights
from bayeslab.programs.arguments import parameters
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.results.draw_batches import map_draws
from bayeslab.sampling.protocols import Method
from bayeslab.states.hidden_parts import (
    HiddenParts,
    IndependentParts,
    hide_elements,
    independent_parts,
    parts_to_hide,
    sites_of_plate,
)
from bayeslab.transforms.collapse import marginal
from bayeslab.transforms.masked import Masked

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

MIN_SEQUENCES_FOR_LOO = 5
"""The smallest number of sequences for leave-one-out."""
MIN_DRAWS_FOR_LOO = 100
"""The smallest number of draws for importance sampling."""


def held_out(
    key: Array | int, model: Program, data: Data, method: Method, blocks: int = 10, site: str | None = None
) -> "Dataset":
    """The log predictive density of hidden parts of the data, by cross-validation.

    Of a program with a chain of hidden states, steps in a row are hidden, a part of every sequence, or whole sequences
    where there are at least `blocks`. Of another one, such as a mixture or a factor model, whole rows are hidden, every
    tenth for ten blocks: the elements of the outermost plate of its observed sites. The program is fitted to the rest,
    and log p(hidden | rest) is that of the mean over draws, the states, labels or factors of rows integrated out, and
    rows counted once, whatever weights the program gives them. With a point estimate it is that of the point; by
    `Exact`, of rows that all count once, it is the difference of two evidences, without draws.
    method: for the fits; what is compiled for one serves all. blocks: into how many parts the data are divided.
    site: the chain whose steps are hidden, where the program has several; or the plate whose elements are, in place of
    the outermost.
    Returns a Dataset with log_density and entries (block,), how many numbers were hidden, and their sum log_score with
    its standard error log_score_se, which takes blocks for independent. log_density_mcse (block,) is the Monte Carlo
    error of each mean over draws, NaN of a point; k_hat (block,) the Pareto k of what is averaged. Above 0.7 hidden
    parts lie where draws given the rest hardly come, and their density is too small by an unknown factor: there is a
    UserWarning.
    Raises ValueError for a program with neither a chain nor a plate, where a sequence has fewer steps with entries than
    blocks, or fewer rows than blocks are there, where observed values are no entry of the data, and where what rows
    have of their own cannot be integrated out.
    """
    scores = _scores(key, model, data, method, blocks, site)
    _warn_of_parts_beyond_draws(scores)
    return scores


def _scores(key: Array | int, model: Program, data: Data, method: Method, blocks: int, site: str | None) -> "Dataset":
    """What `held_out` returns."""
    from xarray import Dataset

    masked = Masked(model)
    with precision_scope():
        parts = parts_to_hide(bind(model, data).plain, data, blocks, site)
        rest = [
            dict(data) | {name: hide_elements(data[name], where) for name, where in names.items()}
            for names in parts.masks
        ]
        # where no row is hidden, factors of all rows may have one precision
        first_bound, full_bound = bind(masked, rest[0]), bind(masked, data)
        is_weighted = any(site.weighted for site in full_bound.sites.values())
        transform = _without_local(first_bound, parts).transform
        if _local_sites(full_bound, parts) == _local_sites(first_bound, parts):
            full_bound = replace(without_weights(full_bound), transform=transform)
        else:  # what is hidden of labels or covariates is latent there
            full_bound = _without_local(full_bound, parts)
    keys = jax.random.split(raw_key(key), blocks)
    log_evidence = np.nan
    if isinstance(method, Exact) and not is_weighted:
        log_evidence = fit(keys[0], masked, data, method, progress=False).attrs.get("log_evidence", np.nan)
    columns = np.empty((3, blocks))
    for block, training_data in enumerate(rest):
        tree = fit(keys[block], masked, training_data, method, progress=False)
        if np.isfinite(log_evidence):
            columns[:, block] = log_evidence - tree.attrs["log_evidence"], 0.0, -np.inf
            continue
        with precision_scope():
            training_bound = replace(without_weights(bind(masked, training_data)), transform=transform)
            draws = _flat_draws(tree, full_bound)
            gains = np.asarray(_log_likelihood_ratios(full_bound, training_bound, draws))
        is_drawn, num_chains = bool(draws), tree["posterior"].sizes["chain"]
        columns[:, block] = _log_mean(gains, num_chains) if is_drawn else (gains[0], 0.0, -np.inf)
    entries = [sum(int(where.sum()) for where in names.values()) for names in parts.masks]
    names = ("log_density", "log_density_mcse", "k_hat")
    scores: dict[str, Any] = {name: ("block", column) for name, column in zip(names, columns, strict=True)}
    density = columns[0]
    scores |= {"entries": ("block", entries), "log_score": density.sum(), "log_score_se": standard_error(density)}
    return Dataset(scores)


def _warn_of_parts_beyond_draws(scores: "Dataset", of: str = "") -> None:
    """Warn of hidden parts that lie where draws given the rest hardly come. of: what the scores are of, in words."""
    k = scores["k_hat"].values
    if (beyond := np.flatnonzero(k > MAX_K_HAT)).size:
        warnings.warn(
            f"{of}hidden parts {beyond.tolist()} lie where draws given the rest hardly come (k-hat up to "
            f"{np.nanmax(k):.1f}, above {MAX_K_HAT}), so their density is too small by an unknown factor; take "
            "Exact() where it applies, or more blocks",
            stacklevel=3,
        )


def choose(
    key: Array | int,
    model: Program,
    data: Data,
    name: str,
    values: Iterable[Any],
    method: Method | None = None,
    blocks: int = 10,
    site: str | None = None,
) -> "Dataset":
    """Scores of a program for several values of one of its arguments, such as the number of states, of components or of
    factors.

    name, values: the argument, "num_states", and what to give it, range(1, 6).
    method: for all fits; by default MeanField. blocks, site: as for `held_out`.
    Returns a Dataset with a row for every value:
    log_score, log_score_se: as `held_out` returns them. difference, difference_se: from the best of these scores.
    evidence_bound: the log evidence of Exact, else the bound of MeanField, of one of the orders of exchangeable states.
    loo, loo_se, loo_k: leave-one-out, of whole sequences or rows, by importance sampling, and its largest Pareto k
    (reliable below 0.7).
    What does not apply is NaN, with the reason in the attrs of the variable; the attrs have `best`, by log_score, and
    `smallest`, of numbers, the smallest one that is behind it by no more than the standard error of their difference.
    Raises ValueError for no value, an unknown argument, a value with which the program does not run, and as `held_out`
    does.
    """
    from xarray import concat

    values = list(values)
    if not values:
        raise ValueError(f"choose needs values of '{name}' to choose from, got none")
    if name not in parameters(model):
        raise ValueError(f"'{name}' is no argument of the program; these are {list(parameters(model))}")
    method = MeanField() if method is None else method
    with precision_scope():
        for value in values:
            bind(model, dict(data) | {name: value})  # what cannot be is refused before the first fit
    rows = []
    for value, value_key in zip(values, jax.random.split(raw_key(key), len(values)), strict=True):
        keys, data_of_value = jax.random.split(value_key, 4), dict(data) | {name: value}
        row = _scores(keys[0], model, data_of_value, method, blocks, site)
        _warn_of_parts_beyond_draws(row, f"{name} = {value}: ")
        tree = fit(keys[1], Masked(model), data_of_value, method, progress=False)
        rows.append(
            row.assign(
                _evidence_bound(keys[2], model, data_of_value, tree) | _loo(keys[3], model, data_of_value, tree, site)
            )
        )
    labels = values if all(np.ndim(value) == 0 for value in values) else [str(value) for value in values]
    table = concat(rows, dim=name, combine_attrs="drop_conflicts").assign_coords({name: labels})
    return with_differences(table, name).assign_attrs(method=type(method).__name__)


def _local_sites(bound: Bound, parts: HiddenParts) -> tuple[str, ...]:
    """The latent sites that the parts have of their own."""
    return parts.local if parts.plate is None else sites_of_plate(bound, parts.plate)


def _without_local(bound: Bound, parts: HiddenParts) -> Bound:
    """The Bound with these integrated out, in which every row counts once."""
    bound, local = without_weights(bound), _local_sites(bound, parts)
    return marginal(bound, local) if local else bound


def _flat_draws(tree: "DataTree", left: Bound) -> Values:
    """The draws (draw, *site) of the sites that are not summed over."""
    posterior = tree["posterior"]
    draws = {name: jnp.asarray(posterior[name].values) for name in left.latent}
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


@jax.jit
def _log_likelihood_ratios(whole: Bound, part: Bound, draws: Values) -> Array:
    """log p(all, draw) - log p(rest, draw) of draws given the rest, one where nothing is drawn."""

    def gain(values: Values) -> Array:
        return whole.log_joint(values) - part.log_joint(values)

    return map_draws(gain, draws) if draws else gain({})[None]


def _log_mean(log_values: np.ndarray, num_chains: int) -> tuple[float, float, float]:
    """The log of the mean of exp(log_values), of draws of one chain after the other, its Monte Carlo error, and the
    Pareto k of what is averaged."""
    import arviz_stats  # noqa: F401  registers azstats
    from xarray import DataArray

    log_mean = float(logsumexp(log_values) - np.log(len(log_values)))
    if not np.isfinite(log_mean) or len(log_values) == 1:
        return log_mean, np.nan, np.nan
    relative = DataArray(np.exp(log_values - log_mean).reshape(num_chains, -1), dims=("chain", "draw"))
    if (relative == 1.0).all():
        return log_mean, 0.0, -np.inf
    error = float(relative.azstats.mcse(method="mean"))
    return log_mean, error, pareto_tail(log_values, largest_size(log_values))[0]


def _evidence_bound(key: Array, model: Program, data: Data, tree: "DataTree") -> dict[str, Any]:
    """The log evidence of a fit, or its bound, or that of a fit by MeanField."""
    if "log_evidence" in tree.attrs:
        return {"evidence_bound": tree.attrs["log_evidence"]}
    if tree.attrs["method"] == MeanField.__name__:
        return {"evidence_bound": tree.attrs["elbo"]}
    try:
        mean_field_fit = fit(key, Masked(model), data, MeanField(num_samples=1), progress=False)
    except ValueError as reason:
        return {"evidence_bound": ((), np.nan, {"reason": str(reason)})}
    return {"evidence_bound": mean_field_fit.attrs["elbo"]}


def _leaving_out(key: Array, model: Program, data: Data, tree: "DataTree", own: IndependentParts) -> "DataTree":
    """The result with the log likelihood of whole rows of a plate, or of sequences."""
    if own.plate is not None:
        return log_likelihood(model, data, tree, own.plate)
    return predict(key, model, data, tree)


def _loo(key: Array, model: Program, data: Data, tree: "DataTree", site: str | None) -> dict[str, Any]:
    """The leave-one-out score of sequences or rows, whose own sites are integrated out, by importance sampling."""
    from arviz_base import from_dict
    from arviz_stats import loo

    reason, density = "", np.empty((1, 1, 0))
    with precision_scope():
        own = independent_parts(bind(model, data).plain, site)
    if tree["posterior"].sizes["draw"] < MIN_DRAWS_FOR_LOO:
        reason = f"needs at least {MIN_DRAWS_FOR_LOO} draws of the posterior"
    elif own.number >= MIN_SEQUENCES_FOR_LOO:
        try:
            group = _leaving_out(key, Masked(model), data, tree, own)["log_likelihood"]
        except ValueError as error:
            reason = str(error)
        else:
            densities = next(iter(group.data_vars.values())).values
            if len(group.data_vars) == 1 and {*own.local} <= {*group.attrs["integrated_out"]}:
                density = densities.reshape(*densities.shape[:2], -1)
                density = density[..., np.isfinite(density).all((0, 1))]
            if density.shape[2] > own.number:
                density = np.empty((1, 1, 0))
    if not reason and density.shape[2] < MIN_SEQUENCES_FOR_LOO:
        reason = f"needs at least {MIN_SEQUENCES_FOR_LOO} {own.kind} that are independent given the parameters"
    if reason:
        return {name: ((), np.nan, {"reason": reason}) for name in ("loo", "loo_se", "loo_k")}
    if (np.ptp(density, axis=(0, 1)) == 0).all():  # nothing but the states was unknown
        return {"loo": density[0, 0].sum(), "loo_se": standard_error(density[0, 0]), "loo_k": -np.inf}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = loo(from_dict({"posterior": {"y": density}, "log_likelihood": {"y": density}}), pointwise=True)
    return {"loo": result.elpd, "loo_se": result.se, "loo_k": float(result.pareto_k.max())}
