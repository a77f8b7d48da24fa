"""Words for densities that are not numbers or have no derivative that is one, as 0 log 0, and for impossible data."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule, conditional, sum_to_site
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.verification.points.probe_points import Point


def describe_undefined(log_joint_terms: Sequence[Term], sites: Sequence[str], point: Point) -> str | None:
    """In words, the first density that is not a number at a point, or whose derivative in a site is none; else None.

    sites: continuous ones. Where the density of a program is no number nothing can be read off it, and no gradient
    leads anywhere.
    """
    for site in sites:
        for term in (term for term in log_joint_terms if site in term.depends):
            [(density, slope)] = evaluate_all([_density_and_slope(term, site)], point)
            for what, values in ((f"'{term.name}'", density), (f"'{term.name}' by '{site}'", slope)):
                if np.isnan(values).any():
                    position = np.argwhere(np.isnan(values))[0].tolist()
                    where = f" at position {tuple(position)}" if position else ""
                    kind = "density of" if values is density else "derivative of the density of"
                    return f"the {kind} {what} is not a number{where}"
    return None


def describe_impossible(log_joint_terms: Sequence[Term], rule: Rule, point: Point) -> str:
    """In words, that no value of a discrete site has a probability that is not zero, and where.

    Raises ValueError with them if nothing else is unknown.
    """
    site_terms = [term for term in log_joint_terms if rule.site in term.depends]
    what = " and ".join(f"'{name}' says" for name in rule.children)
    if any(term.depends != {rule.site} for term in site_terms):
        return f"the data are impossible wherever it was tried: no value of it allows what {what}"
    [first_impossible] = evaluate_all([_first_impossible(tuple(log_joint_terms), rule)], point)
    *element, step = np.asarray(first_impossible).tolist()
    if rule.family.enumerates:
        where = f"no value of '{rule.site}' at position {(*element, step)} allows what {what}"
    else:
        where = (
            f"no path of '{rule.site}'{f' {tuple(element)}' if element else ''} up to step {step} allows what {what}"
        )
    raise ValueError(f"the data are impossible, so the log evidence is -inf: {where} (places are counted from 0)")


def elements_meet(log_joint_terms: Sequence[Term], rule: Rule, point: Point) -> bool:
    """Whether a part of a density belongs to several elements of a site, so that others may allow what these do not."""
    bound, values = point
    prior = terms(bound).priors[rule.site]
    site_terms = [term for term in log_joint_terms if rule.site in term.depends]
    shared: list[bool] = []

    def run(bound: Bound, values: Values) -> None:
        shared.extend(sum_to_site(term.density(bound, values), term, prior)[1] for term in site_terms)

    jax.eval_shape(run, bound, values)
    return any(shared)


def excludes_configurations(log_joint_terms: tuple[Term, ...], rule: Rule, points: Sequence[Point]) -> bool:
    """Whether elements of a discrete site meet in a density that is zero for some of their configurations.

    Then the conditional of one element given the others need not show who meets: where it alone fulfils a condition on
    all of them, it may have no other value, and what it may have beside others is never compared.
    """
    if not elements_meet(log_joint_terms, rule, points[0]):
        return False
    check = _has_excluded_values(log_joint_terms, rule)
    return any(bool(evaluate_all([check], point)[0]) for point in points)


@lru_cache(maxsize=64)
def _has_excluded_values(log_joint_terms: tuple[Term, ...], rule: Rule) -> Callable[[Point], Array]:
    """A function of a point: whether an element has an impossible value given the others, or all elements together one
    that is impossible for them."""
    site_terms = [term for term in log_joint_terms if rule.site in term.depends]

    def excluded(point: Point) -> Array:
        bound, values = point
        site = values[rule.site]
        choices = jnp.asarray(terms(bound).priors[rule.site].choices, site.dtype)

        def density(choice: Array) -> Array:
            return sum_of_terms(site_terms, bound, values | {rule.site: jnp.full(site.shape, choice)})

        logits = innermost_distribution(conditional(rule, log_joint_terms, bound, values).distribution).logits
        return jnp.isneginf(logits).any() | jnp.isneginf(jax.lax.map(density, choices)).any()

    return excluded


@lru_cache(maxsize=64)
def _first_impossible(log_joint_terms: tuple[Term, ...], rule: Rule) -> Callable[[Any], Array]:
    """A function of a point: the index of the first element without a possible value; of paths, the index of the first
    that is impossible, and its first step without a possible state."""

    def where(point: tuple[Bound, Values]) -> Array:
        q = conditional(rule, log_joint_terms, *point).distribution
        if rule.family.enumerates:
            none = ~jnp.isfinite(innermost_distribution(q).logits).any(-1)
            return jnp.array(jnp.unravel_index(jnp.argmax(none), none.shape), int)
        left = q.possible_steps()
        chain = jnp.argmin(left)
        return jnp.stack([*jnp.unravel_index(chain, left.shape), left.reshape(-1)[chain]])

    return where


@lru_cache(maxsize=256)
def _density_and_slope(term: Term, site: str) -> Callable[[Any], tuple[Array, Array]]:
    """A function of a point: a density, and its derivative by all elements of a site together."""

    def both(point: tuple[Bound, Values]) -> tuple[Array, Array]:
        bound, values = point

        def density(x: Array) -> Array:
            return term.density(bound, values | {site: x})

        return jax.jvp(density, (values[site],), (jnp.ones_like(values[site]),))

    return both
