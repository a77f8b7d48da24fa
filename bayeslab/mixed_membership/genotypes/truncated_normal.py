"""Normal distributions cut off at the sides of a simplex or a cube, one for every item, to propose probabilities from.

The coordinates are drawn one after the other, each from its normal conditional on those before, cut off at 0 and at
what is left of 1: in a cube all of it, on a simplex what those before leave. There the last one, which is the largest,
is what all others leave. That is near the normal distribution, and its density is known.

A move may be accepted by the ratio of densities only if the way back is known to as many digits. So what is very near
to a side is held there, and nothing else may come so near; and scores that are beyond the range lead nowhere.
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
"""Of the largest curvature, added to all: a direction of which the data say nothing keeps a finite spread."""
LEAST = 1e-9
"""That is left for the next coordinate."""
DIGITS = 100
"""Times the smallest float: a probability that is known."""
SHORT = 0.1
"""Standard deviations, from which on the difference of two probabilities has enough digits."""
HELD = 1e-5
"""What is so near to 0 or 1 stays: beside 1, single precision has six digits less."""


class Cut(NamedTuple):
    """order (coordinate, item): in which coordinates are drawn; on a simplex with the last one, which is not. centre
    (coordinate, item): in that order. scale (coordinate, coordinate, item): the lower factor of their covariance.
    """

    order: Array
    centre: Array
    scale: Array

    @property
    def simplex(self) -> bool:
        return len(self.order) > len(self.centre)


class Move(NamedTuple):
    """What is proposed for every item: new points, the log likelihood gained, the log of the ratio by which they are
    accepted, and whether they may be, (item,)."""

    new: Array
    gain: Array
    ratio: Array
    possible: Array

    def accepted(self, key: Array) -> tuple[Array, Array]:
        """Which items take what is proposed, by the rule of Metropolis and Hastings, and the log likelihood that all
        gain."""
        taken = self.possible & (jnp.log(jax.random.uniform(key, self.ratio.shape)) < self.ratio)
        return taken, jnp.where(taken, self.gain, 0.0).sum()


class Walk(NamedTuple):
    """Over the coordinates, all (coordinate, item): errors, which times the scale are distances from the centre, what
    is found of each, the log density given those before, whether the score is known; and what is left of 1 (item,)."""

    errors: Array
    found: Array
    log_density: Array
    known: Array
    left: Array


class Ends(NamedTuple):
    """Of the next coordinate, in standard deviations from its mean, given those before; all (item,).

    mass: the probability between both.
    """

    low: Array
    high: Array
    mean: Array
    sd: Array
    mass: Array


def on_simplex(at: Array, curvature: Array) -> Cut:
    """About probabilities (category, item), with minus the second derivatives (category, category, item) of the log
    density there."""
    order = jnp.argsort(at, axis=0)
    matrix = ordered(curvature, order)
    inner, side, last = matrix[:-1, :-1], matrix[:-1, -1:], matrix[-1:, -1:]
    free = inner - side - side.swapaxes(0, 1) + last  # along the simplex, where the last coordinate follows the others
    return Cut(order, ordered(at, order)[:-1], _factor(_inverse(free)).astype(at.dtype))


def in_cube(at: Array, curvature: Array) -> Cut:
    """About points (coordinate, item), as before. What is nearest to a side, for its spread, comes first."""
    covariance = _inverse(curvature)
    order = jnp.argsort(jnp.minimum(at, 1 - at) / jnp.sqrt(jnp.einsum("iin->in", covariance)), axis=0)
    return Cut(order, ordered(at, order), _factor(ordered(covariance, order)).astype(at.dtype))


def moved(proposal: Cut, gradient: Array) -> Cut:
    """With the centre where the quadratic with this gradient (coordinate, item) at the centre is largest; on a simplex
    that has a coordinate more."""
    along = ordered(gradient, proposal.order).astype(proposal.scale.dtype)
    if proposal.simplex:
        along = along[:-1] - along[-1:]
    step = jnp.einsum("ijn,kjn,kn->in", proposal.scale, proposal.scale, along)
    return proposal._replace(centre=proposal.centre + step)


def centre(proposal: Cut) -> Array:
    """The nearest point (coordinate, item) that can be drawn."""
    values = jnp.clip(proposal.centre, 0.0, 1.0)
    if proposal.simplex:
        last = jnp.maximum(1 - values.sum(0, keepdims=True), 0.0)
        values = jnp.concatenate([values, last])
        values = values / values.sum(0)
    return ordered(values, jnp.argsort(proposal.order, axis=0))


def relaxed(key: Array, proposal: Cut, at: Array, back: Array) -> tuple[Array, Array, Array]:
    """Points (coordinate, item), the log density of the proposal there, less that where they come from (item,), and
    whether the way back is known (item,).

    Every coordinate is a normal variate, the score of its rank among those that could be drawn. Scores are drawn about
    -back times those before, with the spread that keeps their distribution, which is the same in time turned round
    (Adler 1981, doi:10.1103/PhysRevD.23.2901; Neal 1998, arXiv:bayes-an/9506004). back (item,): 0 forgets them, 1 would
    turn them to their opposite.
    """
    first = scores(proposal, at)
    back = back.astype(first.each.dtype)
    noise = jnp.sqrt(1 - back**2) * jax.random.normal(key, first.each.shape, first.each.dtype)
    new, second = points(proposal, noise - back * first.each, at)
    return new, gained(first, second), leads_back(proposal, (at, new), (first, second))


class Scores(NamedTuple):
    """In the order of the proposal, all (coordinate, item). each: normal scores. log_density: of the coordinate given
    those before, 0 for what is held. known: whether the score is, to enough digits, or the coordinate held."""

    each: Array
    log_density: Array
    known: Array


def scores(proposal: Cut, at: Array) -> Scores:
    """Of points (coordinate, item)."""
    known = shown(proposal, at)

    def one(place: Array, walk: Walk) -> Walk:
        ends = _ends(proposal, place, walk)
        score, enough = _score(known[place], walk.left, ends)
        walk = walk._replace(found=walk.found.at[place].set(score))
        return _further(proposal, place, walk, ends, known[place], enough, near(known[place]))

    walk = lax.fori_loop(0, len(known), one, _first(proposal))
    return Scores(walk.found, walk.log_density, walk.known)


def points(proposal: Cut, scores: Array, at: Array) -> tuple[Array, Scores]:
    """Points (coordinate, item) that have these scores, but what is near to a side in `at`, which is held; and what
    `scores` finds of them."""
    known = shown(proposal, at)
    held = near(known)

    def one(place: Array, walk: Walk) -> Walk:
        ends = _ends(proposal, place, walk)
        value, enough = _at_score(scores[place], walk.left, ends)
        value = jnp.where(held[place], known[place], value)
        walk = walk._replace(found=walk.found.at[place].set(value))
        return _further(proposal, place, walk, ends, value, enough, held[place])

    walk = lax.fori_loop(0, len(known), one, _first(proposal))
    values = walk.found
    if proposal.simplex:
        values = jnp.concatenate([values, 1 - values.sum(0, keepdims=True)])
    new = ordered(values, jnp.argsort(proposal.order, axis=0)).astype(at.dtype)
    return new, Scores(scores, walk.log_density, walk.known)


def leads_back(proposal: Cut, ways: tuple[Array, Array], scores: tuple[Scores, Scores]) -> Array:
    """Whether points (coordinate, item) that came to others lead back to where they were, (item,): what is held is the
    same there, and all other scores are known at both. On a simplex the last coordinate, which is not drawn, is not
    near to a side."""
    first, second = (near(ordered(one, proposal.order)) for one in ways)
    back = (first == second).all(0) & (scores[0].known & scores[1].known).all(0)
    return back & ~first[-1] & ~second[-1] if proposal.simplex else back


def gained(first: Scores, second: Scores) -> Array:
    """The log density of the second points less that of the first, (item,)."""
    return (second.log_density - first.log_density).sum(0)


def shown(proposal: Cut, at: Array) -> Array:
    """The coordinates that are drawn, in their order."""
    return ordered(at, proposal.order).astype(proposal.centre.dtype)[: len(proposal.centre)]


def near(values: Array) -> Array:
    """To a side."""
    return (values < HELD) | (values > 1 - HELD)


def ordered(x: Array, order: Array) -> Array:
    """Rows, or rows and columns, (..., item) in the order of each item."""
    x = jnp.take_along_axis(x, order[:, None] if x.ndim == 3 else order, 0)
    return jnp.take_along_axis(x, order[None], 1) if x.ndim == 3 else x


def inverse_of_product(lower: Array) -> Array:
    """(coordinate, coordinate, item), of factors (item, coordinate, coordinate) times their transposes."""
    solved = jax.vmap(lambda root: cho_solve((root, True), jnp.eye(len(root))))(lower)
    return jnp.moveaxis(solved, 0, -1)


def _first(proposal: Cut) -> Walk:
    nothing = jnp.zeros_like(proposal.centre)
    return Walk(nothing, nothing, nothing, jnp.zeros(nothing.shape, bool), jnp.ones_like(proposal.centre[0]))


def _ends(proposal: Cut, place: Array, walk: Walk) -> Ends:
    far = 30.0 if proposal.centre.dtype == jnp.float64 else 11.0
    scale = proposal.scale[place]
    sd = scale[place]
    mean = proposal.centre[place] + added(scale * walk.errors)
    low, high = -mean / sd, (walk.left - mean) / sd
    off = jnp.maximum(low - far, 0.0) + jnp.minimum(high + far, 0.0)  # a mean so far outside comes nearer
    low, high = low - off, high - off
    return Ends(low, high, mean, sd, _between((low + high) / 2, walk.left / sd))


def _further(proposal: Cut, place: Array, walk: Walk, ends: Ends, value: Array, known: Array, held: Array) -> Walk:
    log_density = norm.logpdf(ends.low + value / ends.sd) - jnp.log(ends.sd * ends.mass)
    return Walk(
        walk.errors.at[place].set((value - ends.mean) / ends.sd),
        walk.found,
        walk.log_density.at[place].set(jnp.where(held, 0.0, log_density)),
        walk.known.at[place].set(known | held),
        jnp.maximum(walk.left - value, LEAST) if proposal.simplex else walk.left,
    )


def _score(value: Array, left: Array, ends: Ends) -> tuple[Array, Array]:
    """The normal score of a value among those between two ends, and whether its digits are known."""
    above, below = (left - value) / ends.sd, value / ends.sd
    upper, lower = _between(ends.high - above / 2, above), _between(ends.low + below / 2, below)
    part = jnp.minimum(lower, upper)
    score = ndtri(part / ends.mass)
    return jnp.where(lower < upper, score, -score), part > DIGITS * jnp.finfo(part.dtype).tiny


def _at_score(score: Array, left: Array, ends: Ends) -> tuple[Array, Array]:
    """The value of a score, as far from an end as there is so much between, and whether its digits are known."""
    below = score < 0
    edge, part = jnp.where(below, ends.low, -ends.high), ndtr(-jnp.abs(score)) * ends.mass
    # between the end and a value not far from it, whose density hardly changes; else by the inverse
    first = part / norm.pdf(edge)
    first *= 1 + edge * first / 2
    first -= (_between(edge + first / 2, first) - part) / norm.pdf(edge + first)
    beyond = ndtr(-jnp.abs(edge))
    standard = ndtri(jnp.where(edge < 0, beyond + part, beyond - part))
    far = jnp.where(edge < 0, standard, -standard) - edge
    distance = jnp.where(_short(edge, first), first, far) * ends.sd
    value = jnp.clip(jnp.where(below, distance, left - distance), 0.0, left)
    return value, part > DIGITS * jnp.finfo(part.dtype).tiny


def _between(middle: Array, width: Array) -> Array:
    """The normal probability around a place, to as many digits where it is small."""
    low, high = (jnp.where(middle < 0, 1, -1) * middle + by * width / 2 for by in (-1, 1))
    near = norm.pdf(middle) * width * (1 + (middle**2 - 1) * width**2 / 24)
    return jnp.where(_short(middle, width), near, ndtr(high) - ndtr(low))


def _short(at: Array, width: Array) -> Array:
    return width * jnp.maximum(jnp.abs(at), 1.0) < SHORT


def _inverse(curvature: Array) -> Array:
    """Covariances (coordinate, coordinate, item)."""
    matrix, size = jnp.moveaxis(curvature, -1, 0).astype(jnp.result_type(float)), len(curvature)
    largest = jnp.einsum("nii->ni", matrix).max(-1, initial=1.0)
    return inverse_of_product(jnp.linalg.cholesky(matrix + RIDGE * largest[:, None, None] * jnp.eye(size)))


def _factor(covariance: Array) -> Array:
    return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(covariance, -1, 0)), 0, -1)
