"""Paths of a discrete Markov chain, step after step: the most probable one, and draws.

On an accelerator blocks of steps advance side by side (`scan_in_blocks`). What a block does to log probabilities is a
matrix under maxima in place of sums; what it does to a state, once pointers or uniform numbers are known, is a table of
the states that follow each. So paths are the same as step by step, but for rounding of log probabilities.

All functions take the arguments of `bayeslab.distributions.markov.sequential`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.block_scan import of_every_state, scan_in_blocks
from bayeslab.distributions.markov.sequential import (
    Active,
    identity_where_inactive,
    log,
    matrices_by_step,
    unit_vectors,
)


def viterbi_path(initial: Array, transition: Array, log_likelihood: Array, active: Active) -> Array:
    """The most probable path (*batch, T), by the Viterbi algorithm from the last step to the first.

    Backwards it finds the log probability of the best continuation from every state, forwards it follows the path.
    """
    matrices, matrix_at = matrices_by_step(transition, active)

    def back(best_later: Array, item: tuple[Any, Array]) -> tuple[Array, Array]:
        log_probs = log(matrix_at(item[0])) + best_later[..., None, :]
        return item[1] + log_probs.max(-1), log_probs.argmax(-1)

    def join(block: Array, best_later: Array) -> Array:
        return (jnp.moveaxis(best_later, -1, 0)[..., None] + block).max(0)

    def forth(state: Array, pointers: Array) -> tuple[Array, Array]:
        state = jnp.take_along_axis(pointers, state[..., None], -1)[..., 0]
        return state, state

    steps = jnp.moveaxis(log_likelihood, -2, 0)
    effects = of_every_state(back, log(unit_vectors(steps[-1])), join)
    later, pointers = scan_in_blocks(back, effects, steps[-1], (matrices, steps[:-1]), reverse=True)
    return _follow(forth, jnp.argmax(log(initial) + later, -1), pointers, initial.shape[-1])


def draw(initial: Array, transition: Array, active: Active, uniform: Array) -> Array:
    """Paths (*sample, *batch, T) of the chain, by inverse cumulative distributions at uniform (T, *sample, *batch)."""

    def invert(cumulative: Array, uniform: Array) -> Array:
        return (cumulative <= uniform[..., None]).sum(-1, dtype=jnp.int32)

    cumulative = _cdf(identity_where_inactive(transition, active))
    by_step, cumulative_at = matrices_by_step(cumulative, None)

    def step(state: Array, item: tuple[Any, Array]) -> tuple[Array, Array]:
        table = cumulative_at(item[0])
        state = invert(table[(*np.ix_(*map(np.arange, table.shape[:-2])), state)], item[1])
        return state, state

    return _follow(step, invert(_cdf(initial), uniform[0]), (by_step, uniform[1:]), initial.shape[-1])


def _follow(step: Any, first: Array, inputs: Any, states: int) -> Array:
    """The states (..., T) from the first one and what leads from every one to the next."""
    every_state = jnp.arange(states, dtype=first.dtype).reshape(-1, *(1,) * first.ndim)
    effects = of_every_state(
        step,
        jnp.broadcast_to(every_state, (states, *first.shape)),
        lambda block, state: jnp.take_along_axis(block, state[None], 0)[0],
    )
    later = scan_in_blocks(step, effects, first, inputs)[1]
    return jnp.moveaxis(jnp.concatenate([first[None], later]), 0, -1)


def _cdf(probs: Array) -> Array:
    """The cumulative distribution, without the rounding that would let a state of probability 0 be drawn."""
    cumulative = lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs, -1), 0), axis=probs.ndim - 1)
    return cumulative / cumulative[..., -1:]
