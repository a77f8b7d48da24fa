"""A distribution of a user's own, which elimination learns from its class."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from bayeslab.elimination.family import two_statistics_family


class RootGamma(dist.Distribution):
    """The root of a Gamma variate: a prior on 1 / sd. Its class names its own family."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    pytree_data_fields = ("concentration", "rate")
    family = two_statistics_family(
        "RootGamma", lambda x: (jnp.log(x), -(x**2)), lambda eta, _: RootGamma((eta[0] + 1) / 2, eta[1])
    )

    def __init__(self, concentration: Any, rate: Any, *, validate_args: bool | None = None):
        self.concentration, self.rate = jnp.asarray(concentration), jnp.asarray(rate)
        super().__init__(jnp.broadcast_shapes(self.concentration.shape, self.rate.shape), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return jnp.sqrt(dist.Gamma(self.concentration, self.rate).sample(key, sample_shape))

    def log_prob(self, value: Array) -> Array:
        return dist.Gamma(self.concentration, self.rate).log_prob(value**2) + jnp.log(2 * value)
