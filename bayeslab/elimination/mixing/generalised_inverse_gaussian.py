"""The family of generalised inverse Gaussians: variances of Normals whose prior is of the Gamma kind."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.distributions.mixing.generalised_inverse_gaussian import GeneralisedInverseGaussian
from bayeslab.elimination.around import around_middle
from bayeslab.elimination.cubature import of_generalised_inverse_gaussian
from bayeslab.elimination.family import Eta, Family, Local
from bayeslab.programs.wrapped_distributions import innermost_distribution

LOW, HIGH = -30.0, 0.5
"""Where gradients are read beside a value or the number one, on the log scale.

The term in 1 / x is seen near zero alone, that in x far out.
"""


def _statistics(x: Array) -> tuple[Array, Array, Array]:
    return jnp.log(x), -x / 2, -1 / (2 * x)


def _read(local: Local, at: Array, prior: Distribution) -> Eta:
    """The coefficients of the three statistics: x dg/dx is linear in 1, x and 1 / x, at three points."""
    largest = jnp.log(jnp.finfo(at.dtype).max)
    middle = jnp.clip(jnp.log(at), -0.25 * largest, 0.25 * largest)
    lowest = jnp.maximum(jnp.minimum(middle, 0.0) + LOW, -0.4 * largest)  # the inverse of its square is a number
    points = jnp.exp(jnp.stack([lowest, middle, jnp.maximum(middle, 0.0) + HIGH]))
    slopes = points * jax.lax.map(jax.grad(local.density), points)
    at = points[1]
    u, v, w = points / at
    first, second = (slopes[1] - slopes[0]) / (v - u), (slopes[2] - slopes[1]) / (w - v)
    # Between the lowest points slopes may change by more than all digits of the linear term.
    # slopes = order - 1 - a at / 2 u + b / (2 at) / u; divided differences of 1 / u are -1 / (u v) and 1 / (u v w)
    inverse = (second - first) / (w - u) * (u * v * w)
    linear = second + inverse / (v * w)
    order = slopes[1] - linear * v - inverse / v
    return order, -2 * linear / at, 2 * inverse * at


def _build(eta: Eta, prior: Distribution) -> Distribution:
    """A generalised inverse Gaussian; not a number where it is not one."""
    order, linear, inverse = eta
    proper = (linear > 0) & (inverse >= 0)
    rates = (jnp.where(proper, rate, jnp.nan) for rate in (linear, inverse))
    return GeneralisedInverseGaussian(order + 1, *rates).to_event(prior.event_dim)


def _mode(q: Distribution) -> Array:
    """The mode, but no smaller than the inverse of the linear rate times eps^(3/4).

    What is Normal with a smaller variance has a precision beside which that of anything else is lost.
    """
    inner = innermost_distribution(q)
    return jnp.maximum(inner.mode, jnp.finfo(inner.mode.dtype).eps ** 0.75 / inner.linear)


def _typical(q: Distribution, otherwise: Array) -> Array:
    mean = innermost_distribution(q).mean
    return jnp.where(jnp.isfinite(mean) & (mean > 0), mean, otherwise)


def _around(q: Any, current: Array, steps: Any, prior: Any = None) -> Array:
    return around_middle(q, innermost_distribution(q).mean, current, steps)


GENERALISED_INVERSE_GAUSSIAN = Family(
    "GeneralisedInverseGaussian",
    _read,
    _build,
    (GeneralisedInverseGaussian,),
    statistics=_statistics,
    points=lambda q: of_generalised_inverse_gaussian(innermost_distribution(q)),
    averaged=lambda x: (x, 1 / x),
    mode=_mode,
    typical=_typical,
    middle=lambda key, q, old: _typical(q, old),
    around=_around,
    wider=(dist.Gamma, dist.Exponential, dist.Chi2, dist.InverseGamma),
)
"""A Gamma or an inverse Gamma prior, children with a term in both x and 1 / x. Points have the mean of these two."""
