"""Normal distributions cut off at the sides of a simplex or a cube, one for every item, to propose probabilities from.

The coordinates are drawn one after the other, each from its normal conditional on those before, cut off at 0 and at
what is left of 1: in a cube all of it, on a simplex what those before leave. There the last one, which is the largest,
is what all others leave. That is near the normal distribution, and its density is known.
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
    """Over the coordinates: errors (coordinate, item), which times the scale are distances from the centre, and what
    is found of each (coordinate, item); what is left of 1 and the log density of those before, (item,)."""

    errors: Array
    found: Array
    left: Array
    log_density: Array


class Ends(NamedTuple):
    """Of the next coordinate, in standard deviations from its mean, given those before; all (item,).

    flip: whether more is below zero; beyond and mass are the probabilities above the upper end, or below the lower one
    where it is flipped, and between both: those that are small are known to as many digits.
    """

    low: Array
    high: Array
    mean: Array
    sd: Array
    flip: Array
    beyond: Array
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


def relaxed(key: Array, proposal: Cut, at: Array, back: Array) -> tuple[Array, Array]:
    """Points (coordinate, item), and the log density of the proposal there, less that where they come from (item,).

    Every coordinate is a normal variate, the score of its rank among those that could be drawn. Scores are drawn about
    -back times those before, with the spread that keeps their distribution, which is the same in time turned round
    (Adler 1981, doi:10.1103/PhysRevD.23.2901; Neal 1998, arXiv:bayes-an/9506004). back (item,): 0 forgets them, 1 would
    turn them to their opposite.
    """
    known, before = scores(proposal, at)
    back = back.astype(known.dtype)
    noise = jnp.sqrt(1 - back**2) * jax.random.normal(key, known.shape, known.dtype)
    new, after = points(proposal, noise - back * known, at)
    return new, after - before


def scores(proposal: Cut, at: Array, hold: float = 0.0) -> tuple[Array, Array]:
    """Normal scores (coordinate, item) of points in the order of the proposal, and its log density there (item,), given
    what is so near to 0 or 1 as `hold` says."""
    known = shown(proposal, at)

    def one(place: Array, walk: Walk) -> Walk:
        ends = _ends(proposal, place, walk)
        standard = ends.low + known[place] / ends.sd
        walk = walk._replace(found=walk.found.at[place].set(_score(standard, ends)))
        return _further(proposal, place, walk, ends, standard, known[place], near(known[place], hold))

    walk = lax.fori_loop(0, len(known), one, _first(proposal))
    return walk.found, walk.log_density


def points(proposal: Cut, scores: Array, at: Array, hold: float = 0.0) -> tuple[Array, Array]:
    """Points (coordinate, item) that have these scores, and the log density there (item,), given what of `at` is so
    near to 0 or 1 as `hold` says, which stays."""
    known = shown(proposal, at)

    def one(place: Array, walk: Walk) -> Walk:
        ends, held = _ends(proposal, place, walk), near(known[place], hold)
        standard = _at_score(scores[place], ends)
        value = jnp.where(held, known[place], jnp.clip((standard - ends.low) * ends.sd, 0.0, walk.left))
        walk = walk._replace(found=walk.found.at[place].set(value))
        return _further(proposal, place, walk, ends, standard, value, held)

    walk = lax.fori_loop(0, len(known), one, _first(proposal))
    values = walk.found
    if proposal.simplex:
        values = jnp.concatenate([values, 1 - values.sum(0, keepdims=True)])
    return ordered(values, jnp.argsort(proposal.order, axis=0)), walk.log_density


def shown(proposal: Cut, at: Array) -> Array:
    """The coordinates that are drawn, in their order."""
    return ordered(at, proposal.order).astype(proposal.centre.dtype)[: len(proposal.centre)]


def near(values: Array, hold: float) -> Array:
    """To a side."""
    return (values < hold) | (values > 1 - hold)


def ordered(x: Array, order: Array) -> Array:
    """Rows, or rows and columns, (..., item) in the order of each item."""
    x = jnp.take_along_axis(x, order[:, None] if x.ndim == 3 else order, 0)
    return jnp.take_along_axis(x, order[None], 1) if x.ndim == 3 else x


def inverse_of_product(lower: Array) -> Array:
    """(coordinate, coordinate, item), of factors (item, coordinate, coordinate) times their transposes."""
    solved = jax.vmap(lambda root: cho_solve((root, True), jnp.eye(len(root))))(lower)
    return jnp.moveaxis(solved, 0, -1)


def _first(proposal: Cut) -> Walk:
    nothing, none = jnp.zeros_like(proposal.centre), jnp.zeros_like(proposal.centre[0])
    return Walk(nothing, nothing, none + 1, none)


def _ends(proposal: Cut, place: Array, walk: Walk) -> Ends:
    far = 30.0 if proposal.centre.dtype == jnp.float64 else 12.0
    scale = proposal.scale[place]
    sd = scale[place]
    mean = proposal.centre[place] + added(scale * walk.errors)
    low, high = -mean / sd, (walk.left - mean) / sd
    off = jnp.maximum(low - far, 0.0) + jnp.minimum(high + far, 0.0)  # a mean so far outside comes nearer
    low, high = low - off, high - off
    flip = low + high < 0
    beyond = ndtr(jnp.where(flip, low, -high))
    return Ends(low, high, mean, sd, flip, beyond, ndtr(jnp.where(flip, high, -low)) - beyond)


def _further(proposal: Cut, place: Array, walk: Walk, ends: Ends, standard: Array, value: Array, held: Array) -> Walk:
    log_density = norm.logpdf(standard) - jnp.log(ends.sd * ends.mass)
    return Walk(
        walk.errors.at[place].set((value - ends.mean) / ends.sd),
        walk.found,
        jnp.maximum(walk.left - value, LEAST) if proposal.simplex else walk.left,
        walk.log_density + jnp.where(held, 0.0, log_density),
    )


def _score(standard: Array, ends: Ends) -> Array:
    """The normal score of a standard value among those between two ends."""
    share = (ndtr(jnp.where(ends.flip, standard, -standard)) - ends.beyond) / ends.mass
    score = ndtri(jnp.clip(share, 1e-30, 1 - jnp.finfo(share.dtype).eps))
    return jnp.where(ends.flip, score, -score)


def _at_score(score: Array, ends: Ends) -> Array:
    """The standard value of a score."""
    value = ndtri(ends.beyond + ndtr(jnp.where(ends.flip, score, -score)) * ends.mass)
    return jnp.clip(jnp.where(ends.flip, value, -value), ends.low, ends.high)


def _inverse(curvature: Array) -> Array:
    """Covariances (coordinate, coordinate, item)."""
    matrix, size = jnp.moveaxis(curvature, -1, 0).astype(jnp.result_type(float)), len(curvature)
    largest = jnp.einsum("nii->ni", matrix).max(-1, initial=1.0)
    return inverse_of_product(jnp.linalg.cholesky(matrix + RIDGE * largest[:, None, None] * jnp.eye(size)))


def _factor(covariance: Array) -> Array:
    return jnp.moveaxis(jnp.linalg.cholesky(jnp.moveaxis(covariance, -1, 0)), 0, -1)
