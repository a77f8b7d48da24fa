"""The generalised inverse Gaussian distribution, of variances that make a Laplace or an asymmetric one of Normals.

    density at x proportional to x^(p - 1) exp(-(a x + b / x) / 2)

B. Jorgensen (1982), Statistical Properties of the Generalized Inverse Gaussian Distribution.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from bayeslab.distributions.mixing.bessel import MIN_ARGUMENT, log_bessel_k


class GeneralisedInverseGaussian(dist.Distribution):
    """Positive numbers with order p, linear rate a > 0 and inverse rate b > 0, (*batch) each.

    With order -1/2 it is the inverse Gaussian of mean sqrt(b / a) and shape b, with b = 0 and p > 0 it would be
    Gamma(p, a / 2). Variates are exact.
    """

    arg_constraints = {
        "order": constraints.real,
        "linear": constraints.nonnegative,
        "inverse": constraints.nonnegative,
    }
    support = constraints.positive
    pytree_data_fields = ("order", "linear", "inverse")

    def __init__(self, order: Any, linear: Any, inverse: Any, *, validate_args: bool | None = None):
        self.order, self.linear, self.inverse = dist.util.promote_shapes(order, linear, inverse)
        batch_shape = jax.lax.broadcast_shapes(*(jnp.shape(each) for each in (order, linear, inverse)))
        super().__init__(batch_shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        order, linear, inverse = (jnp.broadcast_to(each, shape) for each in (self.order, self.linear, self.inverse))
        upright = order >= 0
        rate = jnp.where(upright, linear, inverse)
        log_variate = _log_variates(key, jnp.abs(order), jnp.sqrt(linear * inverse), shape)
        value = jnp.exp(jnp.where(upright, 1, -1) * (log_variate - jnp.log(rate)))
        info = jnp.finfo(value.dtype)
        return jnp.clip(value, info.tiny, info.max)

    def log_prob(self, value: Array) -> Array:
        kernel = (self.order - 1) * jnp.log(value) - (self.linear * value + self.inverse / value) / 2
        return kernel - self._log_normaliser

    @property
    def _log_normaliser(self) -> Array:
        """log of the integral of the kernel."""
        argument = jnp.maximum(jnp.sqrt(self.linear * self.inverse), MIN_ARGUMENT)
        log_ratio = jnp.log(argument) - jnp.log(self.linear)  # log sqrt(b / a)
        return jnp.log(2.0) + log_bessel_k(self.order, argument) + self.order * log_ratio

    @property
    def mode(self) -> Array:
        """Where the density is largest, zero where it has a pole there."""
        above = self.order - 1
        root = jnp.sqrt(above**2 + self.linear * self.inverse)
        return jnp.where(above > 0, (above + root) / self.linear, self.inverse / (root - above))

    @property
    def mean(self) -> Array:
        return self._mean_of_power(1)

    @property
    def variance(self) -> Array:
        return jnp.maximum(self._mean_of_power(2) - self.mean**2, 0.0)

    @property
    def mean_inverse(self) -> Array:
        """The mean of 1 / x."""
        return self._mean_of_power(-1)

    def _mean_of_power(self, power: int) -> Array:
        argument = jnp.maximum(jnp.sqrt(self.linear * self.inverse), MIN_ARGUMENT)
        log_scale = jnp.log(argument) - jnp.log(self.linear)  # log sqrt(b / a)
        log_ratio = log_bessel_k(self.order + power, argument) - log_bessel_k(self.order, argument)
        return jnp.exp(log_ratio + power * log_scale)


def _log_variates(key: Array, order: Array, argument: Array, shape: tuple[int, ...]) -> Array:
    """Logs of a x, for x with order p >= 0, rates a and b, and sqrt(a b) as argument.

    L. Devroye (2014), Random variate generation for the generalized inverse Gaussian distribution, Statistics and
    Computing 24, 239-246: log x is log-concave, and is proposed uniformly in the middle and exponentially in the tails.
    """
    radius = jnp.hypot(argument, order)
    alpha = argument**2 / (radius + order)  # radius - order
    alpha = jnp.where(radius > 0, alpha, 0.0)

    def log_density(x: Array) -> Array:
        return -2 * alpha * jnp.sinh(x / 2) ** 2 - order * (jnp.expm1(x) - x)

    def slope(x: Array) -> Array:
        return -alpha * jnp.sinh(x) - order * jnp.expm1(x)

    right, left = -log_density(jnp.ones(shape)), -log_density(-jnp.ones(shape))
    far = jnp.log(4 / (alpha + 2 * order))
    t = jnp.where(right > 2, jnp.sqrt(2 / (alpha + order)), jnp.where(right < 0.5, far, 1.0))
    root = jnp.sqrt(1 + 2 * alpha) / alpha
    far = jnp.minimum(1 / order, jnp.log(1 + 1 / alpha + root))
    s = jnp.where(left > 2, jnp.sqrt(4 / (alpha * jnp.cosh(1.0) + order)), jnp.where(left < 0.5, far, 1.0))
    eta, zeta, theta, xi = -log_density(t), -slope(t), -log_density(-s), slope(-s)
    begin, end = s - theta / xi, t - eta / zeta
    middle = begin + end
    total = middle + 1 / zeta + 1 / xi

    def propose(state: tuple[Array, Array]) -> tuple[Array, Array]:
        key, x = state
        key, key_now = jax.random.split(key)
        uniform = jax.random.uniform(key_now, (3, *shape), order.dtype, minval=jnp.finfo(order.dtype).tiny)
        which, place = uniform[0] * total, uniform[1]
        up, down = end - jnp.log(place) / zeta, -begin + jnp.log(place) / xi
        new = jnp.where(which < middle, -begin + middle * place, jnp.where(which < middle + 1 / zeta, up, down))
        above, below = -eta - zeta * (new - t), -theta + xi * (new + s)
        hat = jnp.where(new > end, above, jnp.where(new < -begin, below, 0.0))
        kept = jnp.log(uniform[2]) + hat <= log_density(new)
        return key, jnp.where(jnp.isnan(x) & kept, new, x)

    valid = jnp.isfinite(total) & (radius > 0)
    start = jnp.where(valid, jnp.nan, 0.0).astype(order.dtype)
    x = jax.lax.while_loop(lambda state: jnp.isnan(state[1]).any(), propose, (key, start))[1]
    return jnp.where(valid, x + jnp.log(order + radius), jnp.nan)
