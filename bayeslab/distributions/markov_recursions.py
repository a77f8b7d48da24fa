"""The two recursions of a discrete Markov chain with evidence about its states one by one, step after step.

With f_t(j) = exp(evidence[t, j]), the evidence for state j at step t,

    forward     a_1 = initial,    a_{t+1}(j) = sum_i a_t(i) w_t(i) transition_t[i, j]
    backward    r_T = w_T,        r_t(i) = w_t(i) sum_j transition_t[i, j] r_{t+1}(j)

where w_t = f_t / s_t and s_t = sum_j a_t(j) f_t(j) keeps probabilities in range (Rabiner 1989, section V.A). Then
a_t is p(z_t | evidence before t), the product of all s_t is the evidence, and r_t is p(z_t | all evidence) / a_t.

All functions take initial (*batch, K), transition (*batch, 1 or T - 1, K, K), evidence (*batch, T, K), and moving
(*batch, T - 1), where the chain does not move at all, or None if it always does.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Moving = Array | None


def forward(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Array, Array]:
    """a and w of the module's formulas (*batch, T, K), and log s (*batch, T)."""

    def step(filtered: Array, matrix: Array, evidence: Array) -> tuple[Array, Any]:
        predicted = (filtered[..., :, None] * matrix).sum(-2)
        filtered, weight, log_scale = weigh(predicted, evidence)
        return filtered, (predicted, weight, log_scale)

    steps = jnp.moveaxis(evidence, -2, 0)
    predicted = jnp.broadcast_to(initial, steps.shape[1:])
    filtered, weight, log_scale = weigh(predicted, steps[0])
    rest = _scan(step, filtered, transition, moving, steps[1:])
    a, w, log_s = (jnp.concatenate([x[None], y]) for x, y in zip((predicted, weight, log_scale), rest, strict=True))
    return jnp.moveaxis(a, 0, -2), jnp.moveaxis(w, 0, -2), jnp.moveaxis(log_s, 0, -1)


def weigh(predicted: Array, evidence: Array) -> tuple[Array, Array, Array]:
    """What evidence about one state (*batch, K) makes of a prediction: filtered, w and log s of the formulas."""
    # Only states that can be reached set the scale: others may be likelier than those by any factor.
    peak = jnp.where(predicted > 0, evidence, -jnp.inf).max(-1, keepdims=True)
    peak = lax.stop_gradient(jnp.where(jnp.isneginf(peak), 0, peak))
    factor = jnp.exp(jnp.minimum(evidence - peak, math.log(_largest(evidence)) / 2))
    scale = (predicted * factor).sum(-1, keepdims=True)
    weight = jnp.minimum(factor / jnp.where(scale == 0, 1, scale), _largest(evidence))
    return predicted * weight, weight, (peak + log(scale))[..., 0]


def backward(transition: Array, weight: Array, moving: Moving) -> Array:
    """r of the module's formulas (*batch, T, K); bounded where a state cannot be reached, hence never NaN."""

    def step(ratio: Array, matrix: Array, weight: Array) -> tuple[Array, Array]:
        ratio = jnp.minimum(weight * (matrix * ratio[..., None, :]).sum(-1), _largest(weight))
        return ratio, ratio

    steps = jnp.moveaxis(weight, -2, 0)
    rest = _scan(step, steps[-1], transition, moving, steps[:-1], reverse=True)
    return jnp.moveaxis(jnp.concatenate([rest, steps[-1:]]), 0, -2)


def best_path(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """The most probable path (*batch, T): backwards the best rest of the path, forwards the path itself."""

    def back(rest: Array, matrix: Array, evidence: Array) -> tuple[Array, tuple[Array, Array]]:
        ways = log(matrix) + rest[..., None, :]
        rest = evidence + ways.max(-1)
        return rest, (rest, ways.argmax(-1))

    def forth(state: Array, best: Array) -> tuple[Array, Array]:
        state = jnp.take_along_axis(best, state[..., None], -1)[..., 0]
        return state, state

    steps = jnp.moveaxis(evidence, -2, 0)
    rest, best = _scan(back, steps[-1], transition, moving, steps[:-1], reverse=True)
    after = rest[0] if len(steps) > 1 else steps[-1]
    first = jnp.argmax(log(initial) + after, -1)
    path = jnp.concatenate([first[None], lax.scan(forth, first, best)[1]])
    return jnp.moveaxis(path, 0, -1)


def draw(initial: Array, transition: Array, moving: Moving, uniform: Array) -> Array:
    """Paths (*sample, *batch, T): inverse cumulative distributions at uniform (T, *sample, *batch)."""

    def invert(below: Array, uniform: Array) -> Array:
        return (below <= uniform[..., None]).sum(-1, dtype=jnp.int32)

    def step(state: Array, below: Array, uniform: Array) -> tuple[Array, Array]:
        rows = below[(*np.ix_(*map(np.arange, below.shape[:-2])), state)]
        state = invert(rows, uniform)
        return state, state

    first = invert(_cumulative(initial), uniform[0])
    transition = at_rest(transition, moving)
    rest = _scan(step, first, _cumulative(transition), None, uniform[1:])
    return jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, -1)


def at_rest(transition: Array, moving: Moving) -> Array:
    """Matrices with those of a chain that does not move in their places."""
    if moving is None:
        return transition
    return jnp.where(moving[..., None, None], transition, jnp.eye(transition.shape[-1], dtype=transition.dtype))


def log(x: Array) -> Array:
    """log x, with derivative 0 at 0: what is impossible pulls at nothing."""
    return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))


def _scan(step: Callable, start: Array, transition: Array, moving: Moving, inputs: Array, reverse: bool = False) -> Any:
    """The outputs of step(carry, matrix, input), the steps on the first axis of inputs and outputs."""
    matrices = None if transition.shape[-3] == 1 else jnp.moveaxis(transition, -3, 0)
    moves = None if moving is None else jnp.moveaxis(moving, -1, 0)

    def at(carry: Array, one: tuple[Array | None, Moving, Array]) -> Any:
        matrix, moves, given = one
        if matrix is None:
            matrix = transition[..., 0, :, :]
        return step(carry, at_rest(matrix, moves), given)

    return lax.scan(at, start, (matrices, moves, inputs), reverse=reverse)[1]


def _largest(x: Array) -> float:
    """A bound below the largest float of x, so that a million of it can be added."""
    return float(jnp.finfo(x.dtype).max) / 2**20


def _cumulative(probs: Array) -> Array:
    """The cumulative distribution, without the rounding that would give mass to a state of probability 0."""
    below = lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs, -1), 0), axis=probs.ndim - 1)
    return below / below[..., -1:]
