"""Minimisation of a smooth function plus weighted absolute values, zeros exact.

Newton's method for the smooth part, with its quadratic model plus the absolute values minimised by coordinate descent
in every step: Lee, Sun and Saunders (2014), Proximal Newton-type methods for minimizing composite functions, SIAM
Journal on Optimization 24, 1420-1443; Friedman, Hastie and Tibshirani (2010), Regularization paths for generalized
linear models, Journal of Statistical Software 33. Where the smooth part is quadratic one step is enough.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

MAX_STEPS = 200
"""Newton steps, at most."""
MAX_SWEEPS = 10_000
"""Sweeps of coordinate descent for one step, at most."""
MAX_HALVINGS = 40
"""Halvings of a step that does not descend, at most."""


class Minimum(NamedTuple):
    """Where a minimisation ended. converged: whether no step leads further down."""

    position: Array
    value: Array
    converged: Array


class _State(NamedTuple):
    position: Array
    value: Array
    damping: Array
    steps: Array
    converged: Array


def minimise(smooth: Callable[[Array], Array], weight: Array, centre: Array, start: Array) -> Minimum:
    """The minimum of smooth(u) + sum(weight |u - centre|) near a start.

    weight, centre, start: (coordinate,); a weight of zero makes a coordinate smooth.
    """
    tolerance = jnp.sqrt(jnp.finfo(start.dtype).eps) * 1e-3

    def objective(position: Array) -> Array:
        value = smooth(position) + jnp.sum(weight * jnp.abs(position - centre))
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    def step(state: _State) -> _State:
        gradient, hessian = jax.grad(smooth)(state.position), jax.hessian(smooth)(state.position)
        curvature = hessian + _damping(hessian, state.damping) * jnp.eye(len(start))
        target = _minimum_of_model(curvature, gradient, weight, centre, state.position, tolerance)
        direction = target - state.position
        fall = gradient @ direction + jnp.sum(weight * (jnp.abs(target - centre) - jnp.abs(state.position - centre)))

        is_rounding = -fall <= 16 * jnp.finfo(start.dtype).eps * (1 + jnp.abs(state.value))

        def too_long(at: tuple[Array, Array]) -> Array:
            size, halvings = at
            point = jnp.where(halvings == 0, target, state.position + size * direction)
            is_higher = objective(point) > state.value + 1e-4 * size * fall
            return is_higher & ~is_rounding & (halvings < MAX_HALVINGS)

        size, halvings = jax.lax.while_loop(
            too_long, lambda at: (at[0] / 2, at[1] + 1), (jnp.ones(()), jnp.zeros((), int))
        )
        # a whole step ends where coordinate descent did, so that zeros are exact
        point = jnp.where(halvings == 0, target, state.position + size * direction)
        value = objective(point)
        improves = value < state.value
        is_small = is_rounding | (jnp.max(jnp.abs(direction) / (1 + jnp.abs(target))) <= tolerance)
        damping = jnp.where(halvings == 0, state.damping / 10, jnp.maximum(state.damping, 1e-6) * 10)
        return _State(
            jnp.where(improves | is_small, point, state.position),
            jnp.where(improves | is_small, value, state.value),
            damping,
            state.steps + 1,
            is_small,
        )

    def goes_on(state: _State) -> Array:
        return ~state.converged & (state.steps < MAX_STEPS)

    first = _State(start, objective(start), jnp.zeros(()), jnp.zeros((), int), jnp.array(False))
    last = jax.lax.while_loop(goes_on, step, first)
    return Minimum(last.position, last.value, last.converged & jnp.isfinite(last.value))


def _damping(hessian: Array, extra: Array) -> Array:
    """What has to be added to a Hessian to make it positive definite, and more on request."""
    values = jnp.linalg.eigvalsh(hessian)
    size = jnp.maximum(jnp.max(jnp.abs(values)), 1e-12)
    lowest = values[0]
    return jnp.where(lowest > 1e-12 * size, 0.0, 1e-3 * size - lowest) + extra * size


def _minimum_of_model(
    curvature: Array, gradient: Array, weight: Array, centre: Array, position: Array, tolerance: Array
) -> Array:
    """Where gradient (u - position) + (u - position) curvature (u - position) / 2 + weight |u - centre| is least."""
    diagonal = jnp.diag(curvature)

    def coordinate(index: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        point, slope, change = state  # slope: of the quadratic at the point
        free = point[index] - centre[index] - slope[index] / diagonal[index]
        limit = weight[index] / diagonal[index]
        new = centre[index] + jnp.sign(free) * jnp.maximum(jnp.abs(free) - limit, 0.0)
        difference = new - point[index]
        slope = slope + curvature[:, index] * difference
        return point.at[index].set(new), slope, jnp.maximum(change, jnp.abs(difference) / (1 + jnp.abs(new)))

    def sweep(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        point, slope, _, sweeps = state
        point, slope, change = jax.lax.fori_loop(0, len(position), coordinate, (point, slope, jnp.zeros(())))
        return point, slope, change, sweeps + 1

    def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[2] > tolerance * 1e-2) & (state[3] < MAX_SWEEPS)

    start = (position, gradient, jnp.array(jnp.inf, position.dtype), jnp.zeros((), int))
    return jax.lax.cond(
        jnp.all(weight == 0),
        lambda: position - jnp.linalg.solve(curvature, gradient),
        lambda: jax.lax.while_loop(goes_on, sweep, start)[0],
    )
