"""Inference of chains with scores of states and of moves: by probabilities where these are faster, else in logarithms.

The recursions in logarithms are exact for any scores, compile three to ten times sooner, and run as fast for few states
and steps. Those of `bayeslab.distributions.markov.inference` take rows of probabilities, which lose a score that is
below the highest of its row by more than the range of floats: where a score is lost, logarithms are taken.

All functions take the arguments of `bayeslab.distributions.markov.log_recursion`, but for initial scores.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import bayeslab.distributions.markov.inference as chains
import bayeslab.distributions.markov.log_recursion as logs
from bayeslab.distributions.markov.scored.as_chain import chain_of_scores
from bayeslab.distributions.markov.sequential import Active
from bayeslab.distributions.processor import on_accelerator

MAX_STATES_IN_LOGS = 16
"""The largest number of states up to which logarithms, of all moves at every step, are not much slower."""


class Counts(NamedTuple):
    """The log partition (*batch,) and its derivatives: the probabilities of states (*batch, T, K), and the expected
    moves (*batch, 1 or T - 1, K, K), summed over the steps if these share their scores."""

    log_partition: Array
    visits: Array
    moves: Array


def _decided(by_probabilities: Callable[..., Any], by_logs: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is computed in one of two ways, decided once for all that `jax.vmap` adds to the batch."""

    @chains.with_batched_vmap
    def call(_: Array, moves: Array, states: Array, active: Active, *rows: Array) -> Any:
        arguments = states, moves, active, *rows
        if _suits_logs(states.shape, moves):
            return by_logs(*arguments)
        return lax.cond(_loses_scores(moves), lambda: by_logs(*arguments), lambda: by_probabilities(*arguments))

    def decided(states: Array, moves: Array, active: Active, *rows: Array) -> Any:
        dtype = jnp.result_type(states, moves)
        nothing = jnp.zeros(states.shape[-1], dtype)
        return call(nothing, moves.astype(dtype), states.astype(dtype), active, *rows)

    return decided


def _with_derivatives_by_logs(by_probabilities: Callable[..., Any], by_logs: Callable[..., Any]) -> Callable[..., Any]:
    """Such a function with the derivatives of the recursions in logarithms, which are finite for any scores."""
    decided = _decided(by_probabilities, by_logs)

    @jax.custom_jvp
    def call(states: Array, moves: Array, active: Active) -> Any:
        return decided(states, moves, active)

    @call.defjvp
    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        *scores, active = primals
        return jax.jvp(lambda *scores: by_logs(*scores, active), tuple(scores), tangents[:2])

    return call


def _suits_logs(shape: tuple[int, ...], moves: Array) -> bool:
    """Whether recursions in logarithms are about as fast as those of probabilities."""
    return logs.suits_logs(shape) or not (
        on_accelerator() or chains.in_lanes(moves, shape) or shape[-1] > MAX_STATES_IN_LOGS
    )


def _loses_scores(moves: Array) -> Array:
    """Whether the probability of a possible move among those from its state is below the range of floats, scalar."""
    lowest = np.log(jnp.finfo(moves.dtype).tiny) + np.log(moves.shape[-1])
    return ((moves - moves.max(-1, keepdims=True) < lowest) & (moves > -jnp.inf)).any()


def _counts_by_probabilities(states: Array, moves: Array, active: Active) -> Counts:
    initial, transition, log_likelihood = chain_of_scores(states, moves, active)
    value, derivatives = chains.value_and_derivatives(initial, transition, log_likelihood, active)
    return Counts(value, derivatives[2], derivatives[1] * transition)


def _counts_by_logs(states: Array, moves: Array, active: Active) -> Counts:
    messages = logs.messages(_no_scores(states), moves, states, active)
    return Counts(messages.log_marginal, logs.visits(messages), logs.expected_pairs(messages, moves, active))


expected_counts = _with_derivatives_by_logs(_counts_by_probabilities, _counts_by_logs)
"""The log partition and its derivatives, `Counts`."""

_decided_log_partition = _decided(
    lambda states, moves, active: chains.log_marginal(*chain_of_scores(states, moves, active), active),
    lambda states, moves, active: logs.log_marginal(_no_scores(states), moves, states, active),
)


@jax.custom_jvp
def log_partition(states: Array, moves: Array, active: Active) -> Array:
    """The log of the sum over paths of the exponentials of their scores (*batch,)."""
    return _decided_log_partition(states, moves, active)


@log_partition.defjvp
def _log_partition_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """The derivatives are expected counts."""
    value, visits, moves = expected_counts(*primals)
    slopes = (visits * tangents[0]).sum((-2, -1)), (moves * tangents[1]).sum((-3, -2, -1))
    return value, slopes[0] + slopes[1]


conditional_probs = _with_derivatives_by_logs(
    lambda states, moves, active: chains.conditioned(*chain_of_scores(states, moves, active), active),
    lambda states, moves, active: logs.conditional_probs(_no_scores(states), moves, states, active),
)
"""The initial probabilities (*batch, K) and matrices (*batch, T - 1, K, K) of the chain with these scores."""


def _draw_by_probabilities(states: Array, moves: Array, active: Active, uniform: Array) -> Array:
    initial, transition, log_likelihood = chain_of_scores(states, moves, active)
    if chains.in_lanes(moves, states.shape):
        return chains.conditioned_draw(initial, transition, log_likelihood, active, uniform)
    initial, transition = chains.conditioned(initial, transition, log_likelihood, active)
    return chains.draw(initial, transition, active, jnp.moveaxis(uniform, -1, 0))


def _draw_by_logs(states: Array, moves: Array, active: Active, uniform: Array) -> Array:
    initial, transition = logs.conditional_probs(_no_scores(states), moves, states, active)
    return chains.draw(initial, transition, None, jnp.moveaxis(uniform, -1, 0))


draw = _decided(_draw_by_probabilities, _draw_by_logs)
"""A path (*batch, T), by inverse cumulative distributions at uniform (*batch, T)."""


def most_probable_path(states: Array, moves: Array, active: Active) -> Array:
    """The path of the largest score (*batch, T), by the Viterbi algorithm."""
    initial, transition = conditional_probs(states, moves, active)
    return chains.viterbi_path(initial, transition, jnp.zeros_like(states), None)


def _no_scores(states: Array) -> Array:
    """The initial scores of a chain whose scores are those of states and moves alone (K,)."""
    return jnp.zeros(states.shape[-1], states.dtype)
