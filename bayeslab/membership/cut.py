"""Normal distributions cut off at the sides of a simplex or a cube, one for every item, to propose probabilities from.

The coordinates are drawn one after the other, each from its normal conditional on those before, cut off at 0 and at
what is left of 1: in a cube all of it, on a simplex what those before leave. There the last one, which is the largest,
is what all others leave. That is near the normal distribution, and its density is known.

A move may be accepted by the ratio of densities only if the way back is known to as many digits: what is so near to a
side, or so far in a tail, that its score is not, is held where it is, and nothing else may come there. Scores
and densities are of points as they are kept, in the precision of the program.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import cho_solve
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm

from bayeslab.membership.alleles import added

RIDGE = 1e-6
"""Of the largest curvature, added to all: a direction of which the data say nothing keeps a finite spread."""
LEAST = 1e-9
"""That is left for the next coordinate."""
DIGITS = 100
"""Roundings in a probability that is known."""
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

    def side(self, negative: Array) -> tuple[Array, Array]:
        """Whether probabilities are those below, and that beyond the end there: of the tail in which both ends are,
        else of the side that is asked for. Those that are small are known to as many digits."""
        below = jnp.where((self.low < 0) & (self.high > 0), negative, self.low + self.high < 0)
        return below, ndtr(jnp.where(below, self.low, -self.high))


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
    new = points(proposal, noise - back * first.each, at, first.held)
    second = scores(proposal, new)
    return new, gained(first, second), leads_back(proposal, (at, new), (first, second))


class Scores(NamedTuple):
    """In the order of the proposal, all (coordinate, item). each: normal scores. log_density: of the coordinate given
    those before. held: whether the score is not known to enough digits."""

    each: Array
    log_density: Array
    held: Array


def scores(proposal: Cut, at: Array) -> Scores:
    """Of points (coordinate, item)."""
    known = shown(proposal, at)

    def one(place: Array, walk: Walk) -> Walk:
        ends = _ends(proposal, place, walk)
        standard = ends.low + known[place] / ends.sd
        score, enough = _score(standard, ends)
        walk = walk._replace(found=walk.found.at[place].set(score), known=walk.known.at[place].set(enough))
        return _further(proposal, place, walk, ends, standard, known[place])

    walk = lax.fori_loop(0, len(known), one, _first(proposal))
    return Scores(walk.found, walk.log_density, near(shown(proposal, at)) | ~walk.known)


def points(proposal: Cut, scores: Array, at: Array, held: Array) -> Array:
    """Points (coordinate, item) that have these scores, but what is held (coordinate, item), which stays where it is
    in `at`."""
    known = shown(proposal, at)

    def one(place: Array, walk: Walk) -> Walk:
        ends = _ends(proposal, place, walk)
        standard = _at_score(scores[place], ends)
        value = jnp.where(held[place], known[place], jnp.clip((standard - ends.low) * ends.sd, 0.0, walk.left))
        walk = walk._replace(found=walk.found.at[place].set(value))
        return _further(proposal, place, walk, ends, standard, value)

    values = lax.fori_loop(0, len(known), one, _first(proposal)).found
    if proposal.simplex:
        values = jnp.concatenate([values, 1 - values.sum(0, keepdims=True)])
    return ordered(values, jnp.argsort(proposal.order, axis=0)).astype(at.dtype)


def leads_back(proposal: Cut, ways: tuple[Array, Array], known: tuple[Scores, Scores]) -> Array:
    """Whether points (coordinate, item) that came to others lead back to where they were, (item,): what is held is the
    same there. known: of both."""
    first, second = ways
    same = (known[0].held == known[1].held).all(0) & (near(first) == near(second)).all(0)
    if not proposal.simplex:
        return same
    return same & ~near(ordered(first, proposal.order)[-1]) & ~near(ordered(second, proposal.order)[-1])


def gained(first: Scores, second: Scores) -> Array:
    """The log density of what is not held at the second points, less that at the first, (item,)."""
    return jnp.where(first.held, 0.0, second.log_density - first.log_density).sum(0)


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
    below = low + high < 0
    mass = ndtr(jnp.where(below, high, -low)) - ndtr(jnp.where(below, low, -high))
    return Ends(low, high, mean, sd, mass)


def _further(proposal: Cut, place: Array, walk: Walk, ends: Ends, standard: Array, value: Array) -> Walk:
    log_density = norm.logpdf(standard) - jnp.log(ends.sd * ends.mass)
    return Walk(
        walk.errors.at[place].set((value - ends.mean) / ends.sd),
        walk.found,
        walk.log_density.at[place].set(log_density),
        walk.known,
        jnp.maximum(walk.left - value, LEAST) if proposal.simplex else walk.left,
    )


def _score(standard: Array, ends: Ends) -> tuple[Array, Array]:
    """The normal score of a standard value among those between two ends, and whether its digits are known."""
    below, beyond = ends.side(standard < 0)
    part = ndtr(jnp.where(below, standard, -standard)) - beyond
    share, info = part / ends.mass, jnp.finfo(part.dtype)
    known = (part > DIGITS * info.eps * beyond) & (part > DIGITS * info.tiny) & (1 - share > DIGITS * info.eps)
    score = ndtri(jnp.clip(share, info.tiny, 1 - info.eps))
    return jnp.where(below, score, -score), known


def _at_score(score: Array, ends: Ends) -> Array:
    """The standard value of a score."""
    below, beyond = ends.side(score < 0)
    value = ndtri(beyond + ndtr(jnp.where(below, score, -score)) * ends.mass)
    return jnp.clip(jnp.where(below, value, -value), ends.low, ends.high)


def _inverse(curvature: Array) -> Array:
    """Covariances (coordinate, coordinate, item)."""
    matrix, size = jnp.moveaxis(curvature, -1, 0).astype(jnp.result_type(float)), len(curvature)
    largest = jnp.einsum("nii->ni", matrix).max(-1, initial=1.0)
    return inverse_of_product(jnp.linalg.cholesky(matrix + RIDGE * largest[:, None, None] * jnp.eye(size)))


def _factor(covariance: Array) -> Array:
    return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(covariance, -1, 0)), 0, -1)
