"""Points of a program: somewhere feasible, a sweep of Gibbs further, somewhere likely."""

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.handlers import seed, substitute, trace

from bayeslab.elimination import Rule, conditional
from bayeslab.program import Bound, Values, feasible
from bayeslab.terms import Term, terms

SWEEPS = 5


def sweep(key: Array, rules: tuple[Rule, ...], of: tuple[Term, ...], bound: Bound, values: Values) -> Values:
    """One draw of every site that has a rule, each given the newest values of all others."""
    values = dict(values)
    for rule, now in zip(rules, jax.random.split(key, len(rules)), strict=True):
        old = values[rule.site]
        drawn = conditional(rule, of, bound, values, near=old).distribution.sample(now)
        values[rule.site] = drawn.reshape(old.shape).astype(old.dtype)
    return values


def settled(key: Array, rules: tuple[Rule, ...], bound: Bound, values: Values) -> Values:
    """Likely values: those after a few sweeps."""
    of = terms(bound).terms

    def step(values: Values, key: Array) -> tuple[Values, None]:
        return sweep(key, rules, of, bound, values), None

    return jax.lax.scan(step, values, jax.random.split(key, SWEEPS))[0]


def somewhere(key: Array, bound: Bound) -> Values:
    """A point inside all supports."""
    sites = trace(substitute(seed(bound.program, key), substitute_fn=feasible)).get_trace()
    return {name: jnp.asarray(sites[name]["value"]) for name in bound.latent}


def computed(bound: Bound, values: Values) -> Values:
    """Values of deterministic sites."""
    if not any(site.role == "deterministic" for site in bound.sites.values()):
        return {}
    sites = trace(substitute(seed(bound.program, jax.random.PRNGKey(0)), data=values)).get_trace()
    return {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}
