"""Points of a program: somewhere feasible, a sweep of Gibbs further, somewhere likely."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from numpyro.handlers import seed, substitute, trace

from bayeslab.distributions import JointNormal
from bayeslab.elimination import Rule, conditional, stages, typical
from bayeslab.program import Bound, Values, feasible
from bayeslab.terms import Term, terms

SWEEPS = 5


Block = tuple[Rule, ...]
"""Sites that are drawn jointly, in the order in which they are eliminated; often one."""


def sweep(key: Array, blocks: Sequence[Block], of: tuple[Term, ...], bound: Bound, values: Values) -> Values:
    """One draw of every block, each given the newest values of all others."""
    values = dict(values)
    for block, now in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
        keys = jax.random.split(now, len(block))
        for rule, stage, here in zip(block[::-1], stages(block, of)[::-1], keys, strict=True):
            old = values[rule.site]
            drawn = conditional(rule, stage, bound, values, near=old).distribution.sample(here)
            values[rule.site] = drawn.reshape(old.shape).astype(old.dtype)
    return values


def settled(key: Array, rules: tuple[Rule, ...], bound: Bound, values: Values) -> Values:
    """Likely values: a few times the middle of every conditional, or a draw where the middle is not known."""
    of = terms(bound).terms

    def step(values: Values, key: Array) -> tuple[Values, None]:
        values = dict(values)
        for rule, now in zip(rules, jax.random.split(key, len(rules)), strict=True):
            old = values[rule.site]
            q = conditional(rule, of, bound, values, near=old).distribution
            values[rule.site] = _middle(now, q, old).reshape(old.shape).astype(old.dtype)
        return values, None

    return jax.lax.scan(step, values, jax.random.split(key, SWEEPS))[0]


def _middle(key: Array, q: Distribution, old: Array) -> Array:
    match q:
        case dist.Normal() | JointNormal() | dist.Beta() | dist.Dirichlet():
            return q.mean
        case dist.Gamma() | dist.InverseGamma() | dist.Wishart() | dist.InverseWishart():
            return typical(q, old)
        case _:
            return q.sample(key)


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
