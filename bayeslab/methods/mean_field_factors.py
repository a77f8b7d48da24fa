"""Factors of a mean field: the conditionals of blocks of sites under the log joint averaged over all others."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.elimination.conditional import Block, Rule, conditional, stages
from bayeslab.elimination.terms import Term, terms, total
from bayeslab.programs.program import Bound, Values
from bayeslab.transforms.expectation import averaged, averaged_jointly, density, entropy, stored


class Factors(NamedTuple):
    """The factor of every block.

    last: the distribution of its site that is eliminated last. known: what averages need of its sites.
    entropies: (block,).
    """

    last: dict[str, Distribution]
    known: dict[str, Any]
    entropies: Array


class Factor(NamedTuple):
    """The optimal factor of one block. log_evidence: of all its sites, with the terms that they do not reach."""

    last: Distribution
    known: dict[str, Any]
    entropy: Array
    log_evidence: Array


def expected(block: Block, blocks: Sequence[Block], of: tuple[Term, ...]) -> tuple[Term, ...]:
    """The terms of the log joint, averaged over all other blocks."""
    for other in blocks:
        if other != block:
            of = averaged_jointly(other, of) if len(other) > 1 else averaged(other[0], of)
    return of


def joined(blocks: Sequence[Block], found: Sequence[Factor]) -> Factors:
    """The factors of all blocks as one."""
    last = {block[-1].site: one.last for block, one in zip(blocks, found, strict=True)}
    known = {name: value for one in found for name, value in one.known.items()}
    return Factors(last, known, jnp.stack([one.entropy for one in found]))


def factor(
    block: Block,
    of: tuple[Term, ...],
    bound: Bound,
    values: Values,
    near: Values,
    drawn: Distribution | None = None,
) -> Factor:
    """The conditional of a block under some terms, the site that is eliminated last first.

    near: likely values, see `conditional`. drawn: the prior of the last site.
    """
    before = stages(block, of)
    rule, stage = block[-1], before[-1]
    last = conditional(rule, stage, bound, values, near.get(rule.site), drawn)
    rest = total([term for term in stage if rule.site not in term.depends], bound, values)
    known = {rule.site: density(rule.family, last.distribution)}
    total_entropy = entropy(rule.family, last.distribution)
    for rule, stage in zip(block[-2::-1], before[-2::-1], strict=True):

        def given(at: Values, rule: Rule = rule, stage: tuple[Term, ...] = stage) -> tuple[Array, Array]:
            q = conditional(rule, stage, bound, values | at, near.get(rule.site)).distribution
            return density(rule.family, q), entropy(rule.family, q)

        points, entropies = jax.vmap(given)(known)
        times = points.shape[1]
        known = {name: jnp.repeat(value, times, axis=0) for name, value in known.items()}
        known[rule.site] = points.reshape(-1, *points.shape[2:])
        total_entropy += entropies.mean()
    named = {stored(site): value for site, value in known.items()}
    return Factor(last.distribution, named, total_entropy, last.log_evidence.sum() + rest)


def only(rule: Rule, of: tuple[Term, ...], bound: Bound, values: Values, shape: Any) -> Any:
    """What averages need of a site that has one value; of a site with structure, its conditional."""
    prior, value = terms(bound).priors[rule.site], values[rule.site]
    if rule.family.enumerates:
        return (value[..., None] == jnp.asarray(prior.choices)).astype(shape.dtype)
    if rule.family.structured:
        return density(rule.family, conditional(rule, of, bound, values).distribution)
    return jnp.broadcast_to(value, shape.shape).astype(shape.dtype)


def middles(block: Block, factors: Factors) -> Values:
    """Likely values of the continuous sites of a block, where they are known."""
    found = {}
    for rule in block:
        points = factors.known[stored(rule.site)]
        if rule.family.joint:
            found[rule.site] = points.mean(0)
        elif rule.site in factors.last and not rule.family.enumerates and isinstance(points, jax.Array):
            found[rule.site] = rule.family.typical(factors.last[rule.site], points[0])
    return found
