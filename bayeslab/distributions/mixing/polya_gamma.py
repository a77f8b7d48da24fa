"""The Polya-Gamma distribution: given such variables a logistic likelihood is that of a Normal.

    E exp(-t x) = (cosh(c / 2) / cosh(sqrt(c^2 / 4 + t / 2)))^b

N. G. Polson, J. G. Scott and J. Windle (2013), Bayesian inference for logistic models using Polya-Gamma latent
variables, Journal of the American Statistical Association 108, 1339-1349.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from bayeslab.distributions.mixing.polya_gamma_density import log_density_of_one, log_untilted_density
from bayeslab.distributions.mixing.polya_gamma_variates import polya_gamma_variates, variates_of_one


class PolyaGamma(dist.Distribution):
    """Positive numbers with concentration b > 0, (*batch), and tilt c, (*batch), whose sign does not matter.

    The mean is b / (2 c) tanh(c / 2). Variates are exact where all concentrations are whole numbers up to 16, see
    `bayeslab.distributions.mixing.polya_gamma_variates`, and else have a law within 1e-8 of it. The density is a series
    where the concentration is the number 1 itself, and else an inverse Laplace transform, to twelve digits.
    """

    arg_constraints = {"concentration": constraints.positive, "tilt": constraints.real}
    support = constraints.positive
    pytree_data_fields = ("concentration", "tilt")
    pytree_aux_fields = ("is_one",)

    def __init__(self, concentration: Any, tilt: Any, *, validate_args: bool | None = None):
        self.is_one = isinstance(concentration, int | float) and concentration == 1
        self.concentration, self.tilt = dist.util.promote_shapes(concentration, tilt)
        batch_shape = jax.lax.broadcast_shapes(jnp.shape(concentration), jnp.shape(tilt))
        super().__init__(batch_shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        if self.is_one:
            return variates_of_one(key, jnp.broadcast_to(self.tilt, shape))
        return polya_gamma_variates(key, self.concentration, self.tilt, shape)

    def log_prob(self, value: Array) -> Array:
        tilted = self.concentration * _log_cosh_half(self.tilt) - self.tilt**2 * value / 2
        if self.is_one:
            return tilted + log_density_of_one(value)
        return tilted + log_untilted_density(*jnp.broadcast_arrays(value, self.concentration))

    def with_tilt(self, tilt: Array) -> "PolyaGamma":
        """The distribution with the same concentration and another tilt."""
        return PolyaGamma(1.0 if self.is_one else self.concentration, tilt)

    @property
    def mean(self) -> Array:
        return self.concentration * _mean_of_one(self.tilt)

    @property
    def variance(self) -> Array:
        small = jnp.abs(self.tilt) < 0.05
        c = jnp.where(small, 1.0, jnp.abs(self.tilt))
        # (sinh c - c) / (4 c^3 cosh(c / 2)^2), without overflow
        decay = jnp.exp(-c)
        ratio = (1 - decay**2 - 2 * c * decay) / (1 + decay) ** 2 / (2 * c**3)
        near_zero = 1 / 24 - self.tilt**2 / 120 + 17 * self.tilt**4 / 13440
        return self.concentration * jnp.where(small, near_zero, ratio)


def _log_cosh_half(c: Array) -> Array:
    """log cosh(c / 2)."""
    return jnp.logaddexp(c / 2, -c / 2) - jnp.log(2.0)


def _mean_of_one(c: Array) -> Array:
    """tanh(c / 2) / (2 c)."""
    small = jnp.abs(c) < 1e-2
    safe = jnp.where(small, 1.0, c)
    return jnp.where(small, 1 / 4 - c**2 / 48 + c**4 / 480, jnp.tanh(safe / 2) / (2 * safe))
