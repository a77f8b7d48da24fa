"""The forward and backward recursions of chains in logarithms, step after step.

With scores s_t(j) of states, which are log likelihoods, and m_t(i, j) of moves, which are log probabilities,

    forward     a_1 = initial,  a_{t+1}(j) = log sum_i exp(a_t(i) + s_t(i) + m_t(i, j))
    backward    b_T = s_T,      b_t(i) = s_t(i) + log sum_j exp(m_t(i, j) + b_{t+1}(j))

These are exact for scores of any range, also of moves, compile several times sooner than recursions of probabilities,
and run as fast for few states. Messages are divided by one number a step, so that no digit is lost to their size.

All functions take initial (*batch, K), moves (*batch, 1 or T - 1, K, K), -inf for what is impossible, states
(*batch, T, K), and active (*batch, T - 1), False at steps after which the chain stays where it is, or None if it always
moves.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.markov.sequential import Active, log, zero_if_infinite
from bayeslab.distributions.processor import on_accelerator

MAX_MOVES_IN_LOGS = 5_000
"""Sequences times steps times moves from state to state up to which logarithms are as fast as probabilities."""


class Messages(NamedTuple):
    """The messages of both recursions, each but for a number of its own, and the log evidence (*batch,).

    predicted: a_t of the module's formulas (*batch, T, K). filtered: a_t + s_t, but for the number of the predicted
    message that follows (*batch, T - 1, K). later: b_t (*batch, T, K).
    """

    predicted: Array
    filtered: Array
    later: Array
    log_marginal: Array


def suits_logs(shape: tuple[int, ...]) -> bool:
    """Whether logarithms are about as fast as probabilities. shape: (*batch, T, K), of scores of states."""
    return prod(shape) * shape[-1] <= MAX_MOVES_IN_LOGS and not on_accelerator()


def log_marginal(initial: Array, moves: Array, states: Array, active: Active) -> Array:
    """The log of the sum over paths of the exponentials of their scores (*batch,)."""
    later, total = backward(moves, states, active)
    return log_sum(initial + later[..., 0, :]) + total


def conditional_probs(initial: Array, moves: Array, states: Array, active: Active) -> tuple[Array, Array]:
    """The initial probabilities (*batch, K) and matrices (*batch, T - 1, K, K) of the chain with these scores.

    Where nothing is possible, a row or the whole chain, they are those without scores of states.
    """
    later, _ = backward(moves, states, active)
    moves = moves if active is None else stay_where_inactive(moves, active[..., None, None])
    first, rows = initial + later[..., 0, :], moves + later[..., 1:, None, :]
    return exp_over_sum(first, exp_over_sum(initial)), exp_over_sum(rows, exp_over_sum(moves, 1 / moves.shape[-1]))


def messages(initial: Array, moves: Array, states: Array, active: Active) -> Messages:
    """The messages of both recursions."""
    matrices, matrix_at = _by_step(moves, active)

    def step(message: Array, item: tuple[Any, Array]) -> tuple[Array, tuple[Array, Array]]:
        part, states = item
        filtered = message + states
        filtered -= zero_if_infinite(filtered.max(-1, keepdims=True))
        return log_sum(filtered[..., None] + matrix_at(part), -2), (message, filtered)

    by_step = jnp.moveaxis(states, -2, 0)
    start = jnp.broadcast_to(initial, by_step.shape[1:])
    last, (predicted, filtered) = lax.scan(step, start, (matrices, by_step[:-1]))
    predicted = jnp.concatenate([predicted, last[None]])
    later, total = backward(moves, states, active)
    value = log_sum(initial + later[..., 0, :]) + total
    return Messages(jnp.moveaxis(predicted, 0, -2), jnp.moveaxis(filtered, 0, -2), later, value)


def visits(given: Messages) -> Array:
    """The probabilities of states given all scores (*batch, T, K)."""
    return exp_over_sum(given.predicted + given.later)


def expected_pairs(given: Messages, moves: Array, active: Active) -> Array:
    """The probabilities of moves (*batch, T - 1, K, K); summed over the steps (*batch, 1, K, K) if these share scores.

    With zeros in place of the scores, the derivatives of the log marginal with respect to probabilities of moves.
    Numbers are held below the largest float.
    """
    after = given.later[..., 1:, :]
    after -= zero_if_infinite(log_sum(given.predicted[..., 1:, :] + after))[..., None]
    expected = exp_in_range(given.filtered[..., None] + moves + after[..., None, :])
    if active is not None:
        expected = jnp.where(active[..., None, None], expected, 0.0)
    return expected.sum(-3, keepdims=True) if moves.shape[-3] == 1 else expected


def backward(moves: Array, states: Array, active: Active) -> tuple[Array, Array]:
    """The backward recursion: b of the module's formulas (*batch, T, K), each but for a number of its own, and that of
    the first step (*batch,)."""
    matrices, matrix_at = _by_step(moves, active)

    def step(message: tuple[Array, Array], item: tuple[Any, Array]) -> tuple[tuple[Array, Array], Array]:
        (later, total), (part, states) = message, item
        before = states + log_sum(matrix_at(part) + later[..., None, :])
        top = zero_if_infinite(before.max(-1))
        return (before - top[..., None], total + top), later

    by_step = jnp.moveaxis(states, -2, 0)
    start = by_step[-1], jnp.zeros(states.shape[:-2], states.dtype)
    (first, total), later = lax.scan(step, start, (matrices, by_step[:-1]), reverse=True)
    return jnp.moveaxis(jnp.concatenate([first[None], later]), 0, -2), total


def _by_step(moves: Array, active: Active) -> tuple[Any, Callable[[Any], Array]]:
    """What a scan is given for scores of moves, steps first, and the function that gives those of a step from it."""
    by_step = None if moves.shape[-3] == 1 else jnp.moveaxis(moves, -3, 0)

    def moves_at(part: tuple[Array | None, Active]) -> Array:
        scores = moves[..., 0, :, :] if part[0] is None else part[0]
        return scores if part[1] is None else stay_where_inactive(scores, part[1][..., None, None])

    return (by_step, None if active is None else jnp.moveaxis(active, -1, 0)), moves_at


def stay_where_inactive(moves: Array, active: Array) -> Array:
    """Scores of moves, with those of a chain that stays where it is at steps that are not active."""
    return jnp.where(active, moves, jnp.where(jnp.eye(moves.shape[-1], dtype=bool), 0.0, -jnp.inf))


def log_sum(scores: Array, axis: int = -1) -> Array:
    """The log of the sum of exponentials along an axis, whose derivative is 0 where all are zero."""
    top = lax.stop_gradient(zero_if_infinite(scores.max(axis, keepdims=True)))
    return log(jnp.exp(scores - top).sum(axis)) + top.squeeze(axis)


def exp_in_range(x: Array) -> Array:
    """The exponentials of numbers, held so far below the largest float that many can be added."""
    return jnp.exp(jnp.minimum(x, 0.9 * np.log(jnp.finfo(x.dtype).max)))


def exp_over_sum(scores: Array, otherwise: Array | float = 0.0) -> Array:
    """Probabilities along the last axis with these logs, but for a constant; else other numbers, if all are zero."""
    top = lax.stop_gradient(zero_if_infinite(scores.max(-1, keepdims=True)))
    weights = jnp.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return jnp.where(total == 0, otherwise, weights / jnp.where(total == 0, 1, total))
