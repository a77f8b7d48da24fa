"""Points on the scale of the data, and between it and that of the priors, at which rules are verified again.

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
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.identity import NO_PROBES, probe_noise
from bayeslab.verification.points.probe_points import Point, generic_points
from bayeslab.verification.scalars.alike_sites import verdicts_on

NUM_SWEEPS = 2
"""Sweeps over the middles of conditionals."""
MAX_ASCENT_STEPS = 15
"""Steps of an ascent, at most."""
MAX_SEPARATE_COORDINATES = 16
"""Coordinates of an ascent, at most, where each is moved by itself; else those of a site move together."""
UNDEFINED_OBJECTIVE = 1e300
"""Objective in place of what is no number."""


def in_double_precision(bound: Bound) -> Bound:
    """The Bound in double precision, in which rules are verified."""

    def widen(leaf: Array) -> Array:
        return jnp.asarray(leaf, dtype=jnp.float64) if leaf.dtype.kind == "f" else jnp.asarray(leaf)

    return jax.tree.map(widen, bound)


def likely_points(bound: Bound, rules: Sequence[Rule]) -> list[Point]:
    """Points where a few sweeps of some conditionals lead, each given all other sites, and half the way there.

    Where continuous sites are left, the points to which a few steps of ascent lead are among them. Without continuous
    sites there are none: labels have no scale.
    """
    if not rules or all(bound.sites[name].is_discrete for name in bound.latent):
        return []
    start = generic_points(bound)[1][1]
    values = _sweep_to_middles(bound, rules, start)
    value_sets = [values, _midpoint(bound, start, values)]
    ruled = {rule.site for rule in rules}
    unruled = tuple(n for n in bound.latent if n not in ruled and not bound.sites[n].is_discrete)
    if unruled:
        ascended = _ascend(bound, unruled, values)
        value_sets += [ascended, _sweep_to_middles(bound, rules, ascended)]
    return [(bound, each) for each in value_sets]


def _sweep_to_middles(bound: Bound, rules: Sequence[Rule], values: Values) -> Values:
    """Values after a few sweeps that set every site to the middle of its conditional, if that is a number."""
    log_joint_terms, noise, values = terms(bound).terms, probe_noise(bound), dict(values)
    for _ in range(NUM_SWEEPS):
        for rule in rules:
            [verdict] = verdicts_on(log_joint_terms, [rule], (bound, values, noise, NO_PROBES))
            old = values[rule.site]
            if np.isfinite(verdict.middle).all():
                values[rule.site] = jnp.asarray(np.reshape(verdict.middle, old.shape), old.dtype)
    return values


def _midpoint(bound: Bound, first: Values, last: Values) -> Values:
    """Values half the way between two; geometric means of positive sites, and discrete sites as they are at the end.

    Supports are convex. They are computed by NumPy, for which nothing is compiled.
    """
    midpoint = {}
    for name, start in first.items():
        site, begin, end = bound.sites[name], np.asarray(start), np.asarray(last[name])
        if site.is_discrete:
            midpoint[name] = last[name]
        elif site.support in ("positive", "nonnegative"):
            midpoint[name] = jnp.asarray(np.sqrt(begin) * np.sqrt(end), start.dtype)
        else:
            midpoint[name] = jnp.asarray((begin + end) / 2, start.dtype)
    return midpoint


def _ascend(bound: Bound, names: tuple[str, ...], values: Values) -> Values:
    """Values after some steps of ascent (L-BFGS) of some sites, all others given.

    The objective is the log joint as a density of unconstrained sites.
    Differences take the place of derivatives, which cost more to compile. Of many coordinates those of a site move
    together: it is the scale of the data that is looked for.
    """
    sizes = {name: int(np.prod(values[name].shape)) for name in names}
    steps = tuple(
        (name, size if sum(sizes.values()) <= MAX_SEPARATE_COORDINATES else 1) for name, size in sizes.items()
    )
    density = _unconstrained_density(steps)

    def objective(flat: np.ndarray) -> float:
        [(value, _)] = evaluate_all([density], (bound, values, flat))
        return -float(value) if np.isfinite(value) else UNDEFINED_OBJECTIVE

    start = np.zeros(sum(size for _, size in steps))
    result = minimize(objective, start, method="L-BFGS-B", options={"maxiter": MAX_ASCENT_STEPS})
    if not result.fun < UNDEFINED_OBJECTIVE:
        return values
    [(_, last)] = evaluate_all([density], (bound, values, result.x))
    return dict(values) | {name: jnp.asarray(last[name], values[name].dtype) for name in names}


@lru_cache(maxsize=64)
def _unconstrained_density(steps: tuple[tuple[str, int], ...]) -> Callable[[Any], tuple[Array, Values]]:
    """A function that moves sites by steps in unconstrained space, and gives their log density and the sites.

    steps: names of the sites, and how many coordinates the step of each has: all, or one for all.
    """
    names = frozenset(name for name, _ in steps)

    def density(argument: tuple[Bound, Values, Array]) -> tuple[Array, Values]:
        bound, values, flat = argument
        moved, volume = dict(values), jnp.zeros(())
        for name, size in steps:
            prior = terms(bound).priors[name]
            old = biject_to(prior.distribution(bound, values).support).inv(values[name])
            transform = biject_to(prior.distribution(bound, moved).support)
            step, flat = flat[:size], flat[size:]
            position = old + (step[: old.size].reshape(old.shape) if size == values[name].size else step[0])
            moved[name] = transform(position)
            volume += jnp.sum(transform.log_abs_det_jacobian(position, moved[name]))
        moved_terms = [term for term in terms(bound).terms if not term.depends.isdisjoint(names)]
        return sum_of_terms(moved_terms, bound, moved) + volume, {name: moved[name] for name in names}

    return density
