"""Steps that never lower an objective, taken farther than they go.

A step such as one of EM, or a sweep of mean field, moves in the right direction, but little where what it knows of one
site depends much on another. While it gains much, the next step starts farther along the same way (Salakhutdinov and
Roweis 2003, Adaptive overrelaxed bound optimization methods); close to the end, where the last few steps lead if the
map is linear (Anderson 1965, doi:10.1145/321296.321305). What lowers the objective is undone, and a step as it is
follows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

MEMORY = 3
"""Differences of steps that are looked at."""
LENGTH = 1.8
"""Of steps far from the end; below 2 a step that is right in one coordinate after the other is not undone."""
CLOSE = 0.3
"""A gain, in nats, below which the map counts as linear."""


class Ascent(NamedTuple):
    """best: what the last step that was kept gave. objective: there.

    at: flat coordinates where the next step starts. leapt: whether that is elsewhere than at the best.
    inputs, outputs: coordinates before and after the last steps, (MEMORY + 1, size); the last output is of the best.
    number: how many of them are one after the other.
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
"""(best, at, leapt) -> what it gives from there, its coordinates, its objective."""


def ascent(best: Any, here: Array, objective: Array | float) -> Ascent:
    """Before the first step."""
    steps = jnp.broadcast_to(here, (MEMORY + 1, *here.shape))
    no = jnp.array(False)
    return Ascent(best, jnp.asarray(objective, here.dtype), here, no, steps, steps, jnp.array(0), no)


def ascended(state: Ascent, step: Step, done: Callable[[Array, Array], Array]) -> Ascent:
    """One step further, unless it has converged.

    done: (gain, largest relative change of a coordinate) -> whether a step that was not leapt to is the last.
    """
    return jax.lax.cond(state.converged, lambda state: state, lambda state: _stepped(state, step, done), state)


def _stepped(state: Ascent, step: Step, done: Callable[[Array, Array], Array]) -> Ascent:
    new, there, objective = step(state.best, state.at, state.leapt)
    gain = objective - state.objective
    grown = gain > 0
    small = done(gain, jnp.abs(there - state.at).max(initial=0.0) / (1 + jnp.abs(there).max(initial=0.0)))
    inputs = jnp.concatenate([state.inputs[1:], state.at[None]])
    outputs = jnp.concatenate([state.outputs[1:], there[None]])
    number = jnp.minimum(state.number + 1, MEMORY + 1)
    close = gain < CLOSE
    leaps = grown & ~small & (~close | (number > 1))
    leap = jnp.where(close, crossing(inputs, outputs, number), state.at + LENGTH * (there - state.at))
    if_grown = Ascent(new, objective, jnp.where(leaps, leap, there), leaps, inputs, outputs, number, grown)
    no = jnp.zeros_like(grown)
    undone = state._replace(at=state.outputs[-1], leapt=no, number=jnp.zeros_like(number))
    kept = jax.tree.map(lambda a, b: jnp.where(grown, a, b), if_grown, undone)
    return kept._replace(converged=~state.leapt & (small | ~grown) & jnp.isfinite(state.objective))


def crossing(inputs: Array, outputs: Array, number: Array) -> Array:
    """Where the map, linear through its last values, stays where it is, as nearly as can be."""
    steps = outputs - inputs
    known = (jnp.arange(MEMORY) >= MEMORY + 1 - number)[:, None]
    changes, moves = (jnp.where(known, jnp.diff(one, axis=0), 0.0) for one in (steps, outputs))
    size = jnp.linalg.norm(changes, axis=1, keepdims=True)
    scale = jnp.where(size > 0, size, 1.0)
    changes, moves = changes / scale, moves / scale
    ridge = 10 * jnp.finfo(steps.dtype).eps * jnp.eye(MEMORY, dtype=steps.dtype)
    weights = jnp.linalg.solve(changes @ changes.T + ridge, changes @ steps[-1])
    return outputs[-1] - weights @ moves
