"""The Fisher information of distributions, as coordinates in which it is the identity.

Where the parameters of an observation are functions of weights with Jacobian J, its information about the weights is
J' F J with F that of the parameters. Of a family in its natural parameters F is the Hessian of the log normaliser, so
this is the generalised Gauss-Newton matrix (Martens 2020, Journal of Machine Learning Research 21:146, section 9), and
it does not depend on how parameters are written.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.lax import stop_gradient
from numpyro.distributions import Distribution, ExpandedDistribution, Independent, MaskedDistribution


def information_coordinates(fn: Distribution) -> Array | None:
    """Functions of the parameters of a distribution, (*batch, *event, coordinate), whose Jacobian J, by whatever these
    depend on, gives J' J as the information about that; None for a family without. What a mask hides says nothing.
    """
    if isinstance(fn, ExpandedDistribution):
        inner = information_coordinates(fn.base_dist)
        return None if inner is None else jnp.broadcast_to(inner, (*fn.shape(), inner.shape[-1]))
    if isinstance(fn, Independent):
        return information_coordinates(fn.base_dist)
    if isinstance(fn, MaskedDistribution):
        inner, mask = information_coordinates(fn.base_dist), jnp.asarray(fn._mask)
        return None if inner is None else inner * mask.reshape(mask.shape + (1,) * (fn.event_dim + 1))
    return next((read(fn) for family, read in _COORDINATES.items() if isinstance(fn, family)), None)


def _normal(fn: Any) -> Array:
    """The information of a mean is 1 / scale^2, that of the log of the scale 2."""
    loc, scale = jnp.broadcast_arrays(fn.loc, fn.scale)
    return jnp.stack([loc / stop_gradient(scale), jnp.sqrt(2.0) * jnp.log(scale)], axis=-1)


def _binomial(fn: Any) -> Array:
    """That of a logit is n p (1 - p)."""
    total = getattr(fn, "total_count", 1)
    p = jax.nn.sigmoid(fn.logits)
    return (stop_gradient(jnp.sqrt(total * p * (1 - p))) * fn.logits)[..., None]


def _poisson(fn: Any) -> Array:
    """That of the log of a rate is the rate."""
    return (stop_gradient(jnp.sqrt(fn.rate)) * jnp.log(fn.rate))[..., None]


def _categorical(fn: Any) -> Array:
    """That of logits is diag(p) - p p'."""
    root = stop_gradient(jnp.exp(0.5 * jax.nn.log_softmax(fn.logits)))
    centred = fn.logits - (stop_gradient(jax.nn.softmax(fn.logits)) * fn.logits).sum(-1, keepdims=True)
    return root * centred


_COORDINATES: dict[type[Distribution], Callable[[Any], Array]] = {
    dist.Normal: _normal,
    dist.BernoulliLogits: _binomial,
    dist.BernoulliProbs: _binomial,
    dist.BinomialLogits: _binomial,
    dist.BinomialProbs: _binomial,
    dist.Poisson: _poisson,
    dist.CategoricalLogits: _categorical,
    dist.CategoricalProbs: _categorical,
}
