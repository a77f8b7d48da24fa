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
MAX_SHARE_OF_LINEAR_STEP = 1e-4
"""The gain of a step as a share of the objective, below which the map counts as linear: nats grow with rows."""
MIN_GAIN_OF_START_NATS = 0.1
"""The gain of a step, in nats, below which an ascent ends where other methods go on from its end."""


class Ascent(NamedTuple):
    """The state of an accelerated ascent.

    best: what the last step that was kept returned, nothing where its coordinates say all. objective: the objective of
    the best, or before the last step that was kept, where a step gives no other.
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
LaggedStep = Callable[[Array], tuple[Array, Array]]
"""A function of coordinates that returns the coordinates after a step, and the objective before it."""


def initial_ascent(best: Any, coordinates: Array, objective: Array | float) -> Ascent:
    """The state of an ascent before its first step.

    coordinates: flat coordinates of best. objective: of best; minus infinity where it is not known. A number gets the
    type of the coordinates.
    """
    steps = jnp.broadcast_to(coordinates, (ANDERSON_DEPTH + 1, *coordinates.shape))
    false = jnp.array(False)
    objective = objective if isinstance(objective, Array) else jnp.asarray(objective, coordinates.dtype)
    return Ascent(best, objective, coordinates, false, steps, steps, jnp.array(0), false)


def initial_lagged_ascent(coordinates: Array) -> Ascent:
    """The same for steps that give the objective before them, in the precision of numbers by default."""
    return initial_ascent((), coordinates, jnp.asarray(-jnp.inf, jnp.result_type(float)))


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
    inputs, outputs, number = _with_step(state, coordinates)
    is_near_end = gain < jnp.maximum(MAX_NATS_OF_LINEAR_STEP, MAX_SHARE_OF_LINEAR_STEP * jnp.abs(objective))
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
    chosen = jax.tree.map(lambda a, b: jnp.where(improves, a, b), accepted, without_memory(state))
    return chosen._replace(converged=~state.leapt & (is_done | ~improves) & jnp.isfinite(state.objective))


def lagged_ascent_step(
    state: Ascent,
    step: LaggedStep,
    clip_coordinates: Callable[[Array], Array],
    min_gain: float = MIN_GAIN_OF_START_NATS,
) -> Ascent:
    """The state after one step and one Anderson extrapolation; an extrapolation that lowered the objective is undone.

    Steps that give the objective before them say a step late whether an extrapolation was worth it.
    clip_coordinates: returns the nearest feasible coordinates.
    min_gain: the ascent has converged when a step that no extrapolation came before gains less, in nats.
    """
    after, objective = step(state.at)
    gain = objective - state.objective
    noise = 4 * jnp.finfo(objective.dtype).eps * jnp.abs(objective)
    inputs, outputs, number = _with_step(state, after)
    small = gain < min_gain + noise
    extrapolates = (number > 1) & ~small  # what an extrapolation gains says nothing of the end: a plain step follows
    extrapolation = clip_coordinates(anderson_extrapolation(inputs, outputs, number))
    ahead = jnp.where(extrapolates, extrapolation, after)
    accepted = Ascent((), objective, ahead, extrapolates, inputs, outputs, number, small & ~state.leapt)
    is_kept = ~state.leapt | (gain > -noise)
    return jax.tree.map(lambda a, b: jnp.where(is_kept, a, b), accepted, without_memory(state))


def maximize(
    state: Ascent,
    step: LaggedStep,
    clip_coordinates: Callable[[Array], Array],
    max_steps: int,
    min_gain: float = MIN_GAIN_OF_START_NATS,
) -> Ascent:
    """The state after the ascent has converged, or after `max_steps` steps."""

    def unfinished(carry: tuple[Array, Ascent]) -> Array:
        return (carry[0] < max_steps) & ~carry[1].converged

    def take_step(carry: tuple[Array, Ascent]) -> tuple[Array, Ascent]:
        return carry[0] + 1, lagged_ascent_step(carry[1], step, clip_coordinates, min_gain)

    return jax.lax.while_loop(unfinished, take_step, (jnp.array(0), state))[1]


def _with_step(state: Ascent, after: Array) -> tuple[Array, Array, Array]:
    """Inputs, outputs and their number with one more step, from where the state is."""
    inputs = jnp.concatenate([state.inputs[1:], state.at[None]])
    outputs = jnp.concatenate([state.outputs[1:], after[None]])
    return inputs, outputs, jnp.minimum(state.number + 1, ANDERSON_DEPTH + 1)


def without_memory(state: Ascent) -> Ascent:
    """The state back at the end of its last step that was kept, with nothing remembered."""
    return state._replace(at=state.outputs[-1], leapt=jnp.zeros_like(state.leapt), number=jnp.zeros_like(state.number))


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
