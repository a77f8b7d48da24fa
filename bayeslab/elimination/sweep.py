"""Values of all sites of a program: a feasible point, one sweep of Gibbs sampling, likely and random starts."""

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, biject_to
from numpyro.handlers import seed, substitute, trace

from bayeslab.distributions.block_normal import join_values
from bayeslab.elimination.conditional import Block, Rule, conditional, elimination_stages
from bayeslab.elimination.discrete.collapsed.collapsed_draws import collapsed_elements, draw_collapsed_elements
from bayeslab.elimination.discrete.element_draws import draw_elements
from bayeslab.elimination.families import ELEMENT_BY_ELEMENT
from bayeslab.elimination.family import Family
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.wrapped_distributions import innermost_distribution

NUM_START_SWEEPS = 5
"""Sweeps over the middles of conditionals that lead to likely values."""
NUM_RANDOM_START_SWEEPS = 2
"""Sweeps of a random start."""


def gibbs_sweep(
    key: Array, blocks: Sequence[Block], log_joint_terms: tuple[Term, ...], bound: Bound, values: Values
) -> Values:
    """Values after one sweep of Gibbs sampling: every block is drawn given the newest values of all others."""
    for block, block_key in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
        values, _ = draw_block(block_key, block, log_joint_terms, bound, values)
    return values


def draw_block(
    key: Array, block: Block, log_joint_terms: tuple[Term, ...], bound: Bound, values: Values
) -> tuple[Values, dict[Rule, Distribution]]:
    """Values with one draw of a block given all other sites, and the conditionals that its sites were drawn from, by
    rule.

    The site that was eliminated last is drawn first.
    log_joint_terms: the terms before the first elimination.
    values: old values of the block, where there are any, say where gradients are taken.
    """
    values, drawn_from = dict(values), {}
    keys = jax.random.split(key, len(block))
    stages = elimination_stages(block, log_joint_terms)
    for place, site_key in zip(reversed(range(len(block))), keys, strict=True):
        rule, stage = block[place], stages[place]
        if rule.field is not None and rule.family is ELEMENT_BY_ELEMENT:
            field, indices = rule.field, rule.field.joined(values)
            if field.changed_rows is None:
                indices = draw_elements(site_key, field, stage, bound, values, indices)
            else:
                normal = block[place - 1]
                elements = collapsed_elements(field, normal, stages[place - 1], bound, values)
                near = join_values(values[name] for name in normal.sites)
                indices = draw_collapsed_elements(site_key, elements, indices, near)
            new = field.named(indices)
            values |= {name: value.astype(bound.sites[name].dtype) for name, value in new.items()}
            continue
        q = conditional(rule, stage, bound, values, initial=rule.joined(values)).distribution
        for name, value in rule.named(q.sample(site_key)).items():
            site = bound.sites[name]
            values[name] = value.reshape(site.shape).astype(site.dtype)
        drawn_from[rule] = q
    return values, drawn_from


def gibbs_start(key: Array, rules: tuple[Rule, ...], bound: Bound, values: Values) -> Values:
    """Likely values: a few sweeps that set every site to the middle of its conditional, or to a draw where that is not
    known."""
    log_joint_terms = terms(bound).terms

    def step(values: Values, key: Array) -> tuple[Values, None]:
        values = dict(values)
        for rule, site_key in zip(rules, jax.random.split(key, len(rules)), strict=True):
            old = values[rule.site]
            q = conditional(rule, log_joint_terms, bound, values, initial=old).distribution
            values[rule.site] = rule.family.middle(site_key, q, old).reshape(old.shape).astype(old.dtype)
        return values, None

    return jax.lax.scan(step, values, jax.random.split(key, NUM_START_SWEEPS))[0]


def random_start(
    key: Array, rules: tuple[Rule, ...], log_joint_terms: tuple[Term, ...], bound: Bound, tables: dict[str, Any]
) -> Values:
    """A random start for optimisers, about as far from others as the posterior is wide.

    Two sweeps lead there from a random feasible point: Normal and discrete sites are drawn, and the others take the
    middle of their conditional. Compiling random numbers would take longer than most optimisations, so there is one
    call for all.
    log_joint_terms, tables: the terms of the log joint, and what they look for among the values.
    """
    priors = terms(bound).priors
    sizes = [prod(prior.shape) for prior in priors.values()]
    keys = jax.random.split(key)
    uniform = jax.random.uniform(keys[0], (1 + NUM_RANDOM_START_SWEEPS, sum(sizes)), minval=1e-6, maxval=1 - 1e-6)

    def shaped(row: Array) -> Values:
        parts = jnp.split(row, np.cumsum(sizes)[:-1])
        return {name: part.reshape(priors[name].shape) for name, part in zip(priors, parts, strict=True)}

    def step(values: Values, row: Array) -> tuple[Values, None]:
        values, noise = dict(values), shaped(row)
        for rule in rules:
            old = values[rule.site]
            q = conditional(rule, log_joint_terms, bound, values | tables, initial=old).distribution
            new = _draw_or_middle(rule.family, q, noise[rule.site], keys[1], old)
            values[rule.site] = new.reshape(old.shape).astype(old.dtype)
        return values, None

    return jax.lax.scan(step, _feasible_from_uniform(shaped(uniform[0]), bound), uniform[1:])[0]


def _feasible_from_uniform(noise: Values, bound: Bound) -> Values:
    """Values of the latent sites inside their supports, from standard uniform numbers."""
    values: Values = {}
    for name, prior in terms(bound).priors.items():
        site = bound.sites[name]
        fn = prior.distribution(bound, values)
        if (limit := dict(bound.limits).get(name)) is not None:
            values[name] = jnp.full(site.shape, limit // 2, site.dtype)
        elif prior.discrete:
            inner = innermost_distribution(fn)
            choices = prior.choices if prior.choices is not None else np.arange(getattr(inner, "num_states", 2))
            values[name] = jnp.asarray(choices)[(noise[name] * len(choices)).astype(int)].astype(site.dtype)
        else:
            transform = biject_to(fn.support)
            num_free = prod(transform.inverse_shape(prior.shape))
            position = 2 * jnp.resize(noise[name].ravel(), num_free) - 1
            value = transform(position.reshape(transform.inverse_shape(prior.shape)))
            values[name] = value.reshape(prior.shape).astype(site.dtype)
    return values


def _draw_or_middle(family: Family, q: Distribution, uniform: Array, key: Array, old: Array) -> Array:
    """A draw of a conditional where uniform numbers give one, else its middle."""
    return family.middle(key, q, old) if family.from_uniform is None else family.from_uniform(q, uniform)


def feasible_point(key: Array, bound: Bound) -> Values:
    """Values of the latent sites inside their supports."""
    counts = {
        name: jnp.full(bound.sites[name].shape, limit // 2, bound.sites[name].dtype) for name, limit in bound.limits
    }
    model = substitute(seed(bound.program, key), substitute_fn=init_inside_support)
    sites = trace(substitute(model, data=counts)).get_trace()
    return {name: jnp.asarray(sites[name]["value"]) for name in bound.latent}


def deterministic_values(bound: Bound, values: Values) -> Values:
    """Values of the deterministic sites of a program, from those of its latent sites."""
    if not any(site.role == "deterministic" for site in bound.sites.values()):
        return {}
    sites = trace(substitute(seed(bound.program, jax.random.PRNGKey(0)), data=values)).get_trace()
    return {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}
