"""Coordinates between that of a site, 1, and one in which its prior is standard, 0, for priors that scale."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import biject_to
from numpyro.infer.reparam import Reparam

LOCATION_SCALE_PRIORS = (dist.Normal, dist.StudentT, dist.Cauchy, dist.Laplace, dist.Logistic)
"""Priors with a mean and a scale, the last of their parameters."""
SCALED_PRIORS = (*LOCATION_SCALE_PRIORS, dist.LogNormal, dist.GaussianRandomWalk, dist.MultivariateNormal)
"""Priors that have other coordinates."""
SUFFIX = "_decentered"
"""What the name of a site gets in other coordinates, as in NumPyro."""


class Coordinate(NamedTuple):
    """A coordinate z of a value x, or of the logarithm x of a positive value.

    prior: of z. to_value, from_value: x from z and back, linear. information_ratio: from minus the curvature of the log
    joint in the elements of x, moved together, to how much more precise the data are than the prior, about.
    independent: whether elements are independent in the prior.
    """

    prior: Distribution
    to_value: Callable[[Array], Array]
    from_value: Callable[[Array], Array]
    information_ratio: Callable[[Array], Array]
    independent: bool


def coordinate(fn: Any, share: Array) -> Coordinate:
    """The coordinate of a site with a prior, not yet repeated in plates. share: between 0 and 1, of its shape."""
    if isinstance(fn, dist.GaussianRandomWalk):
        return _of_random_walk(fn, share[..., 0])
    if isinstance(fn, dist.MultivariateNormal):
        return _of_multivariate_normal(fn, jnp.mean(share, -1) >= 0.5)
    if isinstance(fn, dist.LogNormal):
        return _of_location_scale(dist.Normal(fn.loc, fn.scale), share)
    return _of_location_scale(fn, share)


def _of_location_scale(fn: Any, share: Array) -> Coordinate:
    others = {name: getattr(fn, name) for name in fn.arg_constraints if name not in ("loc", "scale")}
    factor = fn.scale ** (1 - share)
    return Coordinate(
        type(fn)(loc=fn.loc * share, scale=fn.scale**share, **others),
        lambda z: fn.loc + factor * (z - share * fn.loc),
        lambda x: (x - fn.loc) / factor + share * fn.loc,
        lambda curvature: curvature * fn.scale**2 - 1,
        independent=True,
    )


def _of_random_walk(fn: Any, share: Array) -> Coordinate:
    factor = fn.scale ** (1 - share)
    return Coordinate(
        dist.GaussianRandomWalk(fn.scale**share, fn.num_steps),
        lambda z: factor[..., None] * z,
        lambda x: x / factor[..., None],
        lambda curvature: jnp.broadcast_to(
            (curvature * fn.scale[..., None] ** 2).mean(-1, keepdims=True), curvature.shape
        ),
        independent=False,
    )


def _of_multivariate_normal(fn: Any, is_centered: Array) -> Coordinate:
    """The coordinate is that of the site or a standard one: shares of matrices have no simple form."""
    identity = jnp.eye(fn.scale_tril.shape[-1])
    chosen = is_centered[..., None]
    factor = jnp.where(chosen[..., None], identity, fn.scale_tril)
    shift = jnp.where(chosen, 0.0, fn.loc)
    return Coordinate(
        dist.MultivariateNormal(
            jnp.where(chosen, fn.loc, 0.0), scale_tril=jnp.where(chosen[..., None], fn.scale_tril, identity)
        ),
        lambda z: shift + (factor @ z[..., None])[..., 0],
        lambda x: jnp.linalg.solve(factor, (x - shift)[..., None])[..., 0],
        lambda curvature: jnp.broadcast_to(
            ((curvature - fn.precision_matrix.sum(-1)) * fn.variance).mean(-1, keepdims=True), curvature.shape
        ),
        independent=False,
    )


class PartlyStandard(Reparam):
    """A reparametrisation of NumPyro: a site in another coordinate, under its name with `SUFFIX`."""

    def __init__(self, share: Array) -> None:
        self.share = share

    def __call__(self, name: str, fn: Distribution, obs: Array | None) -> tuple[None, Array]:
        base, expand_shape, event_dim = self._unwrap(fn)
        other = coordinate(base, self.share)
        z = numpyro.sample(name + SUFFIX, self._wrap(other.prior, expand_shape, event_dim))
        return None, biject_to(fn.support)(other.to_value(z))
