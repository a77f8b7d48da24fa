"""Directions along which nothing falls: flat priors of sites that the data do not tell apart.

A posterior that is constant along a line has no integral. Samplers return numbers for it all the same.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpyro.distributions.constraints import real
from scipy.linalg import qr

from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.programs.data import Entry
from bayeslab.programs.program import Bound, Values, precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.unconstrained import describe_direction, with_positive_sign
from bayeslab.programs.wrapped_distributions import describe_constraint
from bayeslab.results.datatree import coordinates, dimensions
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import generic_points, prior_scale_points

MAX_FLAT_COORDINATES = 256
"""Coordinates with flat priors, at most, where a line is looked for."""
SINGULAR_TOLERANCE = 1e-13
"""Share of the largest singular value that rounding leaves of zero, of a curvature with ones in its diagonal."""
LINE_STEPS = np.array([0.0, -1e6, -1e3, -1.0, 1.0, 1e3, 1e6])
"""Steps along a line at which the log joint is compared."""
LONG_LINE_STEPS = np.array([0.0, -1e15, -1e9, -1e3, 1e3, 1e9, 1e15])
"""Steps where there is no curvature at all, as in what counts how many are below a threshold."""
FAR_STEPS = np.array([0.0, 1.0, 1e1, 1e3, 1e6, 1e15])
"""Multiples of the length of an ascent at which the log joint is compared with its end."""
FLAT_STEPS = FAR_STEPS[:-1]
"""Such multiples along a line without curvature, of which computation has a dozen digits."""
MIN_SHARE_OF_DIRECTION = 1e-2
"""Share of the largest step that a coordinate takes, at least, if it moves still."""
NUM_ASCENT_STEPS = 60
"""Steps of L-BFGS in an ascent."""
NUM_CURVATURE_POINTS = 3
"""Points at which the curvature is computed."""


def refuse_improper(bound: Bound, entries: Mapping[str, Entry]) -> None:
    """Raises ValueError where the log joint is constant along a line through sites with flat priors.

    The line is found from the curvatures at a few points, and the log joint is computed along it. Named are the
    coordinates of sites, by their labels where the data have some. Posteriors that are improper in another way are not
    seen; `refuse_separated` sees some.
    """
    bound = bound.plain
    names = _flat_sites(bound)
    if not names:
        return
    size = sum(math.prod(bound.sites[name].shape) for name in names)
    with precision_scope(jnp.float64), np.errstate(all="ignore"):
        wide = in_double_precision(bound)
        value_sets = [values for _, values in [*generic_points(wide), *prior_scale_points(wide)]][
            -NUM_CURVATURE_POINTS:
        ]
        densities_along = _density_along(names)
        curvature = np.stack([evaluate_all([_curvature(names)], (wide, values_at))[0] for values_at in value_sets])
        if not np.isfinite(curvature).all():
            return
        scales = np.sqrt(np.linalg.norm(np.diagonal(curvature, axis1=1, axis2=2), axis=0))
        scales = np.where(scales > 0, scales, 1.0)
        _, lengths, axes = np.linalg.svd((curvature / scales / scales[:, None]).reshape(-1, size))
        for axis in _of_few_coordinates(axes[lengths <= SINGULAR_TOLERANCE * lengths[0]] / scales):
            direction = with_positive_sign(axis)
            steps = (LONG_LINE_STEPS if np.all(curvature @ direction == 0) else LINE_STEPS)[:, None] * direction
            values = np.stack(
                [evaluate_all([densities_along], (wide, values_at, steps))[0] for values_at in value_sets]
            )
            if np.isfinite(values).all() and (np.ptp(values, axis=1) <= 1e-6 * np.maximum(1, abs(values[:, 0]))).all():
                shapes = [(name, bound.sites[name].shape) for name in names]
                raise ValueError(
                    f"the posterior is improper: neither a prior nor the data say anything about "
                    f"{describe_direction(direction, shapes, _labels(bound, names, entries))}; "
                    f"give {_listed(names)} a proper prior, or leave out a column that is a sum of others"
                )


def _of_few_coordinates(directions: np.ndarray) -> np.ndarray:
    """Other directions (direction, coordinate) of the same span: each alone has one of as many coordinates."""
    if len(directions) < 2:
        return directions
    pivots = qr(directions, mode="r", pivoting=True)[1][: len(directions)]
    reduced = np.linalg.solve(directions[:, pivots], directions)
    return np.where(np.abs(reduced) > MIN_SHARE_OF_DIRECTION**3, reduced, 0.0)


def refuse_separated(bound: Bound) -> None:
    """Raises ValueError where the log joint climbs over sites with flat priors, as far as it goes, and never falls.

    So it is where a line separates classes, where a class never occurs and where all counts are zero. An ascent tells.
    """
    bound = bound.plain
    names = _flat_sites(bound)
    if not names:
        return
    with precision_scope(jnp.float64), np.errstate(all="ignore"):
        wide = in_double_precision(bound)
        if _climbs_without_end(names, wide, generic_points(wide)[1][1]):
            raise ValueError(
                f"the posterior is improper: the log density climbs along a line of {_listed(names)} and never falls, "
                f"as where classes can be separated or one never occurs; give {_listed(names)} a proper prior"
            )


def _flat_sites(bound: Bound) -> tuple[str, ...]:
    """The latent sites with flat priors on the real numbers; none where they have too many coordinates."""
    improper = [site for site in bound.sites.values() if site.improper and site.role == "latent"]
    flat = [site for site in improper if site.support == describe_constraint(real) and not site.learned]
    size = sum(math.prod(site.shape) for site in flat)
    return tuple(sorted(site.name for site in flat)) if size <= MAX_FLAT_COORDINATES else ()


def _climbs_without_end(names: tuple[str, ...], bound: Bound, values: Values) -> bool:
    """Whether the log joint is no smaller far away than it is where an ascent over some sites ends.

    Looked at are the line from the start of the ascent, and that on which its last steps lie, without the coordinates
    that hardly move any more: what is bounded has arrived by then. Where other rows hold a sum of what climbs, as where
    the counts of one group alone are zero, the line that they leave free is one without curvature far away.
    """
    middle, end = evaluate_all([_ascent(names)], (bound, values))[0]
    last = end - middle
    if not np.isfinite(end).all() or not np.linalg.norm(end) > 0:
        return False
    lines = [(end, FAR_STEPS)]
    if np.linalg.norm(last) > 0:  # else it has arrived, at a maximum or, as a hinge has one, on a plateau
        kept = np.where(np.abs(last) > MIN_SHARE_OF_DIRECTION * np.abs(last).max(), last, 0.0)
        ahead = kept / np.linalg.norm(kept) * np.linalg.norm(end)
        lines.append((ahead, FAR_STEPS))
        if np.any(flat := _without_curvature(names, bound, values, end + ahead) @ ahead):
            lines.append((flat, FLAT_STEPS))
    for direction, multiples in lines:
        along = evaluate_all([_density_along(names)], (bound, values, end + multiples[:, None] * direction))[0]
        if np.isfinite(along).all() and along.min() >= along[0] - 1e-6 * max(1.0, abs(along[0])):
            return True
    return False


def _without_curvature(names: tuple[str, ...], bound: Bound, values: Values, step: np.ndarray) -> np.ndarray:
    """The projection (coordinate, coordinate) on the directions without curvature where some sites moved by a step."""
    [curvature] = evaluate_all([_curvature(names)], (bound, _moved(names, values, step)))
    if not np.isfinite(curvature).all():
        return np.zeros_like(curvature)
    lengths, axes = np.linalg.eigh(curvature)
    free = axes[:, np.abs(lengths) <= SINGULAR_TOLERANCE * np.abs(lengths).max()]
    return free @ free.T


def _labels(bound: Bound, names: Sequence[str], entries: Mapping[str, Entry]) -> dict[str, list[Sequence[Any]]]:
    """The labels of every axis of sites; numbers where it has none."""
    dims, labels = dimensions(bound, entries), coordinates(bound, entries)
    return {
        name: [labels.get(dim, range(size)) for dim, size in zip(dims[name], bound.sites[name].shape, strict=True)]
        for name in names
    }


def _listed(names: Sequence[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


@lru_cache(maxsize=64)
def _density_along(names: tuple[str, ...]) -> Callable[[Any], Array]:
    """A function that gives the log joint at some steps of some sites, all others given."""

    def values(argument: tuple[Bound, Values, Array]) -> Array:
        bound, at, steps = argument
        return jax.lax.map(lambda step: _moved_density(names, bound, at, step), steps)

    return values


@lru_cache(maxsize=64)
def _ascent(names: tuple[str, ...]) -> Callable[[Any], Array]:
    """A function that gives how far some sites are from a point in the middle and at the end of an ascent from it."""

    def climb(argument: tuple[Bound, Values]) -> Array:
        bound, at = argument
        start = jnp.zeros(sum(at[name].size for name in names))
        optimizer = optax.lbfgs()

        def loss(step: Array) -> Array:
            return -_moved_density(names, bound, at, step)

        def advance(state: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], Array]:
            step, memory = state
            value, gradient = optax.value_and_grad_from_state(loss)(step, state=memory)
            update, memory = optimizer.update(gradient, memory, step, value=value, grad=gradient, value_fn=loss)
            step = optax.apply_updates(step, update)
            return (step, memory), step

        steps = jax.lax.scan(advance, (start, optimizer.init(start)), None, NUM_ASCENT_STEPS)[1]
        return steps[jnp.array([NUM_ASCENT_STEPS // 2, -1])]

    return climb


@lru_cache(maxsize=64)
def _curvature(names: tuple[str, ...]) -> Callable[[Any], Array]:
    """A function that gives the Hessian of the log joint by some sites."""

    def curvature(argument: tuple[Bound, Values]) -> Array:
        bound, at = argument
        size = sum(at[name].size for name in names)
        return jax.hessian(lambda step: _moved_density(names, bound, at, step))(jnp.zeros(size))

    return curvature


def _moved_density(names: tuple[str, ...], bound: Bound, values: Values, step: Array) -> Array:
    """The terms that some sites reach, scalar, where these have moved by a step."""
    reached = [term for term in terms(bound).terms if not term.depends.isdisjoint(names)]
    return sum_of_terms(reached, bound, _moved(names, values, step))


def _moved(names: tuple[str, ...], values: Values, step: Any) -> Values:
    """Values of all sites, where some have moved by a step."""
    moved = dict(values)
    for name in names:
        size = values[name].size
        moved[name], step = values[name] + step[:size].reshape(values[name].shape), step[size:]
    return moved
