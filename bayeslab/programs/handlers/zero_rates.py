"""Poisson counts whose rate may be zero, as that of a row without exposure, or of a place where a species is not."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import xlogy
from numpyro import distributions as dist
from numpyro.distributions import Distribution, ExpandedDistribution, Independent, MaskedDistribution


@jax.custom_jvp
def count_times_log_rate(count: Array, rate: Array) -> Array:
    """count log rate, zero where the count is zero, whatever the rate, and with a derivative by the rate there.

    That of `jax.scipy.special.xlogy` is 0 / 0 where both are zero.
    """
    return xlogy(count, rate)


@count_times_log_rate.defjvp
def _derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (count, rate), (count_tangent, rate_tangent) = primals, tangents
    finite = jnp.where(rate == 0, 1.0, rate)  # what is impossible has no weight wherever its values are summed over
    tangent = count_tangent * jnp.log(finite) + rate_tangent * count / finite
    return count_times_log_rate(count, rate), tangent


class Poisson(dist.Poisson):
    """A Poisson distribution with a derivative by its rate where rate and count are zero."""

    def log_prob(self, value: Any) -> Array:
        count, rate = (jnp.asarray(each, float) for each in (value, self.rate))
        return count_times_log_rate(count, rate) - jax.scipy.special.gammaln(count + 1.0) - rate


def with_zero_rates(fn: Distribution) -> Distribution:
    """A distribution in which a Poisson has a derivative by its rate where this is zero."""
    if isinstance(fn, ExpandedDistribution | Independent | MaskedDistribution):
        if (inner := with_zero_rates(fn.base_dist)) is fn.base_dist:
            return fn
        changed: Any = copy.copy(fn)
        changed.base_dist = inner
        return changed
    if type(fn) is not dist.Poisson or fn.is_sparse:
        return fn
    changed = copy.copy(fn)
    changed.__class__ = Poisson
    return changed
