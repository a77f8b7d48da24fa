"""What conditioning on data needs beyond NumPyro: missing entries, and supports that depend on latent sites."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    MultivariateNormal,
)
from numpyro.primitives import Messenger

from bayeslab.programs.missing.known_states import clamped_states


class ObservationHandler(Messenger):
    """A handler that masks missing entries of observed sites, and gives values outside a support probability zero.

    present: site -> which entries are present: (*batch), or with further axes of the event where parts are missing.
    guarded: observed sites whose support depends on latent sites. With NumPyro's validation switched off, the density
    of Uniform(0, theta) at y > theta would be 1 / theta.
    """

    def __init__(self, present: dict[str, Array], guarded: tuple[str, ...]):
        self._present, self._guarded = present, guarded
        super().__init__(None)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample":
            return
        name = msg["name"]
        if name in self._guarded:
            msg["fn"] = with_support_check(msg["fn"])
        if name in self._present:
            msg["fn"] = marginalise_missing(msg["fn"], self._present[name])


def marginalise_missing(fn: Distribution, present: Array) -> Distribution:
    """`fn` with the entries that are not present integrated out.

    present: (*batch) for whole events; more axes for independent parts of events, for parts of a Normal event and for
    states of a path.
    """
    if present.ndim <= len(fn.batch_shape):
        return fn.mask(present)
    if isinstance(fn, MaskedDistribution):
        return marginalise_missing(fn.base_dist, present).mask(fn._mask)
    if isinstance(fn, ExpandedDistribution) and isinstance(masks := fn.base_dist, MaskedDistribution):
        return marginalise_missing(masks.base_dist.expand(fn.batch_shape), present).mask(masks._mask)
    inner = fn.base_dist if isinstance(fn, ExpandedDistribution) else fn
    if isinstance(inner, Independent):
        parts = inner.expand(fn.batch_shape)
        return marginalise_missing(parts.base_dist, present).to_event(parts.reinterpreted_batch_ndims)
    # what a plate has expanded has the shape of what is present
    return (PartlyObservedNormal if isinstance(inner, MultivariateNormal) else PartlyObservedChain)(inner, present)


def element_mask(fn: Distribution) -> Any:
    """Which elements of a site count: True for all, else (*batch, *event), with ones for axes that a mask lacks."""
    mask: Any = True
    while hasattr(fn, "base_dist"):
        if isinstance(fn, MaskedDistribution) and fn._mask is not True:
            own = jnp.broadcast_to(jnp.asarray(fn._mask), fn.batch_shape)
            mask = jnp.logical_and(mask, own.reshape(own.shape + (1,) * fn.event_dim))
        fn = fn.base_dist
    return mask


def with_support_check(fn: Distribution) -> Distribution:
    """`fn` with minus infinity as the log density outside its support, where no mask leaves the value out."""
    if isinstance(fn, MaskedDistribution):
        return with_support_check(fn.base_dist).mask(fn._mask)
    if isinstance(fn, ExpandedDistribution):
        return with_support_check(fn.base_dist).expand(fn.batch_shape)
    if isinstance(fn, Independent):
        return with_support_check(fn.base_dist).to_event(fn.reinterpreted_batch_ndims)
    return Guarded(fn)


class Guarded(Distribution):
    """A distribution with the log density of another one, but minus infinity outside its support."""

    pytree_data_fields = ("base_dist",)

    def __init__(self, base_dist: Distribution):
        self.base_dist = base_dist
        super().__init__(base_dist.batch_shape, base_dist.event_shape)

    @property
    def support(self) -> Any:
        return self.base_dist.support

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.base_dist.sample(key, sample_shape)

    def log_prob(self, value: Array) -> Array:
        return jnp.where(self.base_dist.support(value), self.base_dist.log_prob(value), -jnp.inf)


class PartlyObserved(Distribution):
    """A distribution of events of which some parts are observed; draws have all of them."""

    pytree_data_fields = ("base_dist", "present")

    def __init__(self, base_dist: Distribution, present: Array):
        self.base_dist, self.present = base_dist, present
        super().__init__(present.shape[:-1], base_dist.event_shape)

    @property
    def support(self) -> Any:
        return self.base_dist.support

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.base_dist.expand(self.batch_shape).sample(key, sample_shape)


class PartlyObservedNormal(PartlyObserved):
    """A multivariate Normal whose log density is that of the entries of the event that are present.

    Missing entries are cut off from the others and given a standard Normal of their own, which is taken out again,
    so that shapes do not depend on which entries are missing.
    """

    def log_prob(self, value: Array) -> Array:
        both = self.present[..., :, None] & self.present[..., None, :]
        covariance = jnp.where(both, self.base_dist.covariance_matrix, jnp.eye(value.shape[-1]))
        mean = jnp.where(self.present, self.base_dist.mean, 0.0)
        present_value = jnp.where(self.present, value, 0.0)
        num_missing = (~self.present).sum(-1)
        density = MultivariateNormal(mean, covariance_matrix=covariance).log_prob(present_value)
        return density + 0.5 * jnp.log(2 * jnp.pi) * num_missing


class PartlyObservedChain(PartlyObserved):
    """A path whose log density is that of the states that are present, with all others summed out."""

    def log_prob(self, value: Array) -> Array:
        return self.base_dist.log_marginal(clamped_states(self.base_dist, self.present, value))
