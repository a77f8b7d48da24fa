"""The log density of the value of a site, of every element."""

from copy import copy
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, ExpandedDistribution, Independent, MaskedDistribution, constraints


def site_log_density(site: dict[str, Any]) -> Array:
    """log p(value) of every element, elements of events apart where they are independent, times the scale."""
    density = elementwise_log_density(site["fn"], site["value"])
    scale = site["scale"]
    if scale is None:
        return density
    extra = density.ndim - len(site["fn"].batch_shape)
    return density * jnp.reshape(scale, jnp.shape(scale) + (1,) * extra if jnp.ndim(scale) else ())


def elementwise_log_density(fn: Distribution, value: Array) -> Array:
    """The log density of every element, before `to_event` sums it."""
    if isinstance(fn, Independent):
        return elementwise_log_density(fn.base_dist, value)
    if isinstance(fn, MaskedDistribution) and not isinstance(fn._mask, bool):
        density = elementwise_log_density(fn.base_dist, value)
        mask = jnp.reshape(fn._mask, fn._mask.shape + (1,) * (density.ndim - fn._mask.ndim))
        return jnp.where(mask, density, 0.0)
    if isinstance(fn, ExpandedDistribution) and isinstance(fn.base_dist, Independent):
        inner = fn.base_dist
        expanded = inner.base_dist.expand(fn.batch_shape + inner.event_shape[: inner.reinterpreted_batch_ndims])
        return elementwise_log_density(expanded, value)
    return jnp.asarray(_without_check_of_real(fn).log_prob(value))


def _without_check_of_real(fn: Distribution) -> Distribution:
    """A distribution over real numbers that takes any, in place of asking every time whether they are finite.

    Data have been asked, and the other sites are of the sampler. The question costs as much as a Normal density, and
    curvatures that are the same for all rows would differ by it.
    """
    support = fn.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if not isinstance(support, type(constraints.real)):
        return fn
    if isinstance(fn, ExpandedDistribution):
        unchecked = copy(fn)
        unchecked.base_dist = _without_check_of_real(fn.base_dist)
    elif fn._validate_args:
        unchecked = copy(fn)
    else:
        return fn
    unchecked._validate_args = False
    return unchecked
