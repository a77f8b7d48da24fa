"""Points on the scale of the data, and between it and that of the priors, at which what is found is asked again.

Vague priors put a site where data never do: a precision with prior mean 1 is 1e-8 for incomes in dollars. There sums
of squares drown all else, and links are saturated. A few sweeps of the conditionals that were found, and where sites
have none a few steps of ascent, lead to where the posterior is.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to
from scipy.optimize import minimize

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import terms, total
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluated
from bayeslab.verification.identity import law, noise_for
from bayeslab.verification.probe_points import Point, points

SWEEPS = 2
STEPS = 15
"""Of ascent."""
FEW = 16
"""Coordinates up to which each is moved by itself."""
LARGEST = 1e300
"""In place of what is no number."""


def widened(bound: Bound) -> Bound:
    """The same in double precision, in which the law is checked."""

    def widen(leaf: Array) -> Array:
        return jnp.asarray(leaf, dtype=jnp.float64) if leaf.dtype.kind == "f" else jnp.asarray(leaf)

    return jax.tree.map(widen, bound)


def likely_points(bound: Bound, rules: Sequence[Rule]) -> list[Point]:
    """Where a few sweeps of some conditionals lead, each given all other sites, and half the way there.

    Where continuous sites are left, also where a few steps of ascent lead.
    """
    if not rules:
        return []
    first = points(bound)[1][1]
    values = _swept(bound, rules, first)
    found = [values, _between(bound, first, values)]
    ruled = {rule.site for rule in rules}
    free = tuple(n for n in bound.latent if n not in ruled and not bound.sites[n].is_discrete)
    if free:
        higher = _climbed(bound, free, values)
        found += [higher, _swept(bound, rules, higher)]
    return [(bound, one) for one in found]


def _swept(bound: Bound, rules: Sequence[Rule], values: Values) -> Values:
    """One site after the other in the middle of its conditional, where that is a number."""
    of, drawn, values = terms(bound).terms, noise_for(bound), dict(values)
    for _ in range(SWEEPS):
        for rule in rules:
            [verdict] = evaluated([law(of, rule)], (bound, values, drawn, True))
            old = values[rule.site]
            if np.isfinite(verdict.middle).all():
                values[rule.site] = jnp.asarray(verdict.middle, old.dtype).reshape(old.shape)
    return values


def _between(bound: Bound, first: Values, last: Values) -> Values:
    """Half the way, of positive sites on a scale of ratios: supports are convex. Discrete sites are where they end."""
    found = {}
    for name, one in first.items():
        site, other = bound.sites[name], last[name]
        if site.is_discrete:
            found[name] = other
        elif site.support in ("positive", "nonnegative"):
            found[name] = jnp.sqrt(one) * jnp.sqrt(other)
        else:
            found[name] = (one + other) / 2
    return found


def _climbed(bound: Bound, names: tuple[str, ...], values: Values) -> Values:
    """Some steps of ascent over some sites of the log joint as a density of unconstrained sites, all others given.

    Differences take the place of derivatives, which cost more to compile. Of many coordinates those of a site move
    together: it is the scale of the data that is looked for.
    """
    sizes = {name: int(np.prod(values[name].shape)) for name in names}
    steps = tuple((name, size if sum(sizes.values()) <= FEW else 1) for name, size in sizes.items())
    density = _density(steps)

    def objective(flat: np.ndarray) -> float:
        [(value, _)] = evaluated([density], (bound, values, flat))
        return -float(value) if np.isfinite(value) else LARGEST

    start = np.zeros(sum(size for _, size in steps))
    found = minimize(objective, start, method="L-BFGS-B", options={"maxiter": STEPS})
    if not found.fun < LARGEST:
        return values
    [(_, last)] = evaluated([density], (bound, values, found.x))
    return dict(values) | {name: jnp.asarray(last[name], values[name].dtype) for name in names}


@lru_cache(maxsize=64)
def _density(steps: tuple[tuple[str, int], ...]) -> Callable[[Any], tuple[Array, Values]]:
    """The log density, and the sites, where these have moved from their values by steps in unconstrained space.

    steps: names of the sites, and how many coordinates the step of each has: all, or one for all.
    """
    names = frozenset(name for name, _ in steps)

    def density(given: tuple[Bound, Values, Array]) -> tuple[Array, Values]:
        bound, values, flat = given
        moved, volume = dict(values), jnp.zeros(())
        for name, size in steps:
            prior = terms(bound).priors[name]
            old = biject_to(prior.distribution(bound, values).support).inv(values[name])
            transform = biject_to(prior.distribution(bound, moved).support)
            step, flat = flat[:size], flat[size:]
            position = old + (step[: old.size].reshape(old.shape) if size == values[name].size else step[0])
            moved[name] = transform(position)
            volume += jnp.sum(transform.log_abs_det_jacobian(position, moved[name]))
        of = [term for term in terms(bound).terms if not term.depends.isdisjoint(names)]
        return total(of, bound, moved) + volume, {name: moved[name] for name in names}

    return density
