"""Factors of a mean field: the conditionals of blocks of sites under the log joint averaged over all others."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.distributions import Enumerated
from bayeslab.elimination.conditional import Block, Rule, conditional, elimination_stages
from bayeslab.elimination.terms import Prior, Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.transforms.expectation import (
    entropy,
    expected_terms,
    jointly_expected_terms,
    moment_key,
    moments_of_conditional,
    named_moments,
)

RealMap = Callable[[Array], Array]


class Factors(NamedTuple):
    """The factors of all blocks.

    last: by site, the distribution of the site of a block that is eliminated last. known: what averages need of all
    sites. entropies: of the factors (block,).
    """

    last: dict[str, Distribution]
    known: dict[str, Any]
    entropies: Array


class Factor(NamedTuple):
    """The optimal factor of one block.

    last: the distribution of its site that is eliminated last. known: what averages need of its sites. log_evidence:
    the log normaliser of the factor, with the terms that its sites do not reach.
    """

    last: Distribution
    known: dict[str, Any]
    entropy: Array
    log_evidence: Array


def terms_averaged_over_others(block: Block, blocks: Sequence[Block], of: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms of the log joint, averaged over all other blocks."""
    for other in blocks:
        if other != block:
            of = jointly_expected_terms(other, of) if len(other) > 1 else expected_terms(other[0], of)
    return of


def join_factors(blocks: Sequence[Block], block_factors: Sequence[Factor]) -> Factors:
    """The factors of all blocks, one Factor for each, as one record."""
    last = {block[-1].site: block_factor.last for block, block_factor in zip(blocks, block_factors, strict=True)}
    known = {name: value for block_factor in block_factors for name, value in block_factor.known.items()}
    return Factors(last, known, jnp.stack([block_factor.entropy for block_factor in block_factors]))


def optimal_factor(
    block: Block,
    of: tuple[Term, ...],
    bound: Bound,
    values: Values,
    near: Values,
    drawn: Distribution | None = None,
) -> Factor:
    """The optimal factor of a block: its conditional under some terms.

    The site that is eliminated last comes first, and the others are conditioned on it.
    near: likely values, see `conditional`. drawn: the prior of the site that is eliminated last.
    """
    block_stages = elimination_stages(block, of)
    rule, stage = block[-1], block_stages[-1]
    last = conditional(rule, stage, bound, values, rule.joined(near), drawn)
    reached = rule.reached(stage)
    constant = sum_of_terms([term for term in stage if term not in reached], bound, values)
    known = named_moments(rule, last.distribution)
    total_entropy = entropy(rule.family, last.distribution)
    for rule, stage in zip(block[-2::-1], block_stages[-2::-1], strict=True):

        def conditional_density(
            at: Values, rule: Rule = rule, stage: tuple[Term, ...] = stage
        ) -> tuple[dict[str, Any], Array]:
            q = conditional(rule, stage, bound, values | at, rule.joined(near)).distribution
            return named_moments(rule, q), entropy(rule.family, q)

        new, entropies = jax.vmap(conditional_density)(known)
        num_points = new[rule.sites[0]].shape[1]
        known = {name: jnp.repeat(value, num_points, axis=0) for name, value in known.items()}
        known |= {name: points.reshape(-1, *points.shape[2:]) for name, points in new.items()}
        total_entropy += entropies.mean()
    named = {moment_key(site): value for site, value in known.items()}
    return Factor(last.distribution, named, total_entropy, last.log_evidence.sum() + constant)


def point_density(rule: Rule, of: tuple[Term, ...], bound: Bound, values: Values, shape: Any) -> Any:
    """What averages need of a site that has a single value; for a site with structure, the density of its
    conditional."""
    prior, value = terms(bound).priors[rule.site], values[rule.site]
    if rule.family.enumerates:
        return (value[..., None] == jnp.asarray(prior.choices)).astype(shape.dtype)
    if rule.family.structured:
        return moments_of_conditional(rule.family, conditional(rule, of, bound, values).distribution)
    return jnp.broadcast_to(value, shape.shape).astype(shape.dtype)


def typical_block_values(block: Block, factors: Factors) -> Values:
    """Likely values of the continuous sites of a block under its factor, where there are any."""
    values: Values = {}
    for rule in block:
        if rule.family.is_normal:
            values |= {name: factors.known[moment_key(name)].mean(0) for name in rule.sites}
            continue
        points = factors.known[moment_key(rule.site)]
        if rule.site in factors.last and not rule.family.enumerates and isinstance(points, jax.Array):
            values[rule.site] = rule.family.typical(factors.last[rule.site], points[0])
    return values


def in_order_of_size(factor: Factor, site: str, is_wanted: Array) -> Factor:
    """The factor of labels (row,), renamed so that 0 is the most frequent one, where that is wanted."""
    probs = factor.known[moment_key(site)]
    sizes = probs.sum(tuple(range(probs.ndim - 1)))
    order = jnp.where(is_wanted, jnp.argsort(-sizes), jnp.arange(len(sizes)))
    inner = innermost_distribution(factor.last)
    renamed = Enumerated(inner.logits[..., order], inner.choices).to_event(factor.last.event_dim)
    return factor._replace(last=renamed, known={moment_key(site): probs[..., order]})


def real_coordinates(rule: Rule, prior: Prior, bound: Bound, factors: Factors) -> tuple[RealMap, RealMap]:
    """The map from the density of a site, as averages need it, to real numbers, and its inverse."""
    if rule.family.enumerates:
        return lambda probs: jnp.log(jnp.maximum(probs, jnp.finfo(probs.dtype).tiny)), jax.nn.softmax
    others = {
        name: factors.known[moment_key(name)][0] for name in prior.depends if not terms(bound).priors[name].discrete
    }
    transform = biject_to(prior.distribution(bound, others).support)
    return transform.inv, transform
