"""Accelerated ascents: fixed-point iterations that never lower an objective, by over-relaxation and Anderson
acceleration.

A step such as one of EM, or a sweep of mean field, moves in the right direction, but little where what it knows of one
site depends much on another. While it gains much, the next step starts farther along the same way (over-relaxation:
Salakhutdinov and Roweis 2003, Adaptive overrelaxed bound optimization methods). Close to the end, it starts where the
last few steps lead if the map is linear (Anderson 1965, doi:10.1145/321296.321305). A step that lowers the objective is
undone, and the next one starts at the best point itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

ANDERSON_DEPTH = 3
"""The number of differences between steps that Anderson acceleration uses."""
OVERRELAXATION_FACTOR = 1.8
"""The over-relaxation factor of steps far from the end. Below 2, as a step that is right in one coordinate after the
other is then not undone."""
MAX_NATS_OF_LINEAR_STEP = 0.3
"""The gain of a step, in nats, below which the map counts as linear."""


class Ascent(NamedTuple):
    """The state of an accelerated ascent.

    best: what the last step that was kept returned. objective: the objective of the best.
    at: flat coordinates where the next step starts. leapt: whether these were extrapolated and are not those of best.
    inputs, outputs: flat coordinates before and after the last steps, a row a step, one row more than differences that
    are used; the last output is that of the best.
    number: how many of the last rows are of steps that follow each other.
    converged: whether no step follows.
    """

    best: Any
    objective: Array
    at: Array
    leapt: Array
    inputs: Array
    outputs: Array
    number: Array
    converged: Array


Step = Callable[[Any, Array, Array], tuple[Any, Array, Array]]
"""(best, at, leapt) -> what one step from `at` returns, its flat coordinates, its objective."""


def initial_ascent(best: Any, coordinates: Array, objective: Array | float) -> Ascent:
    """The state of an ascent before its first step.

    coordinates: flat coordinates of best. objective: of best; minus infinity where it is not known.
    """
    steps = jnp.broadcast_to(coordinates, (ANDERSON_DEPTH + 1, *coordinates.shape))
    false = jnp.array(False)
    return Ascent(
        best, jnp.asarray(objective, coordinates.dtype), coordinates, false, steps, steps, jnp.array(0), false
    )


def ascent_step(state: Ascent, step: Step, done: Callable[[Array, Array], Array]) -> Ascent:
    """The state after one more step, and the same state where it has converged.

    done: (gain, largest relative change of a coordinate) -> whether a step that was not extrapolated is the last.
    """
    return jax.lax.cond(state.converged, lambda state: state, lambda state: _accelerated_step(state, step, done), state)


def _accelerated_step(state: Ascent, step: Step, done: Callable[[Array, Array], Array]) -> Ascent:
    """The state after one step, which is kept where it raises the objective and undone where it does not."""
    new, coordinates, objective = step(state.best, state.at, state.leapt)
    gain = objective - state.objective
    improves = gain > 0
    is_done = done(gain, jnp.abs(coordinates - state.at).max(initial=0.0) / (1 + jnp.abs(coordinates).max(initial=0.0)))
    inputs = jnp.concatenate([state.inputs[1:], state.at[None]])
    outputs = jnp.concatenate([state.outputs[1:], coordinates[None]])
    number = jnp.minimum(state.number + 1, ANDERSON_DEPTH + 1)
    is_near_end = gain < MAX_NATS_OF_LINEAR_STEP
    extrapolates = improves & ~is_done & (~is_near_end | (number > 1))
    extrapolation = jnp.where(
        is_near_end,
        anderson_extrapolation(inputs, outputs, number),
        state.at + OVERRELAXATION_FACTOR * (coordinates - state.at),
    )
    accepted = Ascent(
        new,
        objective,
        jnp.where(extrapolates, extrapolation, coordinates),
        extrapolates,
        inputs,
        outputs,
        number,
        improves,
    )
    zeros = jnp.zeros_like(improves)
    rejected = state._replace(at=state.outputs[-1], leapt=zeros, number=jnp.zeros_like(number))
    chosen = jax.tree.map(lambda a, b: jnp.where(improves, a, b), accepted, rejected)
    return chosen._replace(converged=~state.leapt & (is_done | ~improves) & jnp.isfinite(state.objective))


def anderson_extrapolation(inputs: Array, outputs: Array, number: Array) -> Array:
    """The fixed point of the linear map through the last inputs and outputs, by least squares: Anderson acceleration.

    number: how many of the last rows follow each other; others are not used.
    """
    steps = outputs - inputs
    is_known = (jnp.arange(ANDERSON_DEPTH) >= ANDERSON_DEPTH + 1 - number)[:, None]
    step_differences, output_differences = (
        jnp.where(is_known, jnp.diff(rows, axis=0), 0.0) for rows in (steps, outputs)
    )
    size = jnp.linalg.norm(step_differences, axis=1, keepdims=True)
    scale = jnp.where(size > 0, size, 1.0)
    step_differences, output_differences = step_differences / scale, output_differences / scale
    ridge = 10 * jnp.finfo(steps.dtype).eps * jnp.eye(ANDERSON_DEPTH, dtype=steps.dtype)
    weights = jnp.linalg.solve(step_differences @ step_differences.T + ridge, step_differences @ steps[-1])
    return outputs[-1] - weights @ output_differences
