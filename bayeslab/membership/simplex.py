"""Normal distributions cut off at the sides of a simplex, one for every individual, to propose probabilities from.

The coordinates are drawn one after the other, each from its normal conditional on those before, cut off at 0 and at
what they leave. The last one, which is the largest, is what all others leave. That is near the normal distribution on
the simplex, and its density is known.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jax.scipy.stats import norm

RIDGE = 1e-6
"""Of the largest curvature, added to all: a direction of which the data say nothing keeps a finite spread."""
LEAST = 1e-9
"""That is left for the next coordinate."""


class Cut(NamedTuple):
    """order (individual, population): in which coordinates are drawn. centre (individual, population - 1): of those but
    the last, in that order; scale (individual, population - 1, population - 1): the lower factor of their covariance.
    """

    order: Array
    centre: Array
    scale: Array


def cut(at: Array, curvature: Array) -> Cut:
    """About probabilities (individual, population), with minus the second derivatives (individual, population,
    population) of the log density there."""
    order = jnp.argsort(at, axis=1)
    matrix = jnp.take_along_axis(curvature, order[:, :, None], 1)
    matrix = jnp.take_along_axis(matrix, order[:, None, :], 2).astype(jnp.result_type(float))
    inner, side, last = matrix[:, :-1, :-1], matrix[:, :-1, -1:], matrix[:, -1:, -1:]
    free = inner - side - side.swapaxes(1, 2) + last  # along the simplex, where the last coordinate follows the others
    size = free.shape[-1]
    largest = jnp.maximum(jnp.einsum("...ii->...i", free).max(-1), 1.0) if size else jnp.ones(len(at))
    lower = jnp.linalg.cholesky(free + RIDGE * largest[:, None, None] * jnp.eye(size))
    covariance = jax.vmap(lambda root: jax.scipy.linalg.cho_solve((root, True), jnp.eye(size)))(lower)
    return Cut(order, _free(at, order), jnp.linalg.cholesky(covariance))


def moved(proposal: Cut, gradient: Array) -> Cut:
    """With the centre where the quadratic with this gradient (individual, population) at the centre is largest."""
    by = jnp.take_along_axis(gradient, proposal.order, 1).astype(proposal.scale.dtype)
    along = by[:, :-1] - by[:, -1:]
    step = jnp.einsum("nij,nkj,nk->ni", proposal.scale, proposal.scale, along)
    return proposal._replace(centre=proposal.centre + step)


def top(proposal: Cut) -> Array:
    """The centre (individual, population), which may be outside of the simplex."""
    return _whole(proposal.centre, proposal.order)


def drawn(key: Array, proposal: Cut) -> tuple[Array, Array]:
    """Probabilities (individual, population), and the log of their density (individual,)."""
    random = jax.random.uniform(key, proposal.centre.shape, proposal.centre.dtype)
    values, log_density = _walked(proposal, lambda place, low, high: _between(random[:, place], low, high))
    return _whole(values, proposal.order), log_density


def log_density(proposal: Cut, at: Array) -> Array:
    """Of probabilities (individual, population)."""
    values = _free(at, proposal.order)

    def known(place: Array, low: Array, _: Array) -> Array:
        return low + values[:, place] / proposal.scale[:, place, place]

    return _walked(proposal, known)[1]


def _free(at: Array, order: Array) -> Array:
    return jnp.take_along_axis(at, order, 1)[:, :-1].astype(jnp.result_type(float))


def _whole(values: Array, order: Array) -> Array:
    whole = jnp.concatenate([values, 1 - values.sum(1, keepdims=True)], 1)
    return jnp.take_along_axis(whole, jnp.argsort(order, axis=1), 1)


def _walked(proposal: Cut, pick: Callable[[Array, Array, Array], Array]) -> tuple[Array, Array]:
    """Coordinates but the last and their log density. pick: (place, lower end, upper end) -> a standard value."""
    far = 30.0 if proposal.centre.dtype == jnp.float64 else 12.0

    def one(place: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        values, errors, left, total = state
        sd = proposal.scale[:, place, place]
        mean = proposal.centre[:, place] + jnp.einsum("nj,nj->n", proposal.scale[:, place], errors)
        low, high = -mean / sd, (left - mean) / sd
        off = jnp.maximum(low - far, 0.0) + jnp.minimum(high + far, 0.0)  # a mean so far outside comes nearer
        low, high = low - off, high - off
        standard = pick(place, low, high)
        value = jnp.clip((standard - low) * sd, 0.0, left)
        total += norm.logpdf(standard) - jnp.log(sd) - _log_mass(low, high)
        errors = errors.at[:, place].set((value - mean) / sd)
        return values.at[:, place].set(value), errors, jnp.maximum(left - value, LEAST), total

    nothing = jnp.zeros_like(proposal.centre)
    ones = jnp.ones(len(nothing), nothing.dtype)
    values, _, _, total = lax.fori_loop(0, nothing.shape[1], one, (nothing, nothing, ones, 0 * ones))
    return values, total


def _away(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Whether two ends change their signs so that most of what is between them is above zero, and the ends then."""
    flip = low + high < 0
    return flip, jnp.where(flip, -high, low), jnp.where(flip, -low, high)


def _between(uniform: Array, low: Array, high: Array) -> Array:
    """A standard normal variate between two ends, by the side where probabilities are small."""
    flip, a, b = _away(low, high)
    value = jnp.clip(-ndtri(ndtr(-b) + uniform * (ndtr(-a) - ndtr(-b))), a, b)
    return jnp.where(flip, -value, value)


def _log_mass(low: Array, high: Array) -> Array:
    """The log of the probability between two ends."""
    _, a, b = _away(low, high)
    above, beyond = log_ndtr(-a), log_ndtr(-b)
    return above + jnp.log(-jnp.expm1(jnp.minimum(beyond - above, -1e-12)))
