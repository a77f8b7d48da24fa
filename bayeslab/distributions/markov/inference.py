"""Inference of a Markov chain: the recursion that suits the processor and the shapes, and its derivatives.

On a CPU that is the one of `bayeslab.distributions.markov.blocked` where it is worthwhile, and that of `sequential`
elsewhere, where numbers would leave their range, and on an accelerator. All functions take initial
(*batch, K), transition (*batch, 1 or T - 1, K, K), log_likelihood (*batch, T, K), an array or factored, and active
(*batch, T - 1), whether the chain moves after a step, or None if it always does.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

import bayeslab.distributions.markov.backward_sampling as draws
import bayeslab.distributions.markov.blocked as lanes
import bayeslab.distributions.markov.log_recursion as logs
import bayeslab.distributions.markov.paths as paths
import bayeslab.distributions.markov.sequential as stepwise
import bayeslab.distributions.markov.viterbi as viterbi
from bayeslab.distributions.markov.expected_counts import Derivatives, log_likelihood_derivatives, stepwise_counts
from bayeslab.distributions.markov.lanes import Lanes, lanes_are_worthwhile, make_lanes
from bayeslab.distributions.markov.log_likelihoods import FactoredLogLikelihood, LogLikelihood, dense
from bayeslab.distributions.markov.sequential import Active, Scaled, log, weigh_rows
from bayeslab.distributions.processor import on_accelerator


def with_batched_vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled, where `jax.vmap` adds an axis to the batch, so that it decides from numbers once for all;
    it has no derivatives."""

    @custom_vmap
    def mapped(*arguments: Any) -> Any:
        return function(*arguments)

    @mapped.def_vmap
    def map_rule(size: int, is_mapped: Any, *arguments: Any) -> Any:
        lifted = [
            jax.tree.map(lambda x, own: x if own else x[None], *pair) for pair in zip(arguments, is_mapped, strict=True)
        ]
        log_likelihood = lifted[2]
        if isinstance(log_likelihood, FactoredLogLikelihood):
            lifted[2] = log_likelihood.spread((size, *log_likelihood.batch[1:]), log_likelihood.dtype)
        else:
            lifted[2] = jnp.broadcast_to(log_likelihood, (size, *log_likelihood.shape[1:]))
        results = mapped(*lifted)
        return results, jax.tree.map(lambda _: True, results)

    @wraps(function)
    @jax.jit
    def call(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active, *rows: Array) -> Any:
        batch = log_likelihood.ndim - 2

        def with_batch(x: Array, event: int) -> Array:
            return x.reshape((1,) * (batch + event - x.ndim) + x.shape)

        active = None if active is None else with_batch(active, 1)
        rows = tuple(with_batch(row, 1) for row in rows)
        return mapped(with_batch(initial, 1), with_batch(transition, 3), log_likelihood, active, *rows)

    return call


def _with_derivatives_of(fast: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """The fast function with the derivatives of the plain one, which has the same values."""

    @jax.custom_jvp
    def call(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Any:
        return fast(initial, transition, log_likelihood, active)

    @call.defjvp
    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        *arguments, active = primals
        return jax.jvp(lambda *variables: plain(*variables, active), tuple(arguments), tangents[:3])

    return call


@with_batched_vmap
def _log_evidence(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    """The log evidence, without derivatives."""

    def by_steps(log_likelihood: Array) -> Array:
        if logs.suits_logs(log_likelihood.shape):
            return logs.log_marginal(log(initial), log(transition), log_likelihood, active)
        return stepwise.forward(initial, transition, log_likelihood, active)[2]

    if not in_lanes(transition, log_likelihood.shape):
        return by_steps(dense(log_likelihood))
    layout = make_lanes(initial, transition, log_likelihood, active)
    value, in_range = lanes.log_marginal(layout)
    return lax.cond(in_range, lambda: value, lambda: by_steps(dense(_from_lanes(log_likelihood, layout))))


def _if_in_range(in_range: Array, fast: Any, by_steps: Callable[[], Any]) -> Any:
    """The fast results where all numbers kept their range, else those of the recursion step after step.

    They pass as vectors: XLA would lay out the arrays of both as suits the second, which costs the first a copy.
    """
    chosen = lax.cond(in_range, lambda: jax.tree.map(jnp.ravel, fast), lambda: jax.tree.map(jnp.ravel, by_steps()))
    return jax.tree.map(lambda flat, like: flat.reshape(like.shape), chosen, fast)


@with_batched_vmap
def _fast_counts(
    initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active
) -> tuple[Array, Derivatives]:
    if not in_lanes(transition, log_likelihood.shape):
        return stepwise_counts(initial, transition, log_likelihood, active)
    layout = make_lanes(initial, transition, log_likelihood, active)
    counts = lanes.expected_counts(
        layout, lanes.EXPECTED_ROWS if isinstance(log_likelihood, FactoredLogLikelihood) else lanes.STATE_PROBABILITIES
    )
    return _if_in_range(
        counts.in_range,
        (counts.log_marginal, (counts.first, counts.moves, counts.visits)),
        lambda: stepwise_counts(initial, transition, _from_lanes(log_likelihood, layout), active),
    )


value_and_derivatives = _with_derivatives_of(_fast_counts, stepwise_counts)
"""The log evidence with its derivatives, `Derivatives`."""


@jax.custom_jvp
def log_marginal(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    """The log evidence: the log of the sum over paths of the probability of the path times its likelihood."""
    return _log_evidence(initial, transition, log_likelihood, active)


@partial(log_marginal.defjvp, symbolic_zeros=True)
def _log_marginal_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """The derivative by Fisher's identity: of expected counts, cheaper than through the recursion, finite at zeros."""
    *chain, log_likelihood, active = primals
    *changes, change, _ = tangents
    if isinstance(log_likelihood, FactoredLogLikelihood):
        if not _is_zero(change.rows.laid):
            all_changes = jax.tree.map(_dense_tangent, (*changes, change), is_leaf=_is_zero)
            return jax.jvp(
                lambda *x: log_marginal(*x[:2], x[2].array(), active),
                (*chain, log_likelihood),
                all_changes,
            )
        change = change.parameters
    value, (first, transitions, visits) = value_and_derivatives(*primals)
    terms = (first, changes[0], -1), (transitions, changes[1], (-3, -2, -1)), (visits, change, (-2, -1))
    slopes = ((count * change).sum(axes) for count, change, axes in terms if not _is_zero(change))
    return value, sum(slopes, jnp.zeros_like(value))


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _dense_tangent(tangent: Any) -> Array:
    return jnp.zeros(tangent.shape, tangent.dtype) if _is_zero(tangent) else tangent


@with_batched_vmap
def _fast_states(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    if not in_lanes(transition, log_likelihood.shape):
        return _stepwise_states(initial, transition, log_likelihood, active)
    layout = make_lanes(initial, transition, log_likelihood, active)
    counts = lanes.expected_counts(layout, lanes.STATE_PROBABILITIES)
    return _if_in_range(
        counts.in_range,
        counts.visits,
        lambda: _stepwise_states(initial, transition, _from_lanes(log_likelihood, layout), active),
    )


def _stepwise_states(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    return stepwise_counts(initial, transition, dense(log_likelihood), active)[1][2]


smoothed = _with_derivatives_of(_fast_states, _stepwise_states)
"""Returns p(z_t | all observations), (*batch, T, K)."""


class Expected(NamedTuple):
    """Expectations of the chain given all observations.

    first: p(z_1). moves: expected transitions, with the axis of steps of `transition`.
    visits: p(z_t), or the expected rows of factored log likelihoods. entropy: (*batch,).
    """

    first: Array
    moves: Array
    visits: Array
    entropy: Array


@with_batched_vmap
def _fast_expected(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Expected:
    value, (first, transitions, visits) = _fast_counts(initial, transition, log_likelihood, active)

    def fast() -> Expected:
        factors = log_likelihood.parameters if isinstance(log_likelihood, FactoredLogLikelihood) else log_likelihood
        states, pairs = first * initial, transitions * transition
        likelihood_terms = (
            jnp.where(visits > 0, visits * factors, 0.0) if factors is log_likelihood else visits * factors
        )
        prior_terms = weighted_log(states, initial).sum(-1) + weighted_log(pairs, transition).sum((-3, -2, -1))
        return Expected(states, pairs, visits, value - likelihood_terms.sum((-2, -1)) - prior_terms)

    return lax.cond(
        jnp.isfinite(value).all(), fast, lambda: _stepwise_expected(initial, transition, log_likelihood, active)
    )


@jax.jit
def _stepwise_expected(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Expected:
    first, matrices = conditioned(initial, transition, log_likelihood, active)
    no_likelihood = jnp.zeros((*first.shape[:-1], *log_likelihood.shape[-2:]), first.dtype)
    states = predicted(first, matrices, no_likelihood, active)
    pairs = expected_transitions(states, matrices, active)
    entropy = -weighted_log(first, first).sum(-1) - weighted_log(pairs, matrices).sum((-3, -2, -1))
    transitions = pairs.sum(-3, keepdims=True) if transition.shape[-3] == 1 else pairs
    return Expected(states[..., 0, :], transitions, log_likelihood_derivatives(log_likelihood, states), entropy)


expected = _with_derivatives_of(_fast_expected, _stepwise_expected)
"""Returns `Expected` of the chain given all observations."""


def weighted_log(weight: Array, probs: Array) -> Array:
    """The product weight log(probs), 0 where the weight is 0."""
    return jnp.where(weight > 0, weight * log(probs), 0.0)


def expected_transitions(states: Array, transition: Array, active: Active) -> Array:
    """The expected transitions (*batch, T - 1, K, K) of a chain with these marginals (*batch, T, K)."""
    pairs = states[..., :-1, :, None] * transition
    return pairs if active is None else jnp.where(active[..., None, None], pairs, 0.0)


@jax.jit
def predicted(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    """The predicted probabilities p(z_t | observations before t)."""
    return stepwise.forward(initial, transition, dense(log_likelihood), active)[0].probabilities()


@jax.jit
def filtered(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    """The filtered probabilities p(z_t | observations up to t)."""
    return stepwise.forward(initial, transition, dense(log_likelihood), active)[1].probabilities()


@jax.jit
def conditioned(
    initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active
) -> tuple[Array, Array]:
    """The initial probabilities and the matrices, one for each transition, of the chain given all observations."""
    if logs.suits_logs(log_likelihood.shape):
        return logs.conditional_probs(log(initial), log(transition), dense(log_likelihood), active)
    later = stepwise.backward(transition, dense(log_likelihood), active)
    first = _reweighted(initial[..., None, :], later.at(np.s_[..., 0, :]))
    return first[..., 0, :], _reweighted(transition, later.at(np.s_[..., 1:, :]))


@jax.jit
def viterbi_path(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Array:
    """The most probable path (*batch, T) given all observations, by the Viterbi algorithm."""
    if not in_lanes(transition, log_likelihood.shape):
        return paths.viterbi_path(initial, transition, dense(log_likelihood), active)
    return viterbi.viterbi_path(make_lanes(log(initial), log(transition), log_likelihood, active))


draw = jax.jit(paths.draw)
"""Draws paths of a chain, see `bayeslab.distributions.markov.paths`."""


@with_batched_vmap
def conditioned_draw(
    initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active, uniform: Array
) -> Array:
    """A path (*batch, T) given all observations, by inverse cumulative distributions at uniform (*batch, T)."""
    layout = make_lanes(initial, transition, log_likelihood, active)

    def by_steps() -> Array:
        uniform_by_step = jnp.moveaxis(jnp.broadcast_to(uniform, layout.shape), -1, 0)
        initial_probs, matrices = conditioned(initial, transition, _from_lanes(log_likelihood, layout), active)
        return paths.draw(initial_probs, matrices, active, uniform_by_step)

    path, in_range = draws.sample_path(layout, uniform)
    return lax.cond(in_range, lambda: path, by_steps)


def _from_lanes(log_likelihood: LogLikelihood, layout: Lanes) -> LogLikelihood:
    """The log likelihoods, if they are an array from its lanes, so that it is in memory once."""
    return log_likelihood if isinstance(log_likelihood, FactoredLogLikelihood) else layout.array()


def in_lanes(transition: Array, shape: tuple[int, ...]) -> bool:
    """Whether recursions in lanes are worthwhile. shape: the shape of the log likelihoods."""
    return not on_accelerator() and lanes_are_worthwhile(shape, transition.shape)


def _reweighted(matrix: Array, message: Scaled) -> Array:
    """Rows of matrix[i, j] message[j], normalised; those of the matrix where all of a row is 0."""
    weight = weigh_rows(matrix, message)
    total = weight.sum(-1, keepdims=True)
    return jnp.where(total == 0, matrix, weight / jnp.where(total == 0, 1, total))
