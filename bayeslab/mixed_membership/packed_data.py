"""What counting needs of a Bound: what is observed, packed, and the priors of weights and components."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from bayeslab.distributions import PaddedDirichlet
from bayeslab.elimination.terms import terms, total
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import packed
from bayeslab.mixed_membership.recognition import Membership, individuals_of
from bayeslab.mixed_membership.tokens.block_gibbs import Blocks, in_blocks, pays
from bayeslab.mixed_membership.tokens.topic_counts import Tokens, packed_tokens
from bayeslab.programs.program import Bound, Values, blueprint, unwrapped


class Counted(NamedTuple):
    """bound: without what is observed. packed: that, see `packed` and `packed_tokens`. blocks: the same, where origins
    are drawn in blocks of words."""

    bound: Bound
    packed: Array
    blocks: Blocks | None = None


def counted(found: Membership, bound: Bound) -> Counted:
    """What all chains share."""
    name, shape = found.observed, found.shape
    observed, present = bound.observed[name], bound.present.get(name)
    if isinstance(shape, Tokens):
        data = packed_tokens(observed, present, individuals_of(found, bound), shape)
    else:
        data = packed(observed, present, shape)
    return Counted(without_observed(found, bound), data)


def counted_in_blocks(found: Membership, bound: Bound) -> Counted:
    """The same, with blocks of words where origins are drawn in these."""
    data, name = counted(found, bound), found.observed
    if found.known or not isinstance(found.shape, Tokens) or not pays(found.shape):
        return data
    blocks = in_blocks(bound.observed[name], bound.present.get(name), individuals_of(found, bound), found.shape)
    return data._replace(blocks=blocks)


def without_observed(found: Membership, bound: Bound) -> Bound:
    """The Bound without what is packed."""
    parts = (
        {name: value for name, value in values.items() if name != found.observed}
        for values in (bound.observed, bound.present)
    )
    observed, present = parts
    return replace(bound, observed=observed, present=present)


def priors(found: Membership, shapes: Any, data: Counted, others: Values) -> Priors:
    """At values of the other sites. shapes: the structure of the Bound."""
    size = found.shape
    weights, components, real = concentrations(found, shapes, data, others)
    of_individuals = jnp.broadcast_to(weights, (size.individuals, size.populations)).astype(jnp.float32)
    table = (size.populations, size.loci, size.alleles)
    if components is None:
        return Priors(of_individuals, jnp.ones(table, jnp.float32), real)
    return Priors(of_individuals, jnp.broadcast_to(components, table).astype(jnp.float32), real)


def concentrations(found: Membership, shapes: Any, data: Counted, others: Values) -> tuple[Array, Array | None, Array]:
    """Of weights (..., population), of components (..., locus, allele), None where those are known, and which alleles a
    locus has (locus, allele): in the precision of the program, of the shapes that it gives them."""
    bound, size = whole(shapes, data), found.shape
    drawn = terms(bound).priors
    weights = unwrapped(drawn[found.weights].distribution(bound, others)).concentration
    table = (size.populations, size.loci, size.alleles)
    if found.known:
        return weights, None, (bound.observed[found.components] > 0).reshape(table).any(0)
    components = unwrapped(drawn[found.components].distribution(bound, others))
    real = jnp.ones(table, bool)
    if isinstance(components, PaddedDirichlet):
        real = jnp.broadcast_to(components.real, table)
    concentration = jnp.asarray(components.concentration)
    if concentration.ndim < len(size.table):
        concentration = jnp.broadcast_to(concentration, size.table)
    return weights, concentration.reshape(-1, size.loci, size.alleles), real[0]


def log_prior(found: Membership, shapes: Any, data: Counted, values: Values) -> Array:
    """Of weights, components and other sites."""
    bound = whole(shapes, data)
    mine = [term for term in terms(bound).terms if term.name not in (found.origins, found.observed)]
    return total(mine, bound, {name: value.astype(bound.sites[name].dtype) for name, value in values.items()})


def whole(shapes: Any, data: Counted) -> Bound:
    """The Bound with observed values that are none: what depends on them is not computed."""
    shape = blueprint(shapes)
    zeros = (
        {n: jnp.zeros(one.shape, one.dtype) for n, one in part.items()} for part in (shape.observed, shape.present)
    )
    observed, present = zeros
    return replace(data.bound, observed=observed | data.bound.observed, present=present | data.bound.present)
