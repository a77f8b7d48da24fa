"""The recursions of a linear Gaussian chain, with evidence exp(h' x - x' J x / 2) about its states one by one.

All of them are one operation, a Normal state that meets evidence. For x ~ N(m, C), with F = (I + C J)^-1,

    x given the evidence ~ N(F (m + C h), F C)
    log of the integral  = log_mass + (h - J m)' F d - d' J F d / 2,    for a mean of m + d,

and J or C may be singular, or 0. Forwards this is the Kalman filter, and backwards the information filter, whose
messages make the chain given all evidence a chain again. Both are products of potentials

    N(x_{t+1}; A x_t + b, C) exp(h' x_t - x_t' J x_t / 2),

which are associative, so accelerators multiply them in parallel, in a number of rounds that grows with log T (Särkkä
and García-Fernández 2021, doi:10.1109/TAC.2020.2976316). A processor goes step by step, which is less work.

Steps are on the first axis of every array here; transitions have one step where all share it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax


class Moments(NamedTuple):
    """mean (..., d) and covariance (..., d, d)."""

    mean: Array
    covariance: Array


class Transition(NamedTuple):
    """To x_{t+1} ~ N(matrix x_t + offset, covariance)."""

    matrix: Array
    offset: Array
    covariance: Array


class Evidence(NamedTuple):
    """exp(linear' x - x' precision x / 2)."""

    precision: Array
    linear: Array


class Met(NamedTuple):
    """A state that has met evidence. given: the state then. keep: F. said: of d, the shift of its mean before."""

    given: Moments
    keep: Array
    said: Evidence
    log_mass: Array


class Filtered(NamedTuple):
    """predicted: every state given the evidence before it. filtered: up to it. log_mass: of its evidence."""

    predicted: Moments
    filtered: Moments
    log_mass: Array


class Potential(NamedTuple):
    """Of one state and a later one: a transition, and evidence about the first with a factor exp(log_mass)."""

    transition: Transition
    evidence: Evidence
    log_mass: Array


compiled = partial(jax.jit, static_argnames="parallel")


def meet(state: Moments, evidence: Evidence) -> Met:
    """A Normal state and evidence about it."""
    (mean, covariance), (precision, linear) = state, evidence
    keep, log_determinant = _inverse(jnp.eye(mean.shape[-1], dtype=mean.dtype) + covariance @ precision)
    smaller, quadratic = _symmetric(keep @ covariance), _symmetric(precision @ keep)
    pull = _times(keep.mT, linear - _times(precision, mean))
    squares = _dot(linear, _times(smaller, linear)) + _dot(mean, _times(keep.mT, linear) + pull)
    given = Moments(_times(keep, mean + _times(covariance, linear)), smaller)
    return Met(given, keep, Evidence(quadratic, pull), (squares - log_determinant) / 2)


def moved(state: Moments, move: Transition) -> Moments:
    """The state after a transition."""
    covariance = move.matrix @ state.covariance @ move.matrix.mT + move.covariance
    return Moments(_times(move.matrix, state.mean) + move.offset, _symmetric(covariance))


@compiled
def conditioned(start: Moments, moves: Transition, evidence: Evidence, parallel: bool) -> tuple[Moments, Transition]:
    """The first state, and the transitions, given all evidence."""
    met, first, _ = _backward(moves, evidence, parallel)
    return meet(start, first).given, Transition(met.keep @ moves.matrix, *met.given)


@compiled
def log_mass(start: Moments, moves: Transition, evidence: Evidence, parallel: bool) -> Array:
    """The log of the integral of the chain times the evidence."""
    _, first, rest = _backward(moves, evidence, parallel)
    return meet(start, first).log_mass + rest


@compiled
def filtered(start: Moments, moves: Transition, evidence: Evidence, parallel: bool) -> Filtered:
    """Every state given the evidence before it, and up to it."""
    now, later = jax.tree.map(lambda leaf: leaf[0], evidence), jax.tree.map(lambda leaf: leaf[1:], evidence)
    if parallel:
        links = _linked(moves, jax.tree.map(lambda leaf: leaf[:-1], evidence))
        origin = _linked(Transition(jnp.zeros_like(start.covariance), *start), jax.tree.map(jnp.zeros_like, now))
        reached = lax.associative_scan(_then, jax.tree.map(_prepend, origin, links)).transition
        predicted = Moments(reached.offset, reached.covariance)
        met = meet(predicted, evidence)
        return Filtered(predicted, met.given, met.log_mass)

    def step(state: Moments, move: Transition, evidence: Evidence) -> tuple[Moments, Filtered]:
        predicted = moved(state, move)
        met = meet(predicted, evidence)
        return met.given, Filtered(predicted, met.given, met.log_mass)

    met = meet(start, now)
    rest = _scan(step, met.given, moves, later)[1]
    return jax.tree.map(_prepend, Filtered(start, met.given, met.log_mass), rest)


@partial(jax.jit, static_argnames=("num_steps", "parallel"))
def moments(start: Moments, moves: Transition, num_steps: int, parallel: bool) -> Moments:
    """Of every state."""
    if parallel:
        nowhere = Transition(jnp.zeros_like(start.covariance), *start)
        long = _spread(moves, (num_steps - 1, *start.mean.shape[:-1]))
        reached = lax.associative_scan(_after, jax.tree.map(_prepend, nowhere, long))
        return Moments(reached.offset, reached.covariance)

    def step(state: Moments, move: Transition, _: None) -> tuple[Moments, Moments]:
        state = moved(state, move)
        return state, state

    return jax.tree.map(_prepend, start, _scan(step, start, moves, None, num_steps - 1)[1])


@jax.jit
def path(first: Array, moves: Transition, noise: Array) -> Array:
    """States (step, *sample, *batch, d) from the first one and what is added at every other step."""

    def step(state: Array, move: Transition, noise: Array) -> tuple[Array, Array]:
        state = _times(move.matrix, state) + move.offset + noise
        return state, state

    return _prepend(first, _scan(step, first, moves, noise)[1])


@partial(jax.jit, static_argnames="num_steps")
def deviations(start: Moments, moves: Transition, num_steps: int, corners: Array) -> Array:
    """From the mean, (step, *batch, point, d), with the second moments of every state and of every two neighbours.

    corners: (point, 2 d), with mean zero and second moments the identity. A state has d directions in the space of
    points, and what its transition adds has d others; directions that it does not have turn with it.
    """
    size = start.mean.shape[-1]
    factor = root(start.covariance).mT

    def step(carry: tuple[Array, Array], move: Transition, _: None) -> tuple[tuple[Array, Array], Array]:
        frame, factor = carry
        added = jnp.broadcast_to(root(move.covariance).mT, factor.shape)
        stacked = jnp.concatenate([factor @ move.matrix.mT, added], -2)
        turn, factor = jnp.linalg.qr(stacked, mode="complete")
        return (frame @ turn, factor[..., :size, :]), corners @ (frame @ stacked)

    frame = jnp.broadcast_to(jnp.eye(2 * size, dtype=factor.dtype), (*factor.shape[:-2], 2 * size, 2 * size))
    rest = _scan(step, (frame, factor), moves, None, num_steps - 1)[1]
    return _prepend(corners[:, :size] @ factor, rest)


def root(covariance: Array) -> Array:
    """L with L L' = covariance, lower triangular; columns of zeros where a covariance is singular."""
    size = covariance.shape[-1]
    columns: list[Array] = []
    for place in range(size):
        rest = covariance[..., :, place]
        for one in columns:
            rest = rest - one * one[..., place, None]
        least = size * jnp.finfo(covariance.dtype).eps * covariance[..., place, place]
        there = rest[..., place] > least
        scale = jnp.where(there, jnp.sqrt(jnp.where(there, rest[..., place], 1.0)), jnp.inf)
        columns.append(jnp.where(jnp.arange(size) >= place, rest, 0.0) / scale[..., None])
    return jnp.stack(columns, -1)


def _backward(moves: Transition, evidence: Evidence, parallel: bool) -> tuple[Met, Evidence, Array]:
    """Every state but the first, with what comes later, before its transition; all about the first; log factors."""
    last, before = jax.tree.map(lambda leaf: leaf[-1], evidence), jax.tree.map(lambda leaf: leaf[:-1], evidence)
    if parallel:
        nothing = jnp.zeros_like(last.precision)
        end = _linked(Transition(nothing, jnp.zeros_like(last.linear), nothing), last)
        links = jax.tree.map(lambda more, one: jnp.concatenate([more, one[None]]), _linked(moves, before), end)
        ahead = lax.associative_scan(lambda later, earlier: _then(earlier, later), links, reverse=True)
        met = meet(Moments(moves.offset, moves.covariance), jax.tree.map(lambda leaf: leaf[1:], ahead.evidence))
        return met, jax.tree.map(lambda leaf: leaf[0], ahead.evidence), ahead.log_mass[0]

    def step(carry: tuple[Evidence, Array], move: Transition, now: Evidence) -> tuple[tuple[Evidence, Array], Met]:
        ahead, mass = carry
        met = meet(Moments(move.offset, move.covariance), ahead)
        return (_before(move, met, now), mass + met.log_mass), met

    start = (last, jnp.zeros(last.linear.shape[:-1], last.linear.dtype))
    (first, mass), met = _scan(step, start, moves, before, reverse=True)
    return met, first, mass


def _before(move: Transition, met: Met, now: Evidence) -> Evidence:
    """About a state: what is known now, and what the state after it has met."""
    back = move.matrix.mT
    precision = now.precision + _symmetric(back @ met.said.precision @ move.matrix)
    return Evidence(precision, now.linear + _times(back, met.said.linear))


def _then(one: Potential, other: Potential) -> Potential:
    """The product of two potentials, the state between them integrated out."""
    met = meet(Moments(one.transition.offset, one.transition.covariance), other.evidence)
    matrix = other.transition.matrix @ met.keep @ one.transition.matrix
    transition = Transition(matrix, *moved(met.given, other.transition))
    evidence = _before(one.transition, met, one.evidence)
    return Potential(transition, evidence, one.log_mass + other.log_mass + met.log_mass)


def _after(one: Transition, other: Transition) -> Transition:
    """Two transitions as one."""
    return Transition(other.matrix @ one.matrix, *moved(Moments(one.offset, one.covariance), other))


def _linked(moves: Transition, evidence: Evidence) -> Potential:
    """Transitions from states with evidence."""
    batch = evidence.linear.shape[:-1]
    return Potential(_spread(moves, batch), evidence, jnp.zeros(batch, evidence.linear.dtype))


def _spread(moves: Transition, batch: tuple[int, ...]) -> Transition:
    """For all steps and the whole batch."""
    size = moves.offset.shape[-1]
    matrices = [jnp.broadcast_to(one, (*batch, size, size)) for one in (moves.matrix, moves.covariance)]
    return Transition(matrices[0], jnp.broadcast_to(moves.offset, (*batch, size)), matrices[1])


def _scan(
    step: Callable, start: Any, moves: Transition, inputs: Any, length: int | None = None, reverse: bool = False
) -> Any:
    """The last carry and the outputs of step(carry, move, input)."""
    if len(moves.offset) == 1:
        move = jax.tree.map(lambda leaf: leaf[0], moves)
        return lax.scan(lambda carry, one: step(carry, move, one), start, inputs, length, reverse)
    return lax.scan(lambda carry, one: step(carry, *one), start, (moves, inputs), length, reverse)


@jax.custom_jvp
def _inverse(matrix: Array) -> tuple[Array, Array]:
    """Of matrices I + C J, and the logs of their determinants: C and J semidefinite, so they are at least 1."""
    if matrix.shape[-1] == 1:
        return 1 / matrix, jnp.log(matrix[..., 0, 0])
    if matrix.shape[-1] == 2:  # a third of the time of a factorisation
        a, b, c, d = (matrix[..., row, column] for row in (0, 1) for column in (0, 1))
        determinant = a * d - b * c
        adjugate = jnp.stack([jnp.stack([d, -b], -1), jnp.stack([-c, a], -1)], -2)
        return adjugate / determinant[..., None, None], jnp.log(determinant)
    factors, pivots = jax.scipy.linalg.lu_factor(matrix)
    identity = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    log_determinant = jnp.log(jnp.abs(jnp.diagonal(factors, axis1=-2, axis2=-1))).sum(-1)
    return jax.scipy.linalg.lu_solve((factors, pivots), identity), log_determinant


@_inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """By products alone."""
    inverse, log_determinant = _inverse(*primals)
    change = inverse @ tangents[0]
    return (inverse, log_determinant), (-change @ inverse, jnp.trace(change, axis1=-2, axis2=-1))


def _times(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def _dot(one: Array, other: Array) -> Array:
    return (one * other).sum(-1)


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.mT) / 2


def _prepend(first: Array, rest: Array) -> Array:
    return jnp.concatenate([first[None], rest])
