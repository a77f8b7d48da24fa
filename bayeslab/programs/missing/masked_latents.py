"""Latent sites of which a mask hides elements, as the steps beyond the end of a short series.

NumPyro gives a hidden element the density one, wherever it is. Where nothing else depends on it, that density has no
end, and no sampler can draw from it. Such sites lose their masks: a hidden element then has the distribution that the
program writes, which integrates to one, so that all other elements keep their joint density. Where something does
depend on a hidden element, the flat density is what the program says, and stays.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import seed, substitute, trace

from bayeslab.programs.missing.missing_data import element_mask
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS

NUM_POINTS = 8
"""Pairs of points between which hidden elements are exchanged."""


def unread_masked_sites(bound: Bound) -> tuple[str, ...]:
    """The continuous latent sites of which a mask hides elements that no density depends on."""
    names = tuple(name for name in bound.latent if bound.sites[name].masked and not bound.sites[name].is_discrete)
    if not names:
        return ()
    keys = jax.random.split(jax.random.PRNGKey(0), NUM_POINTS)

    def unread(chosen: tuple[str, ...]) -> bool:
        flags = jnp.array([name in chosen for name in names])
        before, after, hidden = (np.asarray(each) for each in _exchanged(bound, names, keys, flags))
        return bool(np.all(np.isfinite(before) & (before == after)) and np.all(hidden))

    alone = tuple(name for name in names if unread((name,)))
    return alone if alone and unread(alone) else ()


@partial(jax.jit, static_argnums=1, compiler_options=UNOPTIMISED_OPTIONS)
def _exchanged(bound: Bound, names: tuple[str, ...], keys: Array, flags: Array) -> tuple[Array, Array, Array]:
    """The log joint at points, that with the hidden elements of the flagged sites from others, and whether the masks
    are the same at both."""

    def at(key: Array) -> tuple[Array, Array, Array]:
        (first, masks), (second, others) = (_point(bound, names, each) for each in jax.random.split(key))
        mixed = dict(first)
        for name, flag in zip(names, flags, strict=True):
            mixed[name] = jnp.where(masks[name] | ~flag, first[name], second[name])
        same = jnp.stack([jnp.all(masks[name] == others[name]) for name in names])
        return bound.log_joint(first), bound.log_joint(mixed), jnp.all(same)

    return jax.lax.map(at, keys)


def _point(bound: Bound, names: tuple[str, ...], key: Array) -> tuple[Values, Values]:
    """Values of the latent sites, and the masks of those with one."""
    sites = trace(substitute(seed(bound.program, key), substitute_fn=init_inside_support)).get_trace()
    return {n: sites[n]["value"] for n in bound.latent}, {n: jnp.asarray(element_mask(sites[n]["fn"])) for n in names}
