"""What evidence says of a Markov chain: the recursion that suits the processor and the shapes, and its derivatives.

On a CPU that is `markov_lanes` where it pays, and `markov_recursions` elsewhere and where numbers would leave their
range; on an accelerator `markov_parallel`. All functions take initial (*batch, K), transition (*batch, 1 or T - 1,
K, K), evidence (*batch, T, K), an array or a product, and moving (*batch, T - 1) or None.
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

import bayeslab.distributions.markov.associative as parallel
import bayeslab.distributions.markov.backward_sampling as draws
import bayeslab.distributions.markov.blocked as lanes
import bayeslab.distributions.markov.sequential as stepwise
import bayeslab.distributions.markov.viterbi as paths
from bayeslab.distributions.markov.lanes import Lanes, lanes_of, pays
from bayeslab.distributions.markov.log_likelihoods import Evidence, ProductEvidence, array_of
from bayeslab.distributions.markov.sequential import Moving, Scaled, log, power_of_two, weighed

Counts = tuple[Array, Array, Array]
"""Derivatives of the log of the evidence with respect to initial probabilities, matrices and evidence, or parameters of
a product."""


def _batched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, compiled, whose mapped arguments become one more axis of the batch: what it decides from numbers, it
    decides once for all. It has no derivatives."""

    @custom_vmap
    def mapped(*arguments: Any) -> Any:
        return function(*arguments)

    @mapped.def_vmap
    def spread(size: int, is_mapped: Any, *arguments: Any) -> Any:
        lifted = [
            jax.tree.map(lambda x, own: x if own else x[None], *pair) for pair in zip(arguments, is_mapped, strict=True)
        ]
        evidence = lifted[2]
        if isinstance(evidence, ProductEvidence):
            lifted[2] = evidence.spread((size, *evidence.batch[1:]), evidence.dtype)
        else:
            lifted[2] = jnp.broadcast_to(evidence, (size, *evidence.shape[1:]))
        found = mapped(*lifted)
        return found, jax.tree.map(lambda _: True, found)

    @wraps(function)
    @jax.jit
    def call(initial: Array, transition: Array, evidence: Evidence, moving: Moving, *rows: Array) -> Any:
        batch = evidence.ndim - 2

        def lifted(x: Array, event: int) -> Array:
            return x.reshape((1,) * (batch + event - x.ndim) + x.shape)

        moving = None if moving is None else lifted(moving, 1)
        rows = tuple(lifted(row, 1) for row in rows)
        return mapped(lifted(initial, 1), lifted(transition, 3), evidence, moving, *rows)

    return call


def _differentiated(fast: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """The fast function with the derivatives of the plain one, which has the same values."""

    @jax.custom_jvp
    def call(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Any:
        return fast(initial, transition, evidence, moving)

    @call.defjvp
    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        *arguments, moving = primals
        return jax.jvp(lambda *given: plain(*given, moving), tuple(arguments), tangents[:3])

    return call


@_batched
def _evidence(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    def by_steps(evidence: Array) -> Array:
        return _recursions().forward(initial, transition, evidence, moving)[2]

    if not in_lanes(transition, evidence.shape):
        return by_steps(array_of(evidence))
    laid = lanes_of(initial, transition, evidence, moving)
    found, kept = lanes.log_marginal(laid)
    return lax.cond(kept, lambda: found, lambda: by_steps(array_of(_given(evidence, laid))))


@_batched
def _fast_counts(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> tuple[Array, Counts]:
    if not in_lanes(transition, evidence.shape):
        return _stepwise_counts(initial, transition, evidence, moving)
    laid = lanes_of(initial, transition, evidence, moving)
    found = lanes.counts(laid, lanes.EXPECTED_ROWS if isinstance(evidence, ProductEvidence) else lanes.EVERY_STATE)
    return lax.cond(
        found.kept,
        lambda: (found.log_marginal, (found.first, found.moves, found.visits)),
        lambda: _stepwise_counts(initial, transition, _given(evidence, laid), moving),
    )


@jax.jit
def _stepwise_counts(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> tuple[Array, Counts]:
    predicted, filtered, value = _recursions().forward(initial, transition, array_of(evidence), moving)
    later = _recursions().backward(transition, array_of(evidence), moving)
    both = predicted.times(later)
    total = both.total()
    first = later.at(np.s_[..., 0, :]).divided(total.at(np.s_[..., 0, None]))
    before, after = filtered.at(np.s_[..., :-1, :]), later.at(np.s_[..., 1:, :])
    if moving is not None:
        before = Scaled(jnp.where(moving[..., None], before.digits, 0.0), before.exponent)
    moves = _moves(before, after, total.at(np.s_[..., 1:]), transition.shape[-3] == 1)
    return value, (first, moves, _visits(evidence, both.probabilities()))


def _moves(before: Scaled, after: Scaled, total: Scaled, shared: bool) -> Array:
    """before[t, i] after[t, j] / total[t], added up over the steps if they share one matrix."""

    def near() -> Array:
        one = before.digits * power_of_two(before.exponent, before.digits.dtype)
        if shared:
            return jnp.einsum("...ti,...tj->...ij", one, ratio, precision="highest")[..., None, :, :]
        return one[..., :, None] * ratio[..., None, :]

    def far() -> Array:
        both = before.at(np.s_[..., None]).times(after.at(np.s_[..., None, :]))
        found = both.divided(total.at(np.s_[..., None, None]))
        return found.sum(-3, keepdims=True) if shared else found

    ratio = after.divided(total.at(np.s_[..., None]))
    # A state that is lost below the range of floats matters where what comes after it is beyond that range.
    beyond = 2.0 ** (0.9 * jnp.finfo(ratio.dtype).maxexp)
    return lax.cond((ratio > beyond).any(), far, near)


def _visits(evidence: Evidence, states: Array) -> Array:
    """What derivatives with respect to the evidence are, from p(z_t | all evidence)."""
    if not isinstance(evidence, ProductEvidence):
        return states
    return jnp.einsum("...tk,...tc->...kc", states, evidence.rows.array(), precision="highest")


_counts = _differentiated(_fast_counts, _stepwise_counts)
"""The log of the evidence with its derivatives, `Counts`."""


@jax.custom_jvp
def log_marginal(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    """The log of the sum over paths of the chain times the evidence."""
    return _evidence(initial, transition, evidence, moving)


@partial(log_marginal.defjvp, symbolic_zeros=True)
def _log_marginal_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Fisher's identity: derivatives are expected counts, cheaper than through the recursion and finite at zeros."""
    *chain, evidence, moving = primals
    *changes, change, _ = tangents
    if isinstance(evidence, ProductEvidence):
        if not _is_zero(change.rows.laid):
            changed = jax.tree.map(_full, (*changes, change), is_leaf=_is_zero)
            return jax.jvp(
                lambda *given: log_marginal(*given[:2], given[2].array(), moving), (*chain, evidence), changed
            )
        change = change.parameters
    value, (first, moves, visits) = _counts(*primals)
    parts = (first, changes[0], -1), (moves, changes[1], (-3, -2, -1)), (visits, change, (-2, -1))
    slopes = ((count * change).sum(axes) for count, change, axes in parts if not _is_zero(change))
    return value, sum(slopes, jnp.zeros_like(value))


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _full(tangent: Any) -> Array:
    return jnp.zeros(tangent.shape, tangent.dtype) if _is_zero(tangent) else tangent


@_batched
def _fast_states(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    if not in_lanes(transition, evidence.shape):
        return _stepwise_states(initial, transition, evidence, moving)
    laid = lanes_of(initial, transition, evidence, moving)
    found = lanes.counts(laid, lanes.EVERY_STATE)
    return lax.cond(
        found.kept, lambda: found.visits, lambda: _stepwise_states(initial, transition, _given(evidence, laid), moving)
    )


def _stepwise_states(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    return _stepwise_counts(initial, transition, array_of(evidence), moving)[1][2]


smoothed = _differentiated(_fast_states, _stepwise_states)
"""p(z_t | all evidence)."""


class Expected(NamedTuple):
    """Of the chain given all evidence: p(z_1), expected moves on the axis of steps of `transition`, p(z_t), or expected
    rows of a product, and the entropy (*batch,)."""

    first: Array
    moves: Array
    visits: Array
    entropy: Array


@_batched
def _fast_expected(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Expected:
    value, (first, moves, visits) = _fast_counts(initial, transition, evidence, moving)

    def found() -> Expected:
        given = evidence.parameters if isinstance(evidence, ProductEvidence) else evidence
        states, paths = first * initial, moves * transition
        said = jnp.where(visits > 0, visits * given, 0.0) if given is evidence else visits * given
        of_prior = weighted_log(states, initial).sum(-1) + weighted_log(paths, transition).sum((-3, -2, -1))
        return Expected(states, paths, visits, value - said.sum((-2, -1)) - of_prior)

    return lax.cond(jnp.isfinite(value).all(), found, lambda: _stepwise_expected(initial, transition, evidence, moving))


@jax.jit
def _stepwise_expected(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Expected:
    first, matrices = conditioned(initial, transition, evidence, moving)
    nothing = jnp.zeros((*first.shape[:-1], *evidence.shape[-2:]), first.dtype)
    states = predicted(first, matrices, nothing, moving)
    paths = expected_moves(states, matrices, moving)
    entropy = -weighted_log(first, first).sum(-1) - weighted_log(paths, matrices).sum((-3, -2, -1))
    moves = paths.sum(-3, keepdims=True) if transition.shape[-3] == 1 else paths
    return Expected(states[..., 0, :], moves, _visits(evidence, states), entropy)


expected = _differentiated(_fast_expected, _stepwise_expected)


def weighted_log(weight: Array, probs: Array) -> Array:
    """weight log(probs), 0 where the weight is."""
    return jnp.where(weight > 0, weight * log(probs), 0.0)


def expected_moves(states: Array, transition: Array, moving: Moving) -> Array:
    """Of a chain with these marginals, (*batch, T - 1, K, K)."""
    moves = states[..., :-1, :, None] * transition
    return moves if moving is None else jnp.where(moving[..., None, None], moves, 0.0)


@jax.jit
def predicted(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    """p(z_t | evidence before t)."""
    return _recursions().forward(initial, transition, array_of(evidence), moving)[0].probabilities()


@jax.jit
def filtered(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    """p(z_t | evidence up to t)."""
    return _recursions().forward(initial, transition, array_of(evidence), moving)[1].probabilities()


@jax.jit
def conditioned(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> tuple[Array, Array]:
    """Initial probabilities and matrices, one a move, given all evidence."""
    later = _recursions().backward(transition, array_of(evidence), moving)
    first = _tilt(initial[..., None, :], later.at(np.s_[..., 0, :]))
    return first[..., 0, :], _tilt(transition, later.at(np.s_[..., 1:, :]))


@jax.jit
def best_path(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Array:
    """The most probable path given all evidence."""
    if not in_lanes(transition, evidence.shape):
        return stepwise.best_path(initial, transition, array_of(evidence), moving)
    return paths.best_path(lanes_of(log(initial), log(transition), evidence, moving))


draw = jax.jit(stepwise.draw)


@_batched
def conditioned_draw(initial: Array, transition: Array, evidence: Evidence, moving: Moving, uniform: Array) -> Array:
    """A path (*batch, T) given all evidence, by inverse cumulative distributions at uniform (*batch, T), in lanes."""

    laid = lanes_of(initial, transition, evidence, moving)

    def by_steps() -> Array:
        rows = jnp.moveaxis(jnp.broadcast_to(uniform, laid.shape), -1, 0)
        initial_probs, matrices = conditioned(initial, transition, _given(evidence, laid), moving)
        return stepwise.draw(initial_probs, matrices, moving, rows)

    found, kept = draws.draw(laid, uniform)
    return lax.cond(kept, lambda: found, by_steps)


def _given(evidence: Evidence, laid: Lanes) -> Evidence:
    """The evidence again; an array from its lanes, so that it is in memory once."""
    return evidence if isinstance(evidence, ProductEvidence) else laid.array()


def _recursions() -> Any:
    return stepwise if jax.default_backend() == "cpu" else parallel


def in_lanes(transition: Array, evidence: tuple[int, ...]) -> bool:
    """evidence: its shape."""
    return jax.default_backend() == "cpu" and pays(evidence, transition.shape)


def _tilt(matrix: Array, message: Scaled) -> Array:
    """Rows of matrix[i, j] message[j], normalised; those of the matrix where nothing is left."""
    weight = weighed(matrix, message)
    total = weight.sum(-1, keepdims=True)
    return jnp.where(total == 0, matrix, weight / jnp.where(total == 0, 1, total))
