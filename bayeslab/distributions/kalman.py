"""Kalman filter and smoother of a linear Gaussian chain, with likelihoods exp(h' x - x' J x / 2) of single states.

A pair (J, h) is an information pair. All recursions are made of one operation, the update of a Normal state by such a
pair. For x ~ N(m, C), with F = (I + C J)^-1, which is I - K H for an observation with gain K,

    x given the pair     ~ N(F (m + C h), F C)
    log of the integral  = log_mass + (h - J m)' F d - d' J F d / 2,    for a mean of m + d,

and J or C may be singular, or 0. Forwards this is the Kalman filter, and backwards the information filter, whose
messages make the chain given all information a chain again. Both are products of potentials

    N(x_{t+1}; A x_t + b, C) exp(h' x_t - x_t' J x_t / 2),

which are associative (Särkkä and García-Fernández 2021, doi:10.1109/TAC.2020.2976316), so accelerators multiply them in
blocks that advance side by side (`scan_in_blocks`). A CPU goes step by step, which is less work.

Steps are on the first axis of every array here; transitions have one step where all share it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.block_scan import Effects, scan_in_blocks


class Moments(NamedTuple):
    """The mean (..., d) and covariance (..., d, d) of a Normal state."""

    mean: Array
    covariance: Array


class Transition(NamedTuple):
    """The transition x_{t+1} ~ N(matrix x_t + offset, covariance)."""

    matrix: Array
    offset: Array
    covariance: Array


class InformationPair(NamedTuple):
    """An information pair, which stands for the likelihood exp(linear' x - x' precision x / 2) of a state x."""

    precision: Array
    linear: Array


class Updated(NamedTuple):
    """A Normal state updated by an information pair, with the names of the formulas above.

    given: the state after the update. I_minus_gain: F.
    innovation: the information pair of d, the innovation precision J F and F' (h - J m).
    log_mass: the log of the integral of state times likelihood at d = 0.
    """

    given: Moments
    I_minus_gain: Array
    innovation: InformationPair
    log_mass: Array


class Filtered(NamedTuple):
    """Moments of every state and log likelihoods of its observation.

    predicted: states given the information before them. filtered: given the information up to them.
    log_mass: the log likelihood of the information at a step given that before it.
    """

    predicted: Moments
    filtered: Moments
    log_mass: Array


class Potential(NamedTuple):
    """A function of one state and a later one: a transition times a likelihood of the first and a factor exp(log_mass).

    evidence: the information pair of the first state.
    """

    transition: Transition
    evidence: InformationPair
    log_mass: Array


def update(state: Moments, information: InformationPair) -> Updated:
    """The update of a Normal state by an information pair about it."""
    (mean, covariance), (precision, linear) = state, information
    I_minus_gain, log_determinant = _inverse_and_log_det(
        jnp.eye(mean.shape[-1], dtype=mean.dtype) + covariance @ precision
    )
    updated, innovation_precision = _symmetrise(I_minus_gain @ covariance), _symmetrise(precision @ I_minus_gain)
    innovation = matvec(I_minus_gain.mT, linear - matvec(precision, mean))
    squares = _dot(linear, matvec(updated, linear)) + _dot(mean, matvec(I_minus_gain.mT, linear) + innovation)
    posterior = Moments(matvec(I_minus_gain, mean + matvec(covariance, linear)), updated)
    return Updated(
        posterior, I_minus_gain, InformationPair(innovation_precision, innovation), (squares - log_determinant) / 2
    )


def predict(state: Moments, transition: Transition) -> Moments:
    """The prediction: the state after a transition."""
    covariance = transition.matrix @ state.covariance @ transition.matrix.mT + transition.covariance
    return Moments(matvec(transition.matrix, state.mean) + transition.offset, _symmetrise(covariance))


@jax.jit
def conditioned(start: Moments, transitions: Transition, information: InformationPair) -> tuple[Moments, Transition]:
    """The first state, and the transitions, given all information: the smoothed chain."""
    updated, first_information, _ = _information_filter(transitions, information)
    return update(start, first_information).given, Transition(updated.I_minus_gain @ transitions.matrix, *updated.given)


@jax.jit
def log_mass(start: Moments, transitions: Transition, information: InformationPair) -> Array:
    """The log evidence, that is the log of the integral of the chain times the likelihoods."""
    _, first_information, log_factor = _information_filter(transitions, information)
    return update(start, first_information).log_mass + log_factor


@jax.jit
def filtered(start: Moments, transitions: Transition, information: InformationPair) -> Filtered:
    """Every state given the information before it, and up to it, by the Kalman filter."""

    def step(predicted: Moments, item: tuple[Any, InformationPair]) -> tuple[Moments, Filtered]:
        updated = update(predicted, item[1])
        return predict(updated.given, transition_at(item[0])), Filtered(predicted, updated.given, updated.log_mass)

    def extend(block: Potential, item: tuple[Any, InformationPair]) -> Potential:
        return _combine_potentials(block, _potential(transition_at(item[0]), item[1]))

    def apply(block: Potential, predicted: Moments) -> Moments:
        return predict(update(predicted, block.evidence).given, block.transition)

    by_step, transition_at = _by_step(transitions)
    before, last = jax.tree.map(lambda leaf: leaf[:-1], information), jax.tree.map(lambda leaf: leaf[-1], information)
    effects = Effects(_no_potential(last), extend, apply, _combine_potentials)
    predicted, earlier = scan_in_blocks(step, effects, start, (by_step, before))
    updated = update(predicted, last)
    return jax.tree.map(_append, earlier, Filtered(predicted, updated.given, updated.log_mass))


@partial(jax.jit, static_argnames="num_steps")
def moments(start: Moments, transitions: Transition, num_steps: int) -> Moments:
    """Mean and covariance of every state of the chain."""

    def step(state: Moments, item: tuple[Any, Array]) -> tuple[Moments, Moments]:
        state = predict(state, transition_at(item[0]))
        return state, state

    def extend(block: Transition, item: tuple[Any, Array]) -> Transition:
        return _compose_transitions(block, transition_at(item[0]))

    def apply(block: Transition, state: Moments) -> Moments:
        return predict(state, block)

    by_step, transition_at = _by_step(transitions)
    effects = Effects(_no_transition(start.mean), extend, apply, _compose_transitions)
    later_steps = scan_in_blocks(step, effects, start, (by_step, jnp.arange(num_steps - 1)))[1]
    return jax.tree.map(_prepend, start, later_steps)


@jax.jit
def path(first: Array, transitions: Transition, noise: Array) -> Array:
    """States (step, *sample, *batch, d) from the first one and what is added at every other step."""

    def step(state: Array, item: tuple[Any, Array]) -> tuple[Array, Array]:
        transition = transition_at(item[0])
        state = matvec(transition.matrix, state) + transition.offset + item[1]
        return state, state

    def extend(block: tuple[Array, Array], item: tuple[Any, Array]) -> tuple[Array, Array]:
        matrix, offset = block
        return transition_at(item[0]).matrix @ matrix, step(offset, item)[0]

    def apply(block: tuple[Array, Array], state: Array) -> Array:
        return matvec(block[0], state) + block[1]

    def join(block: tuple[Array, Array], later: tuple[Array, Array]) -> tuple[Array, Array]:
        return later[0] @ block[0], apply(later, block[1])

    by_step, transition_at = _by_step(transitions)
    size, batch = first.shape[-1], transitions.matrix.shape[1:-2]
    identity = jnp.broadcast_to(jnp.eye(size, dtype=first.dtype), (*batch, size, size))
    effects = Effects((identity, jnp.zeros_like(first)), extend, apply, join)
    return _prepend(first, scan_in_blocks(step, effects, first, (by_step, noise))[1])


@partial(jax.jit, static_argnames="num_steps")
def deviations(start: Moments, transitions: Transition, num_steps: int, corners: Array) -> Array:
    """Deviations from the mean, (step, *batch, point, d), with the second moments of states and of neighbours.

    corners: (point, 2 d), with mean zero and second moments the identity. A state has d directions in the space of
    points, and what its transition adds has d others; directions that it does not have turn with it.
    """
    size = start.mean.shape[-1]
    factor = semidefinite_cholesky(start.covariance).mT

    def step(carry: tuple[Array, Array], part: Any) -> tuple[tuple[Array, Array], Array]:
        (frame, factor), transition = carry, transition_at(part)
        added = jnp.broadcast_to(semidefinite_cholesky(transition.covariance).mT, factor.shape)
        stacked = jnp.concatenate([factor @ transition.matrix.mT, added], -2)
        turn, factor = jnp.linalg.qr(stacked, mode="complete")
        return (frame @ turn, factor[..., :size, :]), corners @ (frame @ stacked)

    frame = jnp.broadcast_to(jnp.eye(2 * size, dtype=factor.dtype), (*factor.shape[:-2], 2 * size, 2 * size))
    by_step, transition_at = _by_step(transitions)
    later_steps = lax.scan(step, (frame, factor), by_step, num_steps - 1)[1]
    return _prepend(corners[:, :size] @ factor, later_steps)


def semidefinite_cholesky(covariance: Array) -> Array:
    """L with L L' = covariance, lower triangular; columns of zeros where a covariance is singular."""
    size = covariance.shape[-1]
    columns: list[Array] = []
    for column in range(size):
        residual = covariance[..., :, column]
        for previous in columns:
            residual = residual - previous * previous[..., column, None]
        threshold = size * jnp.finfo(covariance.dtype).eps * covariance[..., column, column]
        is_positive = residual[..., column] > threshold
        scale = jnp.where(is_positive, jnp.sqrt(jnp.where(is_positive, residual[..., column], 1.0)), jnp.inf)
        columns.append(jnp.where(jnp.arange(size) >= column, residual, 0.0) / scale[..., None])
    return jnp.stack(columns, -1)


def _information_filter(
    transitions: Transition, information: InformationPair
) -> tuple[Updated, InformationPair, Array]:
    """The information filter, backwards.

    Returns the updates of the noise of every transition by what comes after it, the information pair that all steps
    give about the first state, and its log factor.
    """
    last, before = jax.tree.map(lambda leaf: leaf[-1], information), jax.tree.map(lambda leaf: leaf[:-1], information)

    def step(message: InformationPair, item: tuple[Any, InformationPair]) -> tuple[InformationPair, Updated]:
        transition = transition_at(item[0])
        updated = update(Moments(transition.offset, transition.covariance), message)
        return _information_before(transition, updated, item[1]), updated

    def extend(block: Potential, item: tuple[Any, InformationPair]) -> Potential:
        return _combine_potentials(_potential(transition_at(item[0]), item[1]), block)

    def apply(block: Potential, message: InformationPair) -> InformationPair:
        noise = Moments(block.transition.offset, block.transition.covariance)
        return _information_before(block.transition, update(noise, message), block.evidence)

    by_step, transition_at = _by_step(transitions)
    effects = Effects(_no_potential(last), extend, apply, lambda block, earlier: _combine_potentials(earlier, block))
    first_information, updated = scan_in_blocks(step, effects, last, (by_step, before), reverse=True)
    return updated, first_information, updated.log_mass.sum(0)


def _information_before(transition: Transition, updated: Updated, information: InformationPair) -> InformationPair:
    """The information pair of a state, from its own pair and the update of the transition that follows."""
    transpose = transition.matrix.mT
    precision = information.precision + _symmetrise(transpose @ updated.innovation.precision @ transition.matrix)
    return InformationPair(precision, information.linear + matvec(transpose, updated.innovation.linear))


def _combine_potentials(earlier: Potential, later: Potential) -> Potential:
    """The potential of two in succession, with the state between them integrated out."""
    updated = update(Moments(earlier.transition.offset, earlier.transition.covariance), later.evidence)
    matrix = later.transition.matrix @ updated.I_minus_gain @ earlier.transition.matrix
    transition = Transition(matrix, *predict(updated.given, later.transition))
    information = _information_before(earlier.transition, updated, earlier.evidence)
    return Potential(transition, information, earlier.log_mass + later.log_mass + updated.log_mass)


def _compose_transitions(earlier: Transition, later: Transition) -> Transition:
    """The transition that two transitions in succession make."""
    return Transition(later.matrix @ earlier.matrix, *predict(Moments(earlier.offset, earlier.covariance), later))


def _potential(transition: Transition, information: InformationPair) -> Potential:
    """The potential of a transition from a state with an information pair."""
    return Potential(transition, information, jnp.zeros(information.linear.shape[:-1], information.linear.dtype))


def _no_transition(like: Array) -> Transition:
    """The transition that leaves a state as it is. like: (*batch, d)."""
    size = like.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(size, dtype=like.dtype), (*like.shape, size))
    return Transition(identity, jnp.zeros_like(like), jnp.zeros_like(identity))


def _no_potential(like: InformationPair) -> Potential:
    """The potential that leaves a state as it is and says nothing about it."""
    return _potential(_no_transition(like.linear), jax.tree.map(jnp.zeros_like, like))


def _by_step(transitions: Transition) -> tuple[Transition | None, Callable[[Any], Transition]]:
    """What a scan is given for transitions, and the function that gives the transition of a step from its part."""
    if len(transitions.offset) == 1:
        return None, lambda _: jax.tree.map(lambda leaf: leaf[0], transitions)
    return transitions, lambda transition: transition


@jax.custom_jvp
def _inverse_and_log_det(matrix: Array) -> tuple[Array, Array]:
    """The inverses of matrices I + C J, and the logs of their determinants, >= 1 as C and J are semidefinite."""
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


@_inverse_and_log_det.defjvp
def _inverse_and_log_det_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Derivatives of the inverse and of the log determinant, by products of matrices alone."""
    inverse, log_determinant = _inverse_and_log_det(*primals)
    change = inverse @ tangents[0]
    return (inverse, log_determinant), (-change @ inverse, jnp.trace(change, axis1=-2, axis2=-1))


def matvec(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def _dot(left: Array, right: Array) -> Array:
    return (left * right).sum(-1)


def _symmetrise(matrix: Array) -> Array:
    return (matrix + matrix.mT) / 2


def _prepend(first: Array, later: Array) -> Array:
    return jnp.concatenate([first[None], later])


def _append(earlier: Array, last: Array) -> Array:
    return jnp.concatenate([earlier, last[None]])
