"""The family of Polya-Gamma variables: what children say is linear in them, and adds to the square of the tilt."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.distributions.mixing.polya_gamma import PolyaGamma
from bayeslab.elimination.around import around_middle
from bayeslab.elimination.family import Family, Local
from bayeslab.programs.wrapped_distributions import innermost_distribution


def _read_slope(local: Local, at: Array, prior: Distribution) -> Array:
    """The coefficient of x in what the children say; the prior says the rest."""
    return jax.grad(lambda x: local.likelihood(x).sum())(at)


def _build(slope: Array, prior: Distribution) -> PolyaGamma:
    """A Polya-Gamma with another tilt; not a number where children pull away from zero."""
    inner = innermost_distribution(prior)
    tilt = jnp.broadcast_to(inner.tilt, slope.shape)
    return inner.with_tilt(jnp.where(slope == 0, tilt, jnp.sqrt(tilt**2 - 2 * slope))).to_event(prior.event_dim)


def _mean(q: Any) -> Array:
    return innermost_distribution(q).mean


def _around(q: Any, current: Array, steps: Any, prior: Any = None) -> Array:
    return around_middle(q, _mean(q), current, steps)


POLYA_GAMMA = Family(
    "PolyaGamma",
    _read_slope,
    _build,
    (PolyaGamma,),
    points=lambda q: _mean(q)[None],
    averaged=lambda x: (x,),
    linear=(lambda prior: prior.with_tilt(prior.tilt**2), lambda squared: squared.with_tilt(jnp.sqrt(squared.tilt))),
    typical=lambda q, otherwise: jnp.where(jnp.isfinite(mean := _mean(q)), mean, otherwise),
    middle=lambda key, q, old: _mean(q),
    around=_around,
)
"""One point has the expected statistic, which is x itself."""
