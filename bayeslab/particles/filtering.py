"""filter(): what particles say of every state given the observed values so far, and of the evidence."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.particles.particle_filter import ParticleFilter, Particles, run_filter
from bayeslab.particles.state_space import StateSpace, require_guide, require_known_parameters, state_space
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.results.datatree import coordinates, dimensions

if TYPE_CHECKING:
    from xarray import DataTree

Summaries = dict[str, Values]
"""Summaries of sites by name of the summary, then of the site."""


def filter(
    key: Array | int,
    model: Program,
    data: Data,
    settings: ParticleFilter | None = None,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    num_runs: int = 4,
) -> "DataTree":
    """Filter the states of a program with a scan: their distributions given the observed values up to each step.

    data: with values of all parameters, sites before the scan that its steps read.
    settings: by default the bootstrap filter of `ParticleFilter()`.
    quantiles: of the states, in any order; sorting particles for them takes most of the time.
    num_runs: independent runs of the filter, whose differences tell the error of everything that they say.
    Returns a DataTree with groups filtered/mean, filtered/sd and filtered/quantile, the states (run, step, ...) given
    y_1 to y_t, NaN from the step on whose observed values no particle allows, and filter_stats: ess, the effective
    number of particles, resampled, whether they were resampled before the step, and log_increment, the log of the
    estimate of p(y_t | y_1 to y_{t-1}), (run, step), the first given what is observed before the scan; with a guide
    also k_hat, the tail of the ratios that correct it, of which `diagnose` speaks.
    attrs: log_evidence, the log of the mean over runs of the unbiased estimates of p(y), its standard error
    log_evidence_se, which is not a number for one run, and log_evidence_sd, between runs.
    Raises ValueError where the program has no scan over latent states, and for parameters without a value.
    """
    if not isinstance(num_runs, int) or isinstance(num_runs, bool) or num_runs < 1:
        raise ValueError(f"num_runs must be a positive integer, but is {num_runs!r}")
    if not all(0 < level < 1 for level in quantiles):
        raise ValueError(f"quantiles must be between 0 and 1, but are {tuple(quantiles)}")
    settings = ParticleFilter() if settings is None else settings
    with precision_scope():
        bound = bind(model, data)
        space = state_space(bound)
        require_known_parameters(space)
        if settings.guide is not None:
            require_guide(bound, settings.guide)
        levels = jnp.asarray(sorted(set(quantiles)), float)
        keys = jax.random.split(raw_key(key), num_runs)
        summaries, stats, log_evidences = jax.device_get(_runs(keys, settings, space, bound, levels))
        tree = _as_tree(summaries, stats, np.asarray(levels), bound, data)
        tree.attrs = evidence_summary(log_evidences)
        return tree


@partial(jax.jit, static_argnums=(1, 2))
def _runs(
    keys: Array, settings: ParticleFilter, space: StateSpace, bound: Bound, levels: Array
) -> tuple[Summaries, Values, Array]:
    """Summaries of the states, and what is told of every step, of several runs (run, step, ...), and estimates of the
    log evidence (run,)."""

    def record(particles: Particles) -> tuple[Summaries, Values]:
        stats = {
            "ess": particles.ess,
            "resampled": particles.resampled,
            "log_increment": particles.log_increment,
        }
        if settings.guide is not None:
            stats["k_hat"] = particles.k_hat
        return _summaries(particles, levels), stats

    start, (summaries, stats) = jax.lax.map(lambda key: run_filter(key, settings, space, bound, {}, record), keys)
    log_evidences = start.log_increment[:, None] + jnp.cumsum(stats["log_increment"], 1)
    is_lost = jnp.isneginf(log_evidences)

    def unless_lost(summary: Array) -> Array:
        return jnp.where(is_lost.reshape(is_lost.shape + (1,) * (summary.ndim - 2)), jnp.nan, summary)

    return jax.tree.map(unless_lost, summaries), stats, log_evidences[:, -1]


def _summaries(particles: Particles, levels: Array) -> Summaries:
    """Means, standard deviations and quantiles (quantile, *site) of the states of one step."""
    weights, means, sds, quantiles = jnp.exp(particles.log_weight), {}, {}, {}
    for name, value in particles.values.items():
        flat = value.reshape(len(weights), -1).astype(float)
        mean = weights @ flat
        means[name] = mean.reshape(value.shape[1:])
        sds[name] = jnp.sqrt(weights @ (flat - mean) ** 2).reshape(value.shape[1:])
        if len(levels):
            at = jax.vmap(partial(_weighted_quantiles, weights, levels), 1, 1)(flat)
            quantiles[name] = at.reshape(len(levels), *value.shape[1:])
    return {"mean": means, "sd": sds, "quantile": quantiles}


def _weighted_quantiles(weights: Array, levels: Array, values: Array) -> Array:
    """The least values (level,) that as much of the weight as the levels say is at or below."""
    order = jnp.argsort(values)
    places = jnp.searchsorted(jnp.cumsum(weights[order]), levels)
    return values[order][jnp.minimum(places, len(values) - 1)]


def _as_tree(summaries: Summaries, stats: Values, levels: np.ndarray, bound: Bound, data: Data) -> "DataTree":
    from xarray import Dataset, DataTree

    entries = read_entries(data)
    dims, coords = dimensions(bound, entries), coordinates(bound, entries)
    groups: dict[str, Any] = {}
    for summary, sites in summaries.items():
        leading = ("run", "quantile") if summary == "quantile" else ("run",)
        arrays = {
            name: _quantiles_first(value) if summary == "quantile" else np.asarray(value)
            for name, value in sites.items()
        }
        dataset = Dataset({name: ((*leading, *dims[name]), value) for name, value in arrays.items()})
        labels = {"quantile": levels} | coords
        groups[f"filtered/{summary}"] = dataset.assign_coords({d: labels[d] for d in dataset.dims if d in labels})
    time = dims[next(iter(summaries["mean"]))][0]
    groups["filter_stats"] = Dataset({name: (("run", time), value) for name, value in stats.items()})
    return DataTree.from_dict({name: group for name, group in groups.items() if group})


def _quantiles_first(value: Array) -> np.ndarray:
    """Quantiles (run, quantile, step, ...) of (run, step, quantile, ...)."""
    return np.moveaxis(np.asarray(value), 2, 1)


def evidence_summary(log_evidences: np.ndarray) -> dict[str, float]:
    """The log of the mean of unbiased estimates of an evidence, given their logs (run,), its standard error to first
    order, and the standard deviation of the logs between runs."""
    number, largest = len(log_evidences), log_evidences.max()
    if not np.isfinite(largest):
        return {"log_evidence": float(largest), "log_evidence_se": np.nan, "log_evidence_sd": np.nan}
    shares = np.exp(log_evidences - largest)
    several = number > 1
    error = shares.std(ddof=1) / np.sqrt(number) / shares.mean() if several else np.nan
    return {
        "log_evidence": float(largest + np.log(shares.mean())),
        "log_evidence_se": float(error),
        "log_evidence_sd": float(log_evidences.std(ddof=1)) if several else np.nan,
    }
