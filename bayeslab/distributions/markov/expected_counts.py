"""Expected counts of a Markov chain by recursions step after step; see `bayeslab.distributions.markov.inference`.

Many chains with one matrix add their expected transitions up while the backward recursion runs, so that little is in
memory beside the forward messages: a compiled program reserves that memory also where faster recursions give the
answer, and memory that the allocator must fetch anew for every call takes longer than these recursions.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import bayeslab.distributions.markov.log_recursion as logs
import bayeslab.distributions.markov.sequential as stepwise
from bayeslab.distributions.markov.log_likelihoods import FactoredLogLikelihood, LogLikelihood, dense
from bayeslab.distributions.markov.sequential import Active, Scaled, log, power_of_two, zero_if_infinite
from bayeslab.distributions.processor import on_accelerator

Derivatives = tuple[Array, Array, Array]
"""Derivatives of the log evidence with respect to initial probabilities, matrices, and log likelihoods (or parameters
of factored ones)."""
MIN_NUMBERS = 256
"""States times sequences from which on a step takes longer than what a loop needs to add its transitions up."""


@jax.jit
def stepwise_counts(
    initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active
) -> tuple[Array, Derivatives]:
    """The log evidence (*batch,), and its derivatives, which are expected counts."""
    if logs.suits_logs(log_likelihood.shape):
        return _counts_in_logs(initial, transition, log_likelihood, active)
    predicted, filtered, value = stepwise.forward(initial, transition, dense(log_likelihood), active)
    if transition.shape[-3] == 1 and predicted.digits[..., 0, :].size >= MIN_NUMBERS and not on_accelerator():
        first, transitions, states = _adding_up(predicted, transition, dense(log_likelihood), active)
    else:
        first, transitions, states = _all_messages(predicted, filtered, transition, dense(log_likelihood), active)
    return value, (first, transitions, log_likelihood_derivatives(log_likelihood, states))


def _counts_in_logs(
    initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active
) -> tuple[Array, Derivatives]:
    """The expected counts of a chain, from messages in logarithms."""
    start, moves = log(initial), log(transition)
    messages = logs.messages(start, moves, dense(log_likelihood), active)
    later = messages.later[..., 0, :]
    first = logs.exp_in_range(later - zero_if_infinite(logs.log_sum(start + later))[..., None])
    transitions = logs.expected_pairs(messages, jnp.zeros_like(moves), active)
    states = log_likelihood_derivatives(log_likelihood, logs.visits(messages))
    return messages.log_marginal, (first, transitions, states)


def _adding_up(
    predicted: Scaled, transition: Array, log_likelihood: Array, active: Active
) -> tuple[Array, Array, Array]:
    """The expected counts of a chain with one matrix, added up from the last step to the first."""
    parts, matrix_at = stepwise.matrices_by_step(transition, active)

    def step(carry: tuple[Scaled, Scaled, Array], item: tuple[Any, ...]) -> tuple[tuple[Scaled, Scaled, Array], Array]:
        (later, predicted_later, sums), (part, log_likelihood, predicted) = carry, item
        likelihood = stepwise.exponential(log_likelihood)
        before = predicted.times(likelihood)
        before = before.shifted(-stepwise.max_exponent(before)[..., None])
        sums += _expected_transitions(_if_active(before, part[1]), later, predicted_later.times(later).total())
        message = stepwise.propagate(matrix_at(part), later).times(likelihood)
        message = stepwise.normalise_exponent(message)[0]
        return (message, predicted, sums), predicted.times(message).probabilities()

    likelihood, ahead = jax.tree.map(lambda x: jnp.moveaxis(x, -2, 0), (log_likelihood, predicted))
    last = stepwise.exponential(likelihood[-1]), ahead.at(-1)
    start = (*last, jnp.zeros_like(ahead.digits[0][..., None] * transition[..., 0, :, :]))
    earlier = np.s_[:-1]
    items = parts, likelihood[earlier], ahead.at(earlier)
    (later, predicted_first, sums), states = lax.scan(step, start, items, reverse=True)
    states = jnp.concatenate([states, last[1].times(last[0]).probabilities()[None]])
    first = later.divided(predicted_first.times(later).total().at(np.s_[..., None]))
    return first, sums[..., None, :, :], jnp.moveaxis(states, 0, -2)


def _all_messages(
    predicted: Scaled, filtered: Scaled, transition: Array, log_likelihood: Array, active: Active
) -> tuple[Array, Array, Array]:
    """The expected counts of a chain, from the messages of all steps."""
    later = stepwise.backward(transition, log_likelihood, active)
    posterior = predicted.times(later)
    total = posterior.total()
    first = later.at(np.s_[..., 0, :]).divided(total.at(np.s_[..., 0, None]))
    before, after, total = filtered.at(np.s_[..., :-1, :]), later.at(np.s_[..., 1:, :]), total.at(np.s_[..., 1:])
    transitions = _expected_transitions(_if_active(before, active), after, total, transition.shape[-3] == 1)
    return first, transitions, posterior.probabilities()


def _if_active(messages: Scaled, active: Active) -> Scaled:
    """The messages of steps after which the chain moves, and zeros for the others, which expect no transition."""
    if active is None:
        return messages
    return Scaled(jnp.where(active[..., None], messages.digits, 0.0), messages.exponent)


def _expected_transitions(before: Scaled, after: Scaled, total: Scaled, summed: bool = False) -> Array:
    """The ratios before[..., i] after[..., j] / total[...]; if `summed`, their sums over the steps (..., 1, K, K)."""

    def in_common_range() -> Array:
        weights = before.digits * power_of_two(before.exponent, before.digits.dtype)
        if summed:
            return jnp.einsum("...ti,...tj->...ij", weights, ratio, precision="highest")[..., None, :, :]
        return weights[..., :, None] * ratio[..., None, :]

    def with_exponents() -> Array:
        products = before.at(np.s_[..., None]).times(after.at(np.s_[..., None, :]))
        expected = products.divided(total.at(np.s_[..., None, None]))
        return expected.sum(-3, keepdims=True) if summed else expected

    ratio = after.divided(total.at(np.s_[..., None]))
    # A state that is lost below the range of floats matters where the message back to it is beyond that range.
    max_ratio = 2.0 ** (0.9 * jnp.finfo(ratio.dtype).maxexp)
    return lax.cond((ratio > max_ratio).any(), with_exponents, in_common_range)


def log_likelihood_derivatives(log_likelihood: LogLikelihood, states: Array) -> Array:
    """The derivatives of the log evidence with respect to log likelihoods, from p(z_t | all observations)."""
    if not isinstance(log_likelihood, FactoredLogLikelihood):
        return states
    return jnp.einsum("...tk,...tc->...kc", states, log_likelihood.rows.array(), precision="highest")
