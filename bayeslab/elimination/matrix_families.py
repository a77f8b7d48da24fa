"""Conditionals of positive definite matrices: how their coefficients are read, and what they build."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.elimination.family import Local, Read, gradients_at


def symmetric_part(matrix: Array) -> Array:
    """The symmetric part of matrices."""
    return (matrix + matrix.mT) / 2


def log_determinant(matrix: Array) -> Array:
    """Log determinants of positive definite matrices, by their Cholesky factors."""
    return 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)).sum(-1)


def read_wishart(local: Local, point: Array, prior: Distribution) -> tuple[Array, Array]:
    """The coefficients a and B of g(X) = a log|X| - tr(B X), from gradients at two multiples of a matrix."""
    size, low, high = point.shape[-1], 0.7, 1.6
    inverse = symmetric_part(jnp.linalg.inv(point))
    gx, gy = map(symmetric_part, gradients_at(local.density, low * point, high * point))
    a = jnp.trace(point @ (gx - gy), axis1=-2, axis2=-1) / (size * (1 / low - 1 / high))
    return a, a[..., None, None] * inverse / low - gx


def read_inverse_wishart(local: Local, point: Array, prior: Distribution) -> tuple[Array, Array]:
    """The coefficients c and P of g(X) = -c log|X| - tr(P X^-1), where X dg/dX X = -c X + P."""
    size, inverse = point.shape[-1], jnp.linalg.inv(point)
    low, high = 0.7 * point, 1.6 * point
    gx, gy = map(symmetric_part, gradients_at(local.density, low, high))
    mx, my = low @ gx @ low, high @ gy @ high
    c = jnp.trace(inverse @ (mx - my), axis1=-2, axis2=-1) / (size * 0.9)
    return c, mx + c[..., None, None] * low


def read_by_cholesky(read: Read) -> Read:
    """A reader of the density of a Cholesky factor L, from one of the density of X = L L'.

    The Jacobian of L -> X is taken out.
    """

    def of_cholesky(local: Local, at: Array, prior: Distribution) -> Any:
        size = at.shape[-1]
        powers = jnp.arange(size, 0, -1)

        def of_matrix(x: Array) -> Array:
            factor = jnp.linalg.cholesky(x)
            logs = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))
            return local.density(factor) - (powers * logs).sum()

        return read(local._replace(density=of_matrix), at @ at.mT, prior)

    return of_cholesky


def build_wishart(eta: tuple[Array, Array], kind: type[Distribution]) -> Distribution:
    """The Wishart distribution, of one of its two classes, with coefficients a and B."""
    a, b = eta
    return kind(2 * a + b.shape[-1] + 1, rate_matrix=2 * symmetric_part(b))


def build_inverse_wishart(eta: tuple[Array, Array], kind: type[Distribution]) -> Distribution:
    """The inverse Wishart distribution with coefficients c and P."""
    c, p = eta
    return kind(2 * c - p.shape[-1] - 1, scale_matrix=2 * symmetric_part(p))


def wishart_mode(q: Any) -> Array:
    """The mode of a Wishart."""
    excess = jnp.maximum(q.concentration - q.event_shape[-1] - 1, MIN_MODE)
    return excess[..., None, None] * q.scale_matrix


def inverse_wishart_mode(q: Any) -> Array:
    """The mode of an inverse Wishart."""
    return q.scale_matrix / (q.concentration + q.event_shape[-1] + 1)[..., None, None]


def wishart_cholesky_mode(q: Any) -> Array:
    """The mode of the Cholesky factor of a Wishart: by the Bartlett decomposition it is diagonal but for the scale."""
    powers = jnp.maximum(q.concentration[..., None] - 1 - jnp.arange(q.event_shape[-1]), MIN_MODE)
    return q.scale_tril * jnp.sqrt(powers)[..., None, :]


MIN_MODE = 1e-100
"""The smallest number in place of zero, where a mode is at the end of a support."""
