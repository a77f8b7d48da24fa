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
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm

from bayeslab.mixed_membership.counts import added

RIDGE = 1e-6
"""Ridge added to curvatures, over the largest one: a direction of which the data say nothing keeps a finite spread."""
LEAST = 1e-9
"""Smallest upper end that is left for the next coordinate of a simplex."""
DIGITS = 100
"""Smallest probability whose digits count as known, over the smallest float."""
SHORT = 0.1
"""Width of an interval, in standard deviations, from which on the difference of two probabilities has enough digits."""
HELD = 1e-5
"""Smallest distance to 0 and 1 of coordinates that move: beside 1, single precision has six digits less."""


class Cut(NamedTuple):
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


class Move(NamedTuple):
    """What is proposed for every item, by an over-relaxed proposal.

    new: points. gain: the log likelihood ratio (item,). ratio: the log of the Metropolis-Hastings ratio (item,).
    possible: whether the move can be taken back, and so may be accepted (item,).
    """

    new: Array
    gain: Array
    ratio: Array
    possible: Array

    def accepted(self, key: Array) -> tuple[Array, Array]:
        """Which items accept their moves (item,), and the sum of their log likelihood ratios."""
        taken = self.possible & (jnp.log(jax.random.uniform(key, self.ratio.shape)) < self.ratio)
        return taken, jnp.where(taken, self.gain, 0.0).sum()


class Walk(NamedTuple):
    """The first coordinates of points, each (coordinate, item), while the others are still to come.

    errors: standard normal variates that the scale maps to distances from the centre.
    found: normal scores of coordinates, or coordinates of normal scores.
    log_density: of each coordinate given those before. known: whether its score is known to enough digits.
    left: upper end of the next coordinate, (item,): what is left of 1 on a simplex, 1 in a cube.
    """

    errors: Array
    found: Array
    log_density: Array
    known: Array
    left: Array


class Ends(NamedTuple):
    """The interval that the next coordinate is truncated to, given those before; all (item,).

    low, high: its ends in standard deviations from the mean. mass: its normal probability before truncation.
    mean, sd: of the normal distribution before truncation.
    """

    low: Array
    high: Array
    mean: Array
    sd: Array
    mass: Array


def on_simplex(at: Array, curvature: Array) -> Cut:
    """The proposal about probabilities (category, item), given minus the second derivatives (category, category, item)
    of the log density there."""
    order = jnp.argsort(at, axis=0)
    matrix = ordered(curvature, order)
    inner, side, last = matrix[:-1, :-1], matrix[:-1, -1:], matrix[-1:, -1:]
    free = inner - side - side.swapaxes(0, 1) + last  # along the simplex, where the last coordinate follows the others
    return Cut(order, ordered(at, order)[:-1], _factor(_inverse(free)).astype(at.dtype))


def in_cube(at: Array, curvature: Array) -> Cut:
    """The proposal about points (coordinate, item), given minus the second derivatives (coordinate, coordinate, item)
    of the log density there. The coordinate that is nearest to a side, for its standard deviation, is drawn first."""
    covariance = _inverse(curvature)
    order = jnp.argsort(jnp.minimum(at, 1 - at) / jnp.sqrt(jnp.einsum("iin->in", covariance)), axis=0)
    return Cut(order, ordered(at, order), _factor(ordered(covariance, order)).astype(at.dtype))


def moved(proposal: Cut, gradient: Array) -> Cut:
    """The proposal with its centre at the end of a Newton step: the mode of the quadratic that has this gradient at the
    old centre.

    gradient: (coordinate, item), on a simplex of all coordinates.
    """
    ordered_gradient = ordered(gradient, proposal.order).astype(proposal.scale.dtype)
    if proposal.simplex:
        ordered_gradient = ordered_gradient[:-1] - ordered_gradient[-1:]
    step = jnp.einsum("ijn,kjn,kn->in", proposal.scale, proposal.scale, ordered_gradient)
    return proposal._replace(centre=proposal.centre + step)


def centre(proposal: Cut) -> Array:
    """The centre (coordinate, item) of a proposal, moved into the simplex or the cube."""
    values = jnp.clip(proposal.centre, 0.0, 1.0)
    if proposal.simplex:
        last = jnp.maximum(1 - values.sum(0, keepdims=True), 0.0)
        values = jnp.concatenate([values, last])
        values = values / values.sum(0)
    return ordered(values, jnp.argsort(proposal.order, axis=0))


def relaxed(key: Array, proposal: Cut, at: Array, back: Array) -> tuple[Array, Array, Array]:
    """Over-relaxed points (coordinate, item), the log density ratio of the proposal, there over where they come from
    (item,), and whether the move can be taken back (item,).

    The score of a coordinate is the normal quantile of its cumulative probability. Scores are drawn about minus
    `back` times those before, with the variance that keeps their distribution, which is reversible (Adler 1981,
    doi:10.1103/PhysRevD.23.2901; Neal 1998, arXiv:bayes-an/9506004).

    back: (item,); 0 draws independent points, 1 would turn scores to their opposite.
    """
    old_scores = scores(proposal, at)
    back = back.astype(old_scores.each.dtype)
    noise = jnp.sqrt(1 - back**2) * jax.random.normal(key, old_scores.each.shape, old_scores.each.dtype)
    new, new_scores = points(proposal, noise - back * old_scores.each, at)
    return new, gained(old_scores, new_scores), leads_back(proposal, (at, new), (old_scores, new_scores))


class Scores(NamedTuple):
    """Normal scores of points, all (coordinate, item), in the order of the proposal.

    each: the scores. log_density: of a coordinate given those before, 0 where it is fixed.
    known: whether a score is known to enough digits, or its coordinate fixed.
    """

    each: Array
    log_density: Array
    known: Array


def scores(proposal: Cut, at: Array) -> Scores:
    """Normal scores of points (coordinate, item)."""
    values = shown(proposal, at)

    def add_coordinate(place: Array, walk: Walk) -> Walk:
        interval = _ends(proposal, place, walk)
        score, is_known = _score(values[place], walk.left, interval)
        walk = walk._replace(found=walk.found.at[place].set(score))
        return _further(proposal, place, walk, interval, values[place], is_known, near(values[place]))

    walk = lax.fori_loop(0, len(values), add_coordinate, _first(proposal))
    return Scores(walk.found, walk.log_density, walk.known)


def points(proposal: Cut, scores: Array, at: Array) -> tuple[Array, Scores]:
    """Points (coordinate, item) with scores (coordinate, item) in the order of the proposal, and all that is known of
    these. A coordinate that is near to a side in `at` is fixed there."""
    current = shown(proposal, at)
    fixed = near(current)

    def add_coordinate(place: Array, walk: Walk) -> Walk:
        interval = _ends(proposal, place, walk)
        value, is_known = _at_score(scores[place], walk.left, interval)
        value = jnp.where(fixed[place], current[place], value)
        walk = walk._replace(found=walk.found.at[place].set(value))
        return _further(proposal, place, walk, interval, value, is_known, fixed[place])

    walk = lax.fori_loop(0, len(current), add_coordinate, _first(proposal))
    values = walk.found
    if proposal.simplex:
        values = jnp.concatenate([values, 1 - values.sum(0, keepdims=True)])
    new = ordered(values, jnp.argsort(proposal.order, axis=0)).astype(at.dtype)
    return new, Scores(scores, walk.log_density, walk.known)


def leads_back(proposal: Cut, ways: tuple[Array, Array], scores: tuple[Scores, Scores]) -> Array:
    """Whether moves of points can be taken back (item,): the same coordinates are fixed at both ends, and all other
    scores are known at both. On a simplex the last coordinate, which is not drawn, must not be near to a side.

    ways: points (coordinate, item) before and after. scores: theirs.
    """
    fixed_before, fixed_after = (near(ordered(point, proposal.order)) for point in ways)
    reversible = (fixed_before == fixed_after).all(0) & (scores[0].known & scores[1].known).all(0)
    return reversible & ~fixed_before[-1] & ~fixed_after[-1] if proposal.simplex else reversible


def gained(first: Scores, second: Scores) -> Array:
    """The log density ratio (item,) of the second points over the first."""
    return (second.log_density - first.log_density).sum(0)


def shown(proposal: Cut, at: Array) -> Array:
    """The coordinates of points that are drawn, in the order of the proposal."""
    return ordered(at, proposal.order).astype(proposal.centre.dtype)[: len(proposal.centre)]


def near(values: Array) -> Array:
    """Whether values are so near to 0 or 1 that they are fixed."""
    return (values < HELD) | (values > 1 - HELD)


def ordered(x: Array, order: Array) -> Array:
    """Rows, or rows and columns, (..., item) in the order of each item."""
    x = jnp.take_along_axis(x, order[:, None] if x.ndim == 3 else order, 0)
    return jnp.take_along_axis(x, order[None], 1) if x.ndim == 3 else x


def inverse_of_product(lower: Array) -> Array:
    """Inverses (coordinate, coordinate, item) of matrices with Cholesky factors (item, coordinate, coordinate)."""
    solved = jax.vmap(lambda root: cho_solve((root, True), jnp.eye(len(root))))(lower)
    return jnp.moveaxis(solved, 0, -1)


def _first(proposal: Cut) -> Walk:
    """The state before the first coordinate."""
    nothing = jnp.zeros_like(proposal.centre)
    return Walk(nothing, nothing, nothing, jnp.zeros(nothing.shape, bool), jnp.ones_like(proposal.centre[0]))


def _ends(proposal: Cut, place: Array, walk: Walk) -> Ends:
    """The interval of the coordinate of this number, given those before."""
    max_distance = 30.0 if proposal.centre.dtype == jnp.float64 else 11.0
    scale = proposal.scale[place]
    sd = scale[place]
    mean = proposal.centre[place] + added(scale * walk.errors)
    low, high = -mean / sd, (walk.left - mean) / sd
    # a mean so far outside comes nearer
    excess = jnp.maximum(low - max_distance, 0.0) + jnp.minimum(high + max_distance, 0.0)
    low, high = low - excess, high - excess
    return Ends(low, high, mean, sd, _between((low + high) / 2, walk.left / sd))


def _further(proposal: Cut, place: Array, walk: Walk, ends: Ends, value: Array, known: Array, held: Array) -> Walk:
    """The state with a coordinate at a value. known: whether its score is known. held: whether it is fixed."""
    log_density = norm.logpdf(ends.low + value / ends.sd) - jnp.log(ends.sd * ends.mass)
    return Walk(
        walk.errors.at[place].set((value - ends.mean) / ends.sd),
        walk.found,
        walk.log_density.at[place].set(jnp.where(held, 0.0, log_density)),
        walk.known.at[place].set(known | held),
        jnp.maximum(walk.left - value, LEAST) if proposal.simplex else walk.left,
    )


def _score(value: Array, left: Array, ends: Ends) -> tuple[Array, Array]:
    """The normal score of a value in an interval, and whether its digits are known."""
    above, below = (left - value) / ends.sd, value / ends.sd
    upper, lower = _between(ends.high - above / 2, above), _between(ends.low + below / 2, below)
    tail = jnp.minimum(lower, upper)
    score = ndtri(tail / ends.mass)
    return jnp.where(lower < upper, score, -score), tail > DIGITS * jnp.finfo(tail.dtype).tiny


def _at_score(score: Array, left: Array, ends: Ends) -> tuple[Array, Array]:
    """The value in an interval that has a normal score, and whether its digits are known."""
    below = score < 0
    edge, tail = jnp.where(below, ends.low, -ends.high), ndtr(-jnp.abs(score)) * ends.mass
    # between the end and a value not far from it, whose density hardly changes; else by the inverse
    step = tail / norm.pdf(edge)
    step *= 1 + edge * step / 2
    step -= (_between(edge + step / 2, step) - tail) / norm.pdf(edge + step)
    beyond = ndtr(-jnp.abs(edge))
    standard = ndtri(jnp.where(edge < 0, beyond + tail, beyond - tail))
    exact = jnp.where(edge < 0, standard, -standard) - edge
    distance = jnp.where(_short(edge, step), step, exact) * ends.sd
    value = jnp.clip(jnp.where(below, distance, left - distance), 0.0, left)
    return value, tail > DIGITS * jnp.finfo(tail.dtype).tiny


def _between(middle: Array, width: Array) -> Array:
    """The normal probability of an interval, given its middle and width, to as many digits where it is small."""
    low, high = (jnp.where(middle < 0, 1, -1) * middle + sign * width / 2 for sign in (-1, 1))
    approximation = norm.pdf(middle) * width * (1 + (middle**2 - 1) * width**2 / 24)
    return jnp.where(_short(middle, width), approximation, ndtr(high) - ndtr(low))


def _short(at: Array, width: Array) -> Array:
    """Whether the normal density hardly changes within an interval of this width at a point."""
    return width * jnp.maximum(jnp.abs(at), 1.0) < SHORT


def _inverse(curvature: Array) -> Array:
    """Covariances (coordinate, coordinate, item): inverses of curvatures with a ridge."""
    matrix, size = jnp.moveaxis(curvature, -1, 0).astype(jnp.result_type(float)), len(curvature)
    largest = jnp.einsum("nii->ni", matrix).max(-1, initial=1.0)
    return inverse_of_product(jnp.linalg.cholesky(matrix + RIDGE * largest[:, None, None] * jnp.eye(size)))


def _factor(covariance: Array) -> Array:
    """Cholesky factors (coordinate, coordinate, item)."""
    return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(covariance, -1, 0)), 0, -1)
