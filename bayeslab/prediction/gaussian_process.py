"""What a result says of a Gaussian process at new inputs: moments without simulation, and joint draws."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Normal

from bayeslab.elimination.conditional import likelihood_message
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.gaussian_processes.dense import NUGGET_PER_VARIANCE, Dense
from bayeslab.gaussian_processes.distribution import ConditionedProcess, solver_of
from bayeslab.prediction.processes.new_inputs import (
    PredictedProcess,
    ProcessDraws,
    at_new_inputs,
    prior_process,
    sites_at,
)
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.programs.wrapped_distributions import innermost_distribution

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

MIN_DRAWS_OF_ROWS = 400
"""Draws of latent sites of new rows that moments are averaged over, at least."""
RELATIVE_TOLERANCE = 1e-10
"""The largest difference between numbers that are the same, relative to what they are computed from."""


def process_at(
    model: Program,
    data: Data,
    tree: "DataTree",
    new: Data,
    *,
    covariance: bool = False,
    slope: bool = False,
) -> "Dataset":
    """Mean and standard deviation of a Gaussian process at new inputs, averaged over the draws of its parameters.

    model, data, tree: of the fit; the tree needs draws of all that the process depends on, and of the process itself
    only where it has no conditional in closed form. new: the arguments that are others at the new inputs, x for
    example; there may be many of these, since they are taken in blocks.
    Returns f and f_sd (row,) under the name of the process and y and y_sd (row,) of a new measurement, only for Normal
    responses whose location is affine in f, row by row, and whose scale depends on neither f nor latent sites of rows.
    Latent sites of rows, as an effect of each, are drawn from their prior at the new inputs. Categories have the codes
    of the fit.
    covariance: also f_covariance (row, row_). slope: also f_slope (row, input), the derivative of the mean of f by the
    inputs, without that of the prior mean. attrs: solver; for another one than the dense, how far it is from that on
    at most 500 rows at the medians of the parameters: see `distance_from_dense`.
    Raises ValueError where the program has no Gaussian process, or more than one, for other data than those of the fit,
    for new inputs with other columns than theirs, and for categories that the fit does not know.
    """
    with precision_scope():
        fit_bound, new_bound, draws, asked = at_new_inputs(model, data, tree, new, min_draws=MIN_DRAWS_OF_ROWS)
        asked = asked._replace(responses=_affine_responses(new_bound, draws, asked))
        moments = jax.device_get(_averaged_moments(fit_bound, new_bound, draws, asked, (covariance, slope)))
        medians = {name: jnp.median(value, axis=0) for name, value in draws.fitted.items()}
        return _dataset(moments, asked.site, new).assign_attrs(_solver_attributes(fit_bound, medians, asked))


def process_components(model: Program, data: Data, tree: "DataTree", new: Data) -> "Dataset":
    """What each term of a sum of kernels adds to a process: f and f_sd (component, row) at new inputs.

    Components are in the order of the sum, without the prior mean, and add up to f but for it. Arguments as for
    `process_at`, and what it raises; ValueError as well for a process that is not computed by its covariance matrix.
    """
    with precision_scope():
        fit_bound, new_bound, draws, asked = at_new_inputs(model, data, tree, new, min_draws=MIN_DRAWS_OF_ROWS)
        prior = prior_process(fit_bound, draws.at(0).fitted, asked.site)
        if not isinstance(solver_of(prior.kernel, prior.x, prior.solver), Dense):
            raise ValueError(f"components need the covariance matrix; give '{asked.site}' the solver Dense()")
        mean, within, square = jax.device_get(_component_moments(fit_bound, new_bound, draws, asked))
        deviation = np.sqrt(within + np.maximum(square - mean**2, 0.0))
        components = _dataset({asked.site: mean, f"{asked.site}_sd": deviation}, asked.site, new)
        return components.assign_coords(component=np.arange(len(mean)))


def process_draws(key: Array | int, model: Program, data: Data, tree: "DataTree", new: Data) -> "Dataset":
    """Functions at new inputs, jointly for all of them: one draw for every draw of the result, (chain, draw, row).

    Arguments and errors as for `process_at`. Time grows with the cube of the number of inputs, old and new, where the
    process is dense.
    """
    with precision_scope():
        fit_bound, new_bound, draws, asked = at_new_inputs(model, data, tree, new, jax.random.fold_in(raw_key(key), 1))
        chains, num_draws = (tree["posterior"].sizes[name] for name in ("chain", "draw"))
        keys = jax.random.split(raw_key(key), chains * num_draws)
        functions = jax.device_get(_joint_draws(keys, fit_bound, new_bound, draws, asked))
        return _dataset({asked.site: functions.reshape(chains, num_draws, -1)}, asked.site, new)


def distance_from_dense(
    precision: Array, linear: Array, prior: GaussianProcess, num_rows: int = 500
) -> dict[str, float]:
    """How far the solver of a process is from the covariance matrix, on rows that this can handle.

    precision, linear: the information pair about its values, each (row,). Half of num_rows rows are conditioned on,
    taken evenly in the order that they are given in, with the outermost ones, and the others are predicted, or all
    where there are none.
    Returns dense_rows, log_marginal_error (nats), mean_error and sd_error (the largest, in dense standard deviations).
    """
    rows = np.unique(np.linspace(0, len(prior.x) - 1, min(num_rows, len(prior.x))).astype(int))
    inputs = np.asarray(prior.x)[rows].reshape(len(rows), -1)
    outermost = rows[np.concatenate([inputs.argmin(0), inputs.argmax(0)])]
    fitted = np.union1d(rows[::2], outermost)
    predicted = np.setdiff1d(rows, fitted) if len(fitted) < len(rows) else rows
    answers = []
    for solver in (prior.solver, Dense()):
        process = GaussianProcess(prior.kernel, prior.x[fitted], prior.mean_values[fitted], solver)
        conditioned = process.condition(precision[fitted], linear[fitted])
        moments = conditioned.moments_at(prior.x[predicted], prior.mean_values[predicted])
        answers.append((process.log_marginal(precision[fitted], linear[fitted]), moments))
    (log_marginal, (mean, variance)), (dense_log_marginal, (dense_mean, dense_variance)) = answers
    spread = jnp.sqrt(dense_variance)
    return {
        "dense_rows": len(fitted),
        "log_marginal_error": float(log_marginal - dense_log_marginal),
        "mean_error": float(jnp.abs((mean - dense_mean) / spread).max()),
        "sd_error": float(jnp.abs(jnp.sqrt(variance / dense_variance) - 1).max()),
    }


def _solver_attributes(bound: Bound, values: Values, asked: PredictedProcess) -> dict[str, Any]:
    """The name of the solver and, unless it is the dense one, how far it is from that at some parameters."""
    conditioned = _condition_process(bound, values, asked)
    solver = solver_of(conditioned.prior.kernel, conditioned.prior.x, conditioned.prior.solver)
    columns = {"solver": type(solver).__name__}
    if isinstance(solver, Dense):
        return columns
    prior = GaussianProcess(conditioned.prior.kernel, conditioned.prior.x, conditioned.prior.mean_values, solver)
    return columns | distance_from_dense(conditioned.precision, conditioned.linear, prior)


def _affine_responses(bound: Bound, draws: ProcessDraws, asked: PredictedProcess) -> tuple[str, ...]:
    """The responses that are Normal, with a location that is affine in f, row by row, and a scale without f and without
    latent sites of the row."""
    shape, values = bound.sites[asked.site].shape, draws.at(0).there
    wave = 3 * jnp.sin(1.0 + jnp.arange(prod(shape))).reshape(shape)
    zero, one, *others = (sites_at(bound, values, asked.site, at) for at in (0.0, 1.0, wave, -wave))
    other_rows = sites_at(bound, values | draws.at(-1).new_rows, asked.site)

    def holds(name: str) -> bool:
        runs = [innermost_distribution(sites[name]["fn"]) for sites in (zero, one, *others, other_rows)]
        if not all(isinstance(fn, Normal) and fn.loc.shape == fn.batch_shape == shape for fn in runs):
            return False
        start, slope, scale = _response_line(name, zero, one)
        rounding = RELATIVE_TOLERANCE * (abs(start) + abs(slope)) * (1 + abs(wave))
        lines = zip((wave, -wave), runs[2:4], strict=True)
        straight = all((abs(start + slope * f - fn.loc) <= rounding).all() for f, fn in lines)
        return straight and all((abs(fn.scale - scale) <= RELATIVE_TOLERANCE * scale).all() for fn in runs)

    return tuple(name for name in asked.responses if holds(name))


def _response_line(name: str, zero: dict[str, Any], one: dict[str, Any]) -> tuple[Array, Array, Array]:
    """The location of a response at f = 0, its slope by f, and its scale, from the sites at f = 0 and f = 1."""
    start, end = (innermost_distribution(sites[name]["fn"]) for sites in (zero, one))
    return start.loc, end.loc - start.loc, start.scale


def _condition_process(bound: Bound, values: Values, asked: PredictedProcess) -> ConditionedProcess:
    """The process given its children, or given its own draw."""
    if asked.rule is not None:
        process, natural_parameters = likelihood_message(asked.rule, asked.of, bound, values)
        return innermost_distribution(process).condition(*natural_parameters[:2])
    prior, value = prior_process(bound, values, asked.site), values[asked.site]
    precision = jnp.full(value.shape, 1 / (NUGGET_PER_VARIANCE * prior.kernel(prior.x).mean()))
    return prior.condition(precision, precision * value)


@partial(jax.jit, static_argnames=("asked", "more"))
def _averaged_moments(
    here: Bound, there: Bound, draws: ProcessDraws, asked: PredictedProcess, more: tuple[bool, bool]
) -> dict[str, Array]:
    """Means and standard deviations of the process and of its responses at new inputs, by name, averaged over draws.

    Variances are those within draws and those between them. more: whether the covariance and the slope are wanted.
    """
    covariance, slope = more
    first = sites_at(there, draws.at(0).there, asked.site)
    offsets = {name: innermost_distribution(first[name]["fn"]).loc for name in asked.responses}

    def moments_of_draw(draw: ProcessDraws) -> dict[str, Array]:
        conditioned = _condition_process(here, draw.fitted, asked)
        sites, others = (sites_at(there, draw.there, asked.site, f) for f in (0.0, 1.0))
        new = innermost_distribution(sites[asked.site]["fn"])
        mean, variance = conditioned.moments_at(new.x, new.mean)
        moments = {"mean": mean, "within": variance, "square": mean**2}
        for name in asked.responses:
            start, slopes, scale = _response_line(name, sites, others)
            centre = start - offsets[name] + slopes * mean
            moments |= {f"{name} mean": centre, f"{name} square": centre**2}
            moments[f"{name} within"] = slopes**2 * variance + scale**2
        if covariance:
            within = conditioned.covariance_at(new.x)
            moments["covariance"] = within + mean[:, None] * mean
        if slope:
            moments["slope"] = conditioned.slope_at(new.x)
        return moments

    if not draws.number:
        total = moments_of_draw(draws)
    else:
        start = jax.tree.map(jnp.zeros_like, jax.eval_shape(moments_of_draw, draws.at(0)))

        def add(total: dict[str, Array], one: ProcessDraws) -> tuple[dict[str, Array], None]:
            return jax.tree.map(jnp.add, total, moments_of_draw(one)), None

        total = jax.lax.scan(add, start, draws)[0]
    average = {name: value / max(draws.number, 1) for name, value in total.items()}
    mean = average["mean"]
    variance = average["within"] + jnp.maximum(average["square"] - mean**2, 0.0)
    moments = {asked.site: mean, f"{asked.site}_sd": jnp.sqrt(variance)}
    for name in asked.responses:
        centre, square, within = (average[f"{name} {part}"] for part in ("mean", "square", "within"))
        deviation = jnp.sqrt(within + jnp.maximum(square - centre**2, 0.0))
        moments |= {name: offsets[name] + centre, f"{name}_sd": deviation}
    if covariance:
        moments[f"{asked.site}_covariance"] = average["covariance"] - mean[:, None] * mean
    if slope:
        moments[f"{asked.site}_slope"] = average["slope"]
    return moments


@partial(jax.jit, static_argnames="asked")
def _component_moments(
    here: Bound, there: Bound, draws: ProcessDraws, asked: PredictedProcess
) -> tuple[Array, Array, Array]:
    """The means over draws of the mean, of the variance and of the squared mean of every term of the kernel."""
    from bayeslab.gaussian_processes.kernels import terms_of

    def moments_of_draw(draw: ProcessDraws) -> tuple[Array, Array, Array]:
        conditioned = _condition_process(here, draw.fitted, asked)
        new = prior_process(there, draw.there, asked.site).x
        each = [conditioned.moments_of(part, new) for part in terms_of(conditioned.prior.kernel)]
        mean, variance = (jnp.stack(moment) for moment in zip(*each, strict=True))
        return mean, variance, mean**2

    return (
        jax.tree.map(lambda each: each.mean(0), jax.lax.map(moments_of_draw, draws))
        if draws.number
        else moments_of_draw(draws)
    )


@partial(jax.jit, static_argnames="asked")
def _joint_draws(keys: Array, here: Bound, there: Bound, draws: ProcessDraws, asked: PredictedProcess) -> Array:
    """A draw of the process at new inputs for every key and draw of its parameters (draw, row)."""

    def draw(at: tuple[Array, ProcessDraws]) -> Array:
        key, values = at
        conditioned = _condition_process(here, values.fitted, asked)
        new = prior_process(there, values.there, asked.site)
        return conditioned.sample_at(key, new.x, new.mean)

    return jax.lax.map(draw, (keys, draws))


def _dataset(summaries: Mapping[str, Any], site: str, new: Data) -> "Dataset":
    """The results as a Dataset, with the names that the new inputs have; raises ValueError where one is no number."""
    from xarray import Dataset

    labels: Sequence[Any] = next((e.labels[0] for e in read_entries(new).values() if e.labels.get(0) is not None), ())
    ends = {"_covariance": ("row", "row_"), "_slope": ("row", "input")}
    kinds = {1: ("row",), 2: ("component", "row"), 3: ("chain", "draw", "row")}
    values = np.asarray(summaries[site])
    if (lost := np.isnan(values).any(tuple(range(values.ndim - 1)))).any():
        raise ValueError(
            f"site '{site}' has no value at position {int(lost.argmax())} of the new inputs: it is outside of the box "
            "of HilbertSpace, whose boundary has to be larger, or the covariance there is not positive"
        )
    variables = {}
    for name, value in summaries.items():
        dims = next((dims for end, dims in ends.items() if name == site + end), kinds[value.ndim])
        variables[name] = (dims, np.asarray(value))
    result = Dataset(variables)
    return result.assign_coords(row=list(labels)) if len(labels) == result.sizes["row"] else result
