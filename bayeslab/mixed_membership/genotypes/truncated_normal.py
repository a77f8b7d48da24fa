"""Truncated normal proposals of probabilities on a simplex or in a cube, one for every item, with over-relaxation.

The coordinates are drawn one after the other, each from its normal conditional on those before, truncated to the
interval from 0 to what is left of 1: in a cube all of it, on a simplex what those before leave. On a simplex the last
coordinate, which is the largest, is what all others leave. That is near the truncated normal distribution, and its
density is known.

A Metropolis-Hastings step may accept a move only if the way back is known to as many digits. So a coordinate very near
to a side is fixed there, and no other one may come so near; and moves whose scores are beyond the range of floats are
refused.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import cho_solve
from jax.scipy.special import ndtri
from jax.scipy.stats import norm

from bayeslab.mixed_membership.counts import sequential_sum
from bayeslab.mixed_membership.genotypes.normal_intervals import (
    interval_probabilities,
    is_narrow,
    probabilities_below,
)

RELATIVE_RIDGE = 1e-6
"""Ridge added to curvatures, over the largest one: a direction of which the data say nothing keeps a finite spread."""
MIN_REMAINDER = 1e-9
"""Smallest upper end that is left for the next coordinate of a simplex."""
MIN_KNOWN_PROBABILITY_IN_TINIES = 100
"""Smallest probability whose digits count as known, over the smallest float."""
MIN_FREE_DISTANCE = 1e-5
"""Smallest distance to 0 and 1 of coordinates that move: beside 1, single precision has six digits less."""


class TruncatedNormal(NamedTuple):
    """Truncated normal distributions, one for every item.

    order: in which coordinates are drawn, (coordinate, item); on a simplex with the last one, which is not drawn.
    centre: mean before truncation, (coordinate, item), in that order.
    scale: Cholesky factor of the covariance before truncation, (coordinate, coordinate, item).
    """

    order: Array
    centre: Array
    scale: Array

    @property
    def simplex(self) -> bool:
        """Whether coordinates are on a simplex, and not in a cube."""
        return len(self.order) > len(self.centre)


class ProposedMove(NamedTuple):
    """What is proposed for every item, by an over-relaxed proposal.

    new: points. log_likelihood_ratio: the log likelihood ratio (item,). log_acceptance_ratio: the log of the
    Metropolis-Hastings ratio (item,).
    possible: whether the move can be taken back, and so may be accepted (item,).
    """

    new: Array
    log_likelihood_ratio: Array
    log_acceptance_ratio: Array
    possible: Array

    def accepted(self, key: Array) -> tuple[Array, Array]:
        """Which items accept their moves (item,), and the sum of their log likelihood ratios."""
        taken = self.possible & (
            jnp.log(jax.random.uniform(key, self.log_acceptance_ratio.shape)) < self.log_acceptance_ratio
        )
        return taken, jnp.where(taken, self.log_likelihood_ratio, 0.0).sum()


class Partial(NamedTuple):
    """The first coordinates of points, each (coordinate, item), while the others are still to come.

    errors: standard normal variates that the scale maps to distances from the centre.
    values: normal scores of coordinates, or coordinates of normal scores.
    log_density: of each coordinate given those before. known: whether its score is known to enough digits.
    remainder: upper end of the next coordinate, (item,): what is left of 1 on a simplex, 1 in a cube.
    """

    errors: Array
    values: Array
    log_density: Array
    known: Array
    remainder: Array


class Interval(NamedTuple):
    """The interval that the next coordinate is truncated to, given those before; all (item,) but its place.

    low, high: its ends in standard deviations from the mean. mass: its normal probability before truncation.
    mean, sd: of the normal distribution before truncation.
    """

    place: Array
    low: Array
    high: Array
    mean: Array
    sd: Array
    mass: Array


def on_simplex(position: Array, curvature: Array) -> TruncatedNormal:
    """The proposal about probabilities (category, item), given minus the second derivatives (category, category, item)
    of the log density there."""
    order = jnp.argsort(position, axis=0)
    matrix = take_in_order(curvature, order)
    inner, side, last = matrix[:-1, :-1], matrix[:-1, -1:], matrix[-1:, -1:]
    free = inner - side - side.swapaxes(0, 1) + last  # along the simplex, where the last coordinate follows the others
    return TruncatedNormal(
        order, take_in_order(position, order)[:-1], _cholesky_factors(_covariances(free)).astype(position.dtype)
    )


def in_cube(position: Array, curvature: Array) -> TruncatedNormal:
    """The proposal about points (coordinate, item), given minus the second derivatives (coordinate, coordinate, item)
    of the log density there. The coordinate that is nearest to a side, for its standard deviation, is drawn first."""
    covariance = _covariances(curvature)
    order = jnp.argsort(jnp.minimum(position, 1 - position) / jnp.sqrt(jnp.einsum("iin->in", covariance)), axis=0)
    return TruncatedNormal(
        order,
        take_in_order(position, order),
        _cholesky_factors(take_in_order(covariance, order)).astype(position.dtype),
    )


def recentre(proposal: TruncatedNormal, gradient: Array) -> TruncatedNormal:
    """The proposal with its centre at the end of a Newton step: the mode of the quadratic that has this gradient at the
    old centre.

    gradient: (coordinate, item), on a simplex of all coordinates.
    """
    ordered_gradient = take_in_order(gradient, proposal.order).astype(proposal.scale.dtype)
    if proposal.simplex:
        ordered_gradient = ordered_gradient[:-1] - ordered_gradient[-1:]
    step = jnp.einsum("ijn,kjn,kn->in", proposal.scale, proposal.scale, ordered_gradient)
    return proposal._replace(centre=proposal.centre + step)


def centre(proposal: TruncatedNormal) -> Array:
    """The centre (coordinate, item) of a proposal, moved into the simplex or the cube."""
    values = jnp.clip(proposal.centre, 0.0, 1.0)
    if proposal.simplex:
        last = jnp.maximum(1 - values.sum(0, keepdims=True), 0.0)
        values = jnp.concatenate([values, last])
        values = values / values.sum(0)
    return take_in_order(values, jnp.argsort(proposal.order, axis=0))


def overrelaxed(
    key: Array, proposal: TruncatedNormal, position: Array, overrelaxation: Array
) -> tuple[Array, Array, Array]:
    """Over-relaxed points (coordinate, item), the log density ratio of the proposal, there over where they come from
    (item,), and whether the move can be taken back (item,).

    The score of a coordinate is the normal quantile of its cumulative probability. Scores are drawn about minus
    `overrelaxation` times those before, with the variance that keeps their distribution, which is reversible
    (Adler 1981, doi:10.1103/PhysRevD.23.2901; Neal 1998, arXiv:bayes-an/9506004).

    overrelaxation: (item,); 0 draws independent points, 1 would turn scores to their opposite.
    """
    old_scores = scores_of_points(proposal, position)
    overrelaxation = overrelaxation.astype(old_scores.each.dtype)
    noise = jnp.sqrt(1 - overrelaxation**2) * jax.random.normal(key, old_scores.each.shape, old_scores.each.dtype)
    new, new_scores = points_of_scores(proposal, noise - overrelaxation * old_scores.each, position)
    return (
        new,
        log_density_ratio(old_scores, new_scores),
        is_reversible(proposal, (position, new), (old_scores, new_scores)),
    )


class NormalScores(NamedTuple):
    """Normal scores of points, all (coordinate, item), in the order of the proposal.

    each: the scores. log_density: of a coordinate given those before, 0 where it is fixed.
    known: whether a score is known to enough digits, or its coordinate fixed.
    """

    each: Array
    log_density: Array
    known: Array


def scores_of_points(proposal: TruncatedNormal, position: Array) -> NormalScores:
    """Normal scores of points (coordinate, item)."""
    values = drawn_coordinates(proposal, position)

    def add_coordinate(place: Array, walk: Partial) -> Partial:
        interval = _interval(proposal, place, walk)
        score, is_known = _score_of_value(values[place], walk.remainder, interval)
        walk = walk._replace(values=walk.values.at[place].set(score))
        return _add_coordinate(proposal, walk, interval, values[place], is_known, is_near_side(values[place]))

    walk = lax.fori_loop(0, len(values), add_coordinate, _no_coordinates(proposal))
    return NormalScores(walk.values, walk.log_density, walk.known)


def points_of_scores(proposal: TruncatedNormal, scores: Array, position: Array) -> tuple[Array, NormalScores]:
    """Points (coordinate, item) with scores (coordinate, item) in the order of the proposal, and all that is known of
    these. A coordinate that is near to a side in `position` is fixed there."""
    current = drawn_coordinates(proposal, position)
    fixed = is_near_side(current)

    def add_coordinate(place: Array, walk: Partial) -> Partial:
        interval = _interval(proposal, place, walk)
        value, is_known = _value_of_score(scores[place], walk.remainder, interval)
        value = jnp.where(fixed[place], current[place], value)
        walk = walk._replace(values=walk.values.at[place].set(value))
        return _add_coordinate(proposal, walk, interval, value, is_known, fixed[place])

    walk = lax.fori_loop(0, len(current), add_coordinate, _no_coordinates(proposal))
    values = walk.values
    if proposal.simplex:
        values = jnp.concatenate([values, 1 - values.sum(0, keepdims=True)])
    new = take_in_order(values, jnp.argsort(proposal.order, axis=0)).astype(position.dtype)
    return new, NormalScores(scores, walk.log_density, walk.known)


def is_reversible(
    proposal: TruncatedNormal, positions: tuple[Array, Array], scores: tuple[NormalScores, NormalScores]
) -> Array:
    """Whether moves of points can be taken back (item,): the same coordinates are fixed at both ends, and all other
    scores are known at both. On a simplex the last coordinate, which is not drawn, must not be near to a side.

    positions: points (coordinate, item) before and after. scores: theirs.
    """
    fixed_before, fixed_after = (is_near_side(take_in_order(point, proposal.order)) for point in positions)
    reversible = (fixed_before == fixed_after).all(0) & (scores[0].known & scores[1].known).all(0)
    return reversible & ~fixed_before[-1] & ~fixed_after[-1] if proposal.simplex else reversible


def log_density_ratio(first: NormalScores, second: NormalScores) -> Array:
    """The log density ratio (item,) of the second points over the first."""
    return (second.log_density - first.log_density).sum(0)


def drawn_coordinates(proposal: TruncatedNormal, position: Array) -> Array:
    """The coordinates of points that are drawn, in the order of the proposal."""
    return take_in_order(position, proposal.order).astype(proposal.centre.dtype)[: len(proposal.centre)]


def is_near_side(values: Array) -> Array:
    """Whether values are so near to 0 or 1 that they are fixed."""
    return (values < MIN_FREE_DISTANCE) | (values > 1 - MIN_FREE_DISTANCE)


def take_in_order(x: Array, order: Array) -> Array:
    """Rows, or rows and columns, (..., item) in the order of each item."""
    x = jnp.take_along_axis(x, order[:, None] if x.ndim == 3 else order, 0)
    return jnp.take_along_axis(x, order[None], 1) if x.ndim == 3 else x


def inverse_of_cholesky(lower: Array) -> Array:
    """Inverses (coordinate, coordinate, item) of matrices with Cholesky factors (item, coordinate, coordinate)."""
    solved = jax.vmap(lambda root: cho_solve((root, True), jnp.eye(len(root))))(lower)
    return jnp.moveaxis(solved, 0, -1)


def _no_coordinates(proposal: TruncatedNormal) -> Partial:
    """The state before the first coordinate."""
    nothing = jnp.zeros_like(proposal.centre)
    return Partial(nothing, nothing, nothing, jnp.zeros(nothing.shape, bool), jnp.ones_like(proposal.centre[0]))


def _interval(proposal: TruncatedNormal, index: Array, state: Partial) -> Interval:
    """The interval of the coordinate of this number, given those before."""
    max_distance = 30.0 if proposal.centre.dtype == jnp.float64 else 11.0
    scale = proposal.scale[index]
    sd = scale[index]
    mean = proposal.centre[index] + sequential_sum(scale * state.errors)
    low, high = -mean / sd, (state.remainder - mean) / sd
    # a mean so far outside comes nearer
    excess = jnp.maximum(low - max_distance, 0.0) + jnp.minimum(high + max_distance, 0.0)
    low, high = low - excess, high - excess
    [mass] = interval_probabilities(((low + high) / 2, state.remainder / sd))
    return Interval(index, low, high, mean, sd, mass)


def _add_coordinate(
    proposal: TruncatedNormal, state: Partial, interval: Interval, value: Array, known: Array, fixed: Array
) -> Partial:
    """The state with the coordinate of an interval at a value. known: whether its score is known. fixed: whether it is
    fixed."""
    index = interval.place
    log_density = norm.logpdf(interval.low + value / interval.sd) - jnp.log(interval.sd * interval.mass)
    return Partial(
        state.errors.at[index].set((value - interval.mean) / interval.sd),
        state.values,
        state.log_density.at[index].set(jnp.where(fixed, 0.0, log_density)),
        state.known.at[index].set(known | fixed),
        jnp.maximum(state.remainder - value, MIN_REMAINDER) if proposal.simplex else state.remainder,
    )


def _score_of_value(value: Array, remainder: Array, interval: Interval) -> tuple[Array, Array]:
    """The normal score of a value in an interval, and whether its digits are known."""
    above, below = (remainder - value) / interval.sd, value / interval.sd
    upper, lower = interval_probabilities(
        (interval.high - above / 2, above),
        (interval.low + below / 2, below),
    )
    tail = jnp.minimum(lower, upper)
    score = ndtri(tail / interval.mass)
    return jnp.where(lower < upper, score, -score), tail > MIN_KNOWN_PROBABILITY_IN_TINIES * jnp.finfo(tail.dtype).tiny


def _value_of_score(score: Array, remainder: Array, interval: Interval) -> tuple[Array, Array]:
    """The value in an interval that has a normal score, and whether its digits are known."""
    below = score < 0
    edge = jnp.where(below, interval.low, -interval.high)
    probability, beyond = probabilities_below(-jnp.abs(score), -jnp.abs(edge))
    tail = probability * interval.mass
    # between the end and a value not far from it, whose density hardly changes; else by the inverse
    step = tail / norm.pdf(edge)
    step *= 1 + edge * step / 2
    step -= (interval_probabilities((edge + step / 2, step))[0] - tail) / norm.pdf(edge + step)
    standard = ndtri(jnp.where(edge < 0, beyond + tail, beyond - tail))
    exact = jnp.where(edge < 0, standard, -standard) - edge
    distance = jnp.where(is_narrow(edge, step), step, exact) * interval.sd
    value = jnp.clip(jnp.where(below, distance, remainder - distance), 0.0, remainder)
    return value, tail > MIN_KNOWN_PROBABILITY_IN_TINIES * jnp.finfo(tail.dtype).tiny


def _covariances(curvature: Array) -> Array:
    """Covariances (coordinate, coordinate, item): inverses of curvatures with a ridge."""
    matrix, size = jnp.moveaxis(curvature, -1, 0).astype(jnp.result_type(float)), len(curvature)
    largest = jnp.einsum("nii->ni", matrix).max(-1, initial=1.0)
    return inverse_of_cholesky(jnp.linalg.cholesky(matrix + RELATIVE_RIDGE * largest[:, None, None] * jnp.eye(size)))


def _cholesky_factors(covariance: Array) -> Array:
    """Cholesky factors (coordinate, coordinate, item)."""
    return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(covariance, -1, 0)), 0, -1)
