"""What evidence says of a Markov chain: the recursion that suits the processor and the shapes, and its derivatives.

On a CPU that is `markov_lanes` where it pays, and `markov_recursions` elsewhere and where numbers would leave their
range; on an accelerator `markov_parallel`. All functions take initial (*batch, K), transition (*batch, 1 or T - 1,
K, K), evidence (*batch, T, K), and moving (*batch, T - 1) or None.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

import bayeslab.distributions.markov_draws as draws
import bayeslab.distributions.markov_lanes as lanes
import bayeslab.distributions.markov_parallel as parallel
import bayeslab.distributions.markov_paths as paths
import bayeslab.distributions.markov_recursions as stepwise
from bayeslab.distributions.markov_recursions import Moving, log

Counts = tuple[Array, Array, Array]
"""Derivatives of the log of the evidence with respect to initial probabilities, matrices and evidence."""


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
        lifted[2] = jnp.broadcast_to(lifted[2], (size, *lifted[2].shape[1:]))
        found = mapped(*lifted)
        return found, jax.tree.map(lambda _: True, found)

    @wraps(function)
    @jax.jit
    def call(initial: Array, transition: Array, evidence: Array, moving: Moving, *rows: Array) -> Any:
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
    def call(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Any:
        return fast(initial, transition, evidence, moving)

    @call.defjvp
    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        *arguments, moving = primals
        return jax.jvp(lambda *given: plain(*given, moving), tuple(arguments), tangents[:3])

    return call


@_batched
def _evidence(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    def by_steps(evidence: Array) -> Array:
        return _recursions().forward(initial, transition, evidence, moving)[2].sum(-1)

    if not in_lanes(transition, evidence):
        return by_steps(evidence)
    laid = lanes.lanes_of(initial, transition, evidence, moving)
    found, kept = lanes.log_marginal(laid)
    return lax.cond(kept, lambda: found, lambda: by_steps(laid.given()))


@_batched
def _fast_counts(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Counts]:
    if not in_lanes(transition, evidence):
        return _stepwise_counts(initial, transition, evidence, moving)
    laid = lanes.lanes_of(initial, transition, evidence, moving)
    found = lanes.counts(laid)
    return lax.cond(
        found.kept,
        lambda: (found.log_marginal, (found.first, found.moves, found.states)),
        lambda: _stepwise_counts(initial, transition, laid.given(), moving),
    )


@jax.jit
def _stepwise_counts(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Counts]:
    predicted, weight, log_scale = _recursions().forward(initial, transition, evidence, moving)
    ratio = _recursions().backward(transition, weight, moving)
    before, after = (predicted * weight)[..., :-1, :], ratio[..., 1:, :]
    if moving is not None:
        before = jnp.where(moving[..., None], before, 0.0)
    if transition.shape[-3] == 1:
        moves = jnp.einsum("...ti,...tj->...ij", before, after, precision="highest")[..., None, :, :]
    else:
        moves = before[..., :, None] * after[..., None, :]
    return log_scale.sum(-1), (ratio[..., 0, :], moves, predicted * ratio)


_counts = _differentiated(_fast_counts, _stepwise_counts)
"""The log of the evidence with its derivatives, `Counts`."""


@jax.custom_jvp
def log_marginal(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """The log of the sum over paths of the chain times the evidence."""
    return _evidence(initial, transition, evidence, moving)


@log_marginal.defjvp
def _log_marginal_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Fisher's identity: derivatives are expected counts, cheaper than through the recursion and finite at zeros."""
    value, (first, moves, states) = _counts(*primals)
    from_initial = (first * tangents[0]).sum(-1)
    from_transition = (moves * tangents[1]).sum((-3, -2, -1))
    return value, from_initial + from_transition + (states * tangents[2]).sum((-2, -1))


def smoothed(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """p(z_t | all evidence)."""
    return _counts(initial, transition, evidence, moving)[1][2]


@_batched
def _fast_expected(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Array]:
    value, (_, moves, states) = _fast_counts(initial, transition, evidence, moving)
    return lax.cond(
        jnp.isfinite(value).all(),
        lambda: (states, moves * transition),
        lambda: _stepwise_expected(initial, transition, evidence, moving),
    )


@jax.jit
def _stepwise_expected(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Array]:
    first, matrices = conditioned(initial, transition, evidence, moving)
    states = predicted(first, matrices, jnp.zeros_like(evidence), moving)
    moves = expected_moves(states, matrices, moving)
    return states, moves.sum(-3, keepdims=True) if transition.shape[-3] == 1 else moves


expected = _differentiated(_fast_expected, _stepwise_expected)
"""Of the conditioned chain: p(z_t | all evidence), and its expected moves on the axis of steps of `transition`."""


def expected_moves(states: Array, transition: Array, moving: Moving) -> Array:
    """Of a chain with these marginals, (*batch, T - 1, K, K)."""
    moves = states[..., :-1, :, None] * transition
    return moves if moving is None else jnp.where(moving[..., None, None], moves, 0.0)


@jax.jit
def predicted(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """p(z_t | evidence before t)."""
    return _recursions().forward(initial, transition, evidence, moving)[0]


@jax.jit
def filtered(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """p(z_t | evidence up to t)."""
    predicted, weight, _ = _recursions().forward(initial, transition, evidence, moving)
    return predicted * weight


@jax.jit
def conditioned(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Array]:
    """Initial probabilities and matrices, one a move, given all evidence."""
    _, weight, _ = _recursions().forward(initial, transition, evidence, moving)
    ratio = _recursions().backward(transition, weight, moving)
    return _tilt(initial, ratio[..., 0, :]), _tilt(transition, ratio[..., 1:, None, :])


@jax.jit
def best_path(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """The most probable path given all evidence."""
    if not in_lanes(transition, evidence):
        return stepwise.best_path(initial, transition, evidence, moving)
    return paths.best_path(lanes.lanes_of(log(initial), log(transition), evidence, moving))


draw = jax.jit(stepwise.draw)


@_batched
def conditioned_draw(initial: Array, transition: Array, evidence: Array, moving: Moving, uniform: Array) -> Array:
    """A path (*batch, T) given all evidence, by inverse cumulative distributions at uniform (*batch, T), in lanes."""

    laid = lanes.lanes_of(initial, transition, evidence, moving)

    def by_steps() -> Array:
        rows = jnp.moveaxis(jnp.broadcast_to(uniform, laid.shape), -1, 0)
        initial_probs, matrices = conditioned(initial, transition, laid.given(), moving)
        return stepwise.draw(initial_probs, matrices, moving, rows)

    found, kept = draws.draw(laid, uniform)
    return lax.cond(kept, lambda: found, by_steps)


def _recursions() -> Any:
    return stepwise if jax.default_backend() == "cpu" else parallel


def in_lanes(transition: Array, evidence: Array) -> bool:
    return jax.default_backend() == "cpu" and lanes.pays(evidence.shape, transition.shape)


def _tilt(probs: Array, ratio: Array) -> Array:
    """probs * ratio, normalised; probs where nothing is left."""
    weight = probs * ratio
    total = weight.sum(-1, keepdims=True)
    return jnp.where(total == 0, probs, weight / jnp.where(total == 0, 1, total))
