"""Counts without a bound: up to which value they are summed over, so that next to nothing is beyond.

What the log joint says of one element at a few values shows how it falls off; the largest value that is needed is found
at many points of the other sites, and doubled. Draws are watched: none may come near it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import seed, substitute, trace

from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.programs.wrapped_distributions import elementwise_constraint, innermost_distribution

CANDIDATES = tuple(2**power for power in range(4, 13))
"""Limits that are tried."""
LOG_MASS_BEYOND = float(np.log(1e-12))
"""The log of the share of the probability of a count that may be beyond its limit."""
GRID = np.array(sorted({0, 1, 2, 4, 8, *(c + step for c in CANDIDATES for step in (-1, 0))}))
"""Values at which counts are looked at."""
UNBOUNDED_SUPPORTS = ("integer nonnegative", "integer greater than")
"""Supports of counts without a bound, in words."""
NUM_POINTS = 8
"""Points of the other sites inside their supports at which counts are looked at, and as many drawn from priors."""
MAX_LOOKED_AT = 256
"""Elements of a site that are looked at, at most; the others are taken to be like them."""


def with_count_limits(bound: Bound) -> Bound:
    """The Bound with a limit for every latent count that has none, or one that differs between elements or points.

    Counts whose mass cannot be held by any limit are left as they are, and so are sites that are no counts.
    """
    sites = [bound.sites[name] for name in bound.latent]
    names = [site.name for site in sites if site.is_discrete and (site.moves or site.support in UNBOUNDED_SUPPORTS)]
    moving = _counts_without_limit(bound, [name for name in names if bound.sites[name].event_dim == 0]) if names else {}
    if not moving:
        return bound
    guarded = (*bound.guarded, *(name for name, moves in moving.items() if moves))
    bound = replace(bound, guarded=guarded)
    profiles = _profiles(bound, tuple(moving))
    limits = {name: _sufficient_limit(np.asarray(profile)) for name, profile in profiles.items()}
    if not all(limits.values()):
        return replace(bound, guarded=tuple(n for n in guarded if limits.get(n) or n not in moving))
    largest = max(limit for limit in limits.values() if limit)
    limits = {name: largest if moving[name] else limit for name, limit in limits.items()}  # as far as others reach
    return replace(bound, limits=tuple((name, int(limit)) for name, limit in limits.items() if limit))


def _counts_without_limit(bound: Bound, names: list[str]) -> dict[str, bool]:
    """The counts that cannot be enumerated as they are, and whether a limit of theirs depends on other values."""
    moves_of: dict[str, bool] = {}

    def run(bound: Bound) -> None:
        model = substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=init_inside_support)
        sites = trace(model).get_trace()
        for name in names:
            fn = innermost_distribution(sites[name]["fn"])
            support = elementwise_constraint(fn.support)
            low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
            moves = high is not None and not isinstance(high, int | np.integer)
            if isinstance(low, int) and low == 0 and (high is None or moves):
                moves_of[name] = moves

    jax.eval_shape(run, bound)
    return moves_of


@partial(jax.jit, static_argnums=1, compiler_options=UNOPTIMISED_OPTIONS)
def _profiles(bound: Bound, names: tuple[str, ...]) -> dict[str, Array]:
    """For every count the log joint with one element at each of some values, (point, element, value)."""
    observed = [jnp.max(jnp.abs(each)) for each in bound.observed.values() if jnp.issubdtype(each.dtype, jnp.integer)]
    start = jnp.maximum(8, jnp.max(jnp.stack(observed))) if observed else jnp.asarray(8)

    def count(site: Mapping[str, Any]) -> Array | None:
        """As much as the data need, or as the bound allows: what one has is not beyond what another can have."""
        if site["name"] not in names:
            return None
        high = getattr(elementwise_constraint(site["fn"].support), "upper_bound", start)
        return jnp.minimum(jnp.full(bound.sites[site["name"]].shape, start), high).astype(int)

    def point(key: Array, drawn: bool) -> Values:
        model = substitute(seed(bound.program, key), substitute_fn=count)
        if not drawn:
            model = substitute(model, substitute_fn=init_inside_support)
        sites = trace(model).get_trace()
        return {name: jnp.asarray(sites[name]["value"]) for name in bound.latent}

    points = [point(jax.random.PRNGKey(number), False) for number in range(NUM_POINTS)]
    if not any(site.improper for site in bound.sites.values()):
        points += [point(jax.random.PRNGKey(number), True) for number in range(NUM_POINTS)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)

    def profile(name: str, values: Mapping[str, Any]) -> Array:
        value = values[name]
        elements = np.unique(np.linspace(0, value.size - 1, min(value.size, MAX_LOOKED_AT)).astype(int))

        def at(element: Array) -> Array:
            def log_joint(count: Array) -> Array:
                moved = value.ravel().at[element].set(count.astype(value.dtype)).reshape(value.shape)
                return bound.log_joint({**values, name: moved})

            return jax.vmap(log_joint)(jnp.asarray(GRID))

        return jax.lax.map(at, jnp.asarray(elements), batch_size=16)

    return {name: jax.lax.map(partial(profile, name), stacked) for name in names}


def _sufficient_limit(profile: np.ndarray) -> int | None:
    """Twice the least candidate that holds the mass at nearly all points; None where even the largest does not.

    profile: the log joint with one element of a count at each value, (point, element, value). Beyond a value the mass
    is at most that of a geometric series with the ratio there.
    """
    grid = GRID.tolist()
    profile = np.where(np.isnan(profile), -np.inf, profile)
    top, place = profile.max(-1), profile.argmax(-1)
    needed, holding = np.full(top.shape, 2 * CANDIDATES[-1]), np.isfinite(top)
    for candidate in CANDIDATES[::-1]:
        last, before = profile[..., grid.index(candidate)], profile[..., grid.index(candidate - 1)]
        with np.errstate(invalid="ignore", divide="ignore"):
            log_ratio = np.where(np.isfinite(before), last - before, -np.inf)
            log_beyond = last - np.log(-np.expm1(np.minimum(log_ratio, 0.0))) - top
        is_small = (log_ratio < 0) & (np.isneginf(last) | (log_beyond < LOG_MASS_BEYOND))
        holding &= is_small & (grid.index(candidate) > place)
        needed = np.where(holding, candidate, needed)
    by_point = needed.max(axis=1)[np.isfinite(top).all(axis=1)]
    fitting = by_point[by_point <= CANDIDATES[-1]]
    if len(fitting) * 2 < len(by_point) or not len(fitting):
        return None
    return min(2 * int(fitting.max()), CANDIDATES[-1])
