"""The Normal between bounds, right however far in a tail these are, and the probit that it makes Normal.

NumPyro's is right to some 37 standard deviations on one side, and loses its digits between two bounds beyond eight.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr, ndtri
from numpyro.distributions import constraints

LOG_ROOT = 0.5 * np.log(2 * np.pi)
MIN_WIDTH = 1e-5
"""Between bounds that are closer, relative to how fast the density falls, it is taken as linear."""
FAR = 3.0
"""Farther out moments are integrals, near by they are closed forms, which lose digits there."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
NUM_NEWTON_STEPS = 4


class TruncatedNormal(dist.Distribution):
    """A Normal with mean loc and standard deviation scale between low and high; None: no bound on that side."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    pytree_data_fields = ("loc", "scale", "low", "high")

    def __init__(self, loc: Any, scale: Any, *, low: Any = None, high: Any = None, validate_args: bool | None = None):
        given = [jnp.asarray(each, float) for each in (loc, scale, low, high) if each is not None]
        batch_shape = jnp.broadcast_shapes(*(each.shape for each in given))
        self.loc, self.scale = jnp.broadcast_to(loc, batch_shape), jnp.broadcast_to(scale, batch_shape)
        self.low, self.high = low, high
        super().__init__(batch_shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        if self.low is None:
            return constraints.real if self.high is None else constraints.less_than(self.high)
        return constraints.greater_than(self.low) if self.high is None else constraints.interval(self.low, self.high)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        info = jnp.finfo(self.loc.dtype)
        return self.icdf(jax.random.uniform(key, shape, self.loc.dtype, minval=info.tiny))

    def log_prob(self, value: Array) -> Array:
        z = (value - self.loc) / self.scale
        return -(z**2) / 2 - LOG_ROOT - jnp.log(self.scale) - self._log_probability

    @property
    def _log_probability(self) -> Array:
        """log of the probability of the interval without the bounds."""
        below = 0.0 if self.high is None else log_ndtr((self.high - self.loc) / self.scale)
        if self.low is None:
            return jnp.broadcast_to(below, self.loc.shape)
        if self.high is None:
            return log_ndtr((self.loc - self.low) / self.scale)
        return log_interval_probability(*self._standard_bounds())

    def icdf(self, q: Array) -> Array:
        """The value below which the variable is with probability q."""
        a, b = self._standard_bounds()
        flipped = a + b > 0  # into the left tail, where probabilities keep their digits
        a, b = jnp.where(flipped, -b, a), jnp.where(flipped, -a, b)
        q = jnp.where(flipped, 1 - q, q)
        log_p = jnp.logaddexp(log_ndtr(a) + jnp.log1p(-q), log_ndtr(b) + jnp.log(q))
        narrow = (b - a) * (1 + jnp.abs(a)) < MIN_WIDTH
        z = jnp.where(narrow, a + jnp.where(narrow, b - a, 0.0) * q, jnp.clip(ndtri_of_log(log_p), a, b))
        return self._inside(self.loc + self.scale * jnp.where(flipped, -z, z))

    @property
    def mean(self) -> Array:
        return self._inside(self.loc + self.scale * self._standard_moments()[0])

    @property
    def variance(self) -> Array:
        return self.scale**2 * self._standard_moments()[1]

    @property
    def mode(self) -> Array:
        return jnp.clip(self.loc, self.low, self.high)

    def _inside(self, value: Array) -> Array:
        return jnp.clip(value, self.low, self.high)

    def _standard_bounds(self) -> tuple[Array, Array]:
        """The bounds in standard deviations from the mean, infinite where there is none."""
        low, high = (
            jnp.full(self.loc.shape, none) if bound is None else jnp.broadcast_to(bound, self.loc.shape)
            for bound, none in ((self.low, -jnp.inf), (self.high, jnp.inf))
        )
        return (low - self.loc) / self.scale, (high - self.loc) / self.scale

    def _standard_moments(self) -> tuple[Array, Array]:
        """The mean and the variance for loc 0 and scale 1."""
        a, b = self._standard_bounds()
        flipped = a + b < 0
        a, b = (
            jnp.where(flipped, -b, a),
            jnp.where(flipped, -a, b),
        )  # a is the nearer one
        far = (a > FAR) | (b - a < 1)
        far_mean, far_variance = _moments_by_quadrature(jnp.where(far, a, FAR), jnp.where(far, b, jnp.inf))
        near_mean, near_variance = _moments_in_closed_form(jnp.where(far, 0.0, a), jnp.where(far, 2.0, b))
        mean = jnp.where(far, far_mean, near_mean)
        return jnp.where(flipped, -mean, mean), jnp.where(far, far_variance, near_variance)


class BernoulliProbit(dist.Distribution):
    """Zero or one: one with the probability that a normal variable is below the predictor, (*batch).

    scale: its standard deviation, positive; `predictor` is in units of it.
    """

    arg_constraints = {"predictor": constraints.real, "scale": constraints.positive}
    support = constraints.boolean
    pytree_data_fields = ("predictor", "scale")
    has_enumerate_support = True

    def __init__(self, predictor: Any, scale: Any = 1.0, *, validate_args: bool | None = None):
        self.scale = jnp.asarray(scale)
        self.predictor = jnp.asarray(predictor) / self.scale
        super().__init__(self.predictor.shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, (*sample_shape, *self.batch_shape), self.predictor.dtype)
        return (noise < self.predictor).astype(int)

    def log_prob(self, value: Array) -> Array:
        return log_ndtr((2 * value - 1) * self.predictor)

    def enumerate_support(self, expand: bool = True) -> Array:
        values = jnp.arange(2).reshape(2, *(1 for _ in self.batch_shape))
        return jnp.broadcast_to(values, (2, *self.batch_shape)) if expand else values

    @property
    def mean(self) -> Array:
        return jax.scipy.special.ndtr(self.predictor)

    @property
    def variance(self) -> Array:
        return self.mean * jax.scipy.special.ndtr(-self.predictor)


def log_interval_probability(a: Array, b: Array) -> Array:
    """log of the probability that a standard normal variable is between a and b, with its digits in both tails."""
    kept, lost = log_ndtr(b) + log_ndtr(-a), log_ndtr(a) + log_ndtr(-b)
    narrow = (b - a) * (1 + jnp.minimum(jnp.abs(a), jnp.abs(b))) < MIN_WIDTH
    safe_gap = jnp.where(narrow, -1.0, lost - kept)
    middle = jnp.where(narrow, (a + b) / 2, 0.0)
    width = jnp.where(narrow, b - a, 1.0)
    return jnp.where(narrow, jnp.log(width) - middle**2 / 2 - LOG_ROOT, kept + jnp.log1p(-jnp.exp(safe_gap)))


def ndtri_of_log(log_p: Array) -> Array:
    """Where the standard normal distribution function has a given log, however small that is."""
    deep = log_p < -5.0
    far = jnp.where(deep, log_p, -10.0)
    start = -jnp.sqrt(-2 * far)

    def newton(z: Array, _: None) -> tuple[Array, None]:
        log_cdf = log_ndtr(z)
        return z - (log_cdf - far) * jnp.exp(log_cdf + z**2 / 2 + LOG_ROOT), None

    z, _ = jax.lax.scan(newton, start, None, NUM_NEWTON_STEPS)
    return jnp.where(deep, z, ndtri(jnp.exp(jnp.where(deep, -1.0, log_p))))


def _moments_by_quadrature(a: Array, b: Array) -> tuple[Array, Array]:
    """Mean and variance of a standard normal variable above a, which is not far below zero, and below b."""
    length = jnp.minimum(b - a, 40.0 / (jnp.maximum(a, 0.0) + 1.0) + 4.0 / (1.0 + jnp.maximum(a, 0.0)))
    offset = length[..., None] * jnp.asarray(NODES + 1) / 2
    weight = WEIGHTS * jnp.exp(-offset * (a[..., None] + offset / 2))
    weight = weight / weight.sum(-1, keepdims=True)
    mean = jnp.asarray((weight * offset).sum(-1))
    return a + mean, jnp.asarray((weight * (offset - mean[..., None]) ** 2).sum(-1))


def _moments_in_closed_form(a: Array, b: Array) -> tuple[Array, Array]:
    """Mean and variance of a standard normal variable between a and b."""
    log_z = log_interval_probability(a, b)
    at_a, at_b = (jnp.exp(-(bound**2) / 2 - LOG_ROOT - log_z) for bound in (a, b))
    mean = at_a - at_b
    slopes = jnp.where(jnp.isinf(a), 0.0, a * at_a) - jnp.where(jnp.isinf(b), 0.0, b * at_b)
    return mean, 1 + slopes - mean**2
