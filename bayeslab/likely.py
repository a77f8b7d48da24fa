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

from bayeslab.compilation import evaluated
from bayeslab.elimination import Rule
from bayeslab.law import law, noise_for
from bayeslab.points import Point, points
from bayeslab.program import Bound, Values
from bayeslab.terms import terms, total

SWEEPS = 2
STEPS = 15
"""Of ascent."""
FEW = 16
"""Coordinates up to which differences take the place of derivatives, which cost more to compile."""
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
    """Some steps of ascent over some sites of the log joint as a density of unconstrained sites, all others given."""
    sizes = [int(np.prod(values[name].shape)) for name in names]
    few = sum(sizes) <= FEW
    ascent = _ascent(names, few)

    def objective(flat: np.ndarray) -> Any:
        [(value, gradient, _)] = evaluated([ascent], (bound, values, flat))
        if few:
            return -float(value) if np.isfinite(value) else LARGEST
        good = np.isfinite(value) and np.isfinite(gradient).all()
        return (-float(value), -np.asarray(gradient)) if good else (LARGEST, 0 * flat)

    found = minimize(objective, np.zeros(sum(sizes)), jac=not few, method="L-BFGS-B", options={"maxiter": STEPS})
    if not found.fun < LARGEST:
        return values
    [(_, _, last)] = evaluated([ascent], (bound, values, found.x))
    return dict(values) | {name: jnp.asarray(last[name], values[name].dtype) for name in names}


@lru_cache(maxsize=64)
def _ascent(names: tuple[str, ...], few: bool) -> Callable[[Any], tuple[Array, Array, Values]]:
    """The log density, its gradient unless coordinates are few, and the sites, where these have moved from their values
    by a step (coordinate,) in unconstrained space; one function, to be compiled once."""

    def ascent(given: tuple[Bound, Values, Array]) -> tuple[Array, Array, Values]:
        bound, values, flat = given
        of = [term for term in terms(bound).terms if not term.depends.isdisjoint(names)]

        def density(flat: Array) -> tuple[Array, Values]:
            moved, volume = _moved(names, bound, values, flat)
            return total(of, bound, moved) + volume, {name: moved[name] for name in names}

        if few:
            value, moved = density(flat)
            return value, jnp.zeros(()), moved
        (value, moved), gradient = jax.value_and_grad(density, has_aux=True)(flat)
        return value, gradient, moved

    return ascent


def _moved(names: Sequence[str], bound: Bound, values: Values, flat: Array) -> tuple[Values, Array]:
    """All sites, some of them a step away in unconstrained space, and the log of the volume there."""
    moved, volume = dict(values), jnp.zeros(())
    for name in names:
        old = biject_to(terms(bound).priors[name].distribution(bound, values).support).inv(values[name])
        transform = biject_to(terms(bound).priors[name].distribution(bound, moved).support)
        position = old + flat[: old.size].reshape(old.shape)
        flat = flat[values[name].size :]
        moved[name] = transform(position)
        volume += jnp.sum(transform.log_abs_det_jacobian(position, moved[name]))
    return moved, volume
