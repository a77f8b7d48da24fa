"""The Fisher information of distributions, as coordinates in which it is the identity.

Where the parameters of an observation are functions of weights with Jacobian J, its information about the weights is
J' F J with F that of the parameters. Of a family in its natural parameters F is the Hessian of the log normaliser, so
this is the generalised Gauss-Newton matrix (Martens 2020, Journal of Machine Learning Research 21:146, section 9), and
it does not depend on how parameters are written.
"""

from collections.abc import Callable, Mapping
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
    return _coordinates(fn, _INFORMATION)


def curvature_bound_coordinates(fn: Distribution) -> Array | None:
    """Functions of the parameters of a distribution, as those of the information, whose J' J is no less than minus the
    Hessian of the log density wherever logits are linear; None for a family without.

    Boehning (1992), Annals of the Institute of Statistical Mathematics 44, 197-200.
    """
    return _coordinates(fn, _CURVATURE_BOUNDS)


def _coordinates(fn: Any, families: Mapping[type[Distribution], Callable[[Any], Array]]) -> Array | None:
    """The coordinates that a table of families has for a distribution, with what is around it; None for a family that
    is not in the table."""
    if isinstance(fn, ExpandedDistribution):
        inner = _coordinates(fn.base_dist, families)
        return None if inner is None else jnp.broadcast_to(inner, (*fn.shape(), inner.shape[-1]))
    if isinstance(fn, Independent):
        return _coordinates(fn.base_dist, families)
    if isinstance(fn, MaskedDistribution):
        inner, mask = _coordinates(fn.base_dist, families), jnp.asarray(fn._mask)
        return None if inner is None else inner * mask.reshape(mask.shape + (1,) * (fn.event_dim + 1))
    return next((read(fn) for family, read in families.items() if isinstance(fn, family)), None)


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


def _softmax_bound(fn: Any) -> Array:
    """diag(p) - p p' is at most half of what centres, for any probabilities p."""
    centred = fn.logits - fn.logits.mean(-1, keepdims=True)
    return jnp.sqrt(0.5) * centred


_CURVATURE_BOUNDS: dict[type[Distribution], Callable[[Any], Array]] = {dist.CategoricalLogits: _softmax_bound}
_INFORMATION: dict[type[Distribution], Callable[[Any], Array]] = {
    dist.Normal: _normal,
    dist.BernoulliLogits: _binomial,
    dist.BernoulliProbs: _binomial,
    dist.BinomialLogits: _binomial,
    dist.BinomialProbs: _binomial,
    dist.Poisson: _poisson,
    dist.CategoricalLogits: _categorical,
    dist.CategoricalProbs: _categorical,
}
