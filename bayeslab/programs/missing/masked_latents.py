"""Latent sites of which a mask hides elements, as the steps beyond the end of a short series.

NumPyro gives a hidden element the density one, wherever it is. Where nothing else depends on it, that density has no
end, and no sampler can draw from it. Such sites lose their masks: a hidden element then has the distribution that the
program writes, which integrates to one, so that all other elements keep their joint distribution. Where something does
depend on a hidden element, the flat density is what the program says, and stays. Methods that look for a mode keep all
masks (`with_masks`), for the densities of hidden elements would move it.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import seed, substitute, trace

from bayeslab.programs.missing.missing_data import element_mask
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS

RADII = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""How far in unconstrained coordinates hidden elements are moved."""
EXTREMES = (np.nan, np.inf, -np.inf)
"""Values that reach a density by arithmetic, or cross every threshold."""


def unread_masked_sites(bound: Bound) -> tuple[str, ...]:
    """The continuous latent sites of which a mask hides elements that no density depends on."""
    names = tuple(name for name in bound.latent if bound.sites[name].masked and not bound.sites[name].is_discrete)
    if not names:
        return ()

    def unread(chosen: tuple[str, ...]) -> bool:
        flags = jnp.array([name in chosen for name in names])
        before, after, hidden = (np.asarray(each) for each in _exchanged(bound, names, flags))
        return bool(np.all(np.isfinite(before) & (before == after)) and np.all(hidden))

    alone = tuple(name for name in names if unread((name,)))
    return alone if alone and unread(alone) else ()


def with_masks(bound: Bound) -> Bound:
    """The Bound with all masks of the program."""
    return replace(bound, unmasked=()) if bound.unmasked else bound


@partial(jax.jit, static_argnums=1, compiler_options=UNOPTIMISED_OPTIONS)
def _exchanged(bound: Bound, names: tuple[str, ...], flags: Array) -> tuple[Array, Array, Array]:
    """The log joint at points, that with the hidden elements of the flagged sites from elsewhere, and whether the masks
    are the same at both."""

    def compared(first: Values, second: Values, masks: Values, others: Values) -> tuple[Array, Array, Array]:
        mixed = dict(first)
        for name, flag in zip(names, flags, strict=True):
            mixed[name] = jnp.where(masks[name] | ~flag, first[name], second[name])
        same = jnp.stack([jnp.all(masks[name] == others[name]) for name in names])
        return bound.log_joint(first), bound.log_joint(mixed), jnp.all(same)

    def moved(at: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        keys = jax.random.split(at[0])
        (first, masks), (second, others) = _point(bound, names, keys[0], 1.0), _point(bound, names, keys[1], at[1])
        return compared(first, second, masks, others)

    def at_extreme(extreme: Array) -> tuple[Array, Array, Array]:
        first, masks = _point(bound, names, jax.random.PRNGKey(1), 1.0)
        return compared(first, {name: jnp.full_like(first[name], extreme) for name in names}, masks, masks)

    keys = jax.random.split(jax.random.PRNGKey(0), len(RADII))
    each = [jax.lax.map(moved, (keys, jnp.array(RADII))), jax.lax.map(at_extreme, jnp.array(EXTREMES))]
    before, after, same = (jnp.concatenate(column) for column in zip(*each, strict=True))
    return before, after, same


def _point(bound: Bound, names: tuple[str, ...], key: Array, radius: Array | float) -> tuple[Values, Values]:
    """Values of the latent sites, at most a radius from the middle, and the masks of those with one."""
    model = substitute(seed(bound.program, key), substitute_fn=partial(init_inside_support, radius=radius))
    sites = trace(model).get_trace()
    return {n: sites[n]["value"] for n in bound.latent}, {n: jnp.asarray(element_mask(sites[n]["fn"])) for n in names}
