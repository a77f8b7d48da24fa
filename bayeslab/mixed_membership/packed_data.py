"""The packed data of a Bound of mixed membership, and the priors of its weights and components."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from bayeslab.distributions import PaddedDirichlet
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import pack
from bayeslab.mixed_membership.recognition import Membership, individuals_of_tokens
from bayeslab.mixed_membership.tokens.block_gibbs import WordBlocks, blocks_are_worthwhile, lay_out_blocks
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape, pack_tokens
from bayeslab.programs.program import Bound, Values, abstract_bound
from bayeslab.programs.wrapped_distributions import innermost_distribution

MIN_CONCENTRATION = 1e-30
"""The smallest concentration of weights: what other sites draw below it would be 0 in single precision."""


class PackedData(NamedTuple):
    """The data that passes need, packed once a fit.

    bound: without the observed alleles or words. packed: these, see `pack` and `pack_tokens`.
    blocks: these in blocks of words, where origins are drawn so.
    """

    bound: Bound
    packed: Array
    blocks: WordBlocks | None = None


def pack_data(roles: Membership, bound: Bound) -> PackedData:
    """The packed data, which all chains share."""
    name, shape = roles.observed, roles.shape
    observed, present = bound.observed[name], bound.present.get(name)
    if isinstance(shape, TokenShape):
        data = pack_tokens(observed, present, individuals_of_tokens(roles, bound), shape)
    else:
        data = pack(observed, present, shape)
    return PackedData(without_observed(roles, bound), data)


def pack_data_in_blocks(roles: Membership, bound: Bound) -> PackedData:
    """The packed data, with blocks of words where origins are drawn in these."""
    data, name = pack_data(roles, bound), roles.observed
    if roles.known or not isinstance(roles.shape, TokenShape) or not blocks_are_worthwhile(roles.shape):
        return data
    blocks = lay_out_blocks(
        bound.observed[name], bound.present.get(name), individuals_of_tokens(roles, bound), roles.shape
    )
    return data._replace(blocks=blocks)


def without_observed(roles: Membership, bound: Bound) -> Bound:
    """The Bound without the observed values that are packed."""
    parts = (
        {name: value for name, value in values.items() if name != roles.observed}
        for values in (bound.observed, bound.present)
    )
    observed, present = parts
    return replace(bound, observed=observed, present=present)


def priors(roles: Membership, shapes: Any, data: PackedData, others: Values) -> Priors:
    """Priors of weights and components at values of the other sites. shapes: the structure of the Bound."""
    size = roles.shape
    weights, components, is_allele = concentrations(roles, shapes, data, others)
    weight_concentrations = jnp.broadcast_to(weights, (size.individuals, size.populations)).astype(jnp.float32)
    weight_concentrations = jnp.maximum(weight_concentrations, MIN_CONCENTRATION)
    table = (size.populations, size.loci, size.alleles)
    if components is None:
        return Priors(weight_concentrations, jnp.ones(table, jnp.float32), is_allele)
    return Priors(weight_concentrations, jnp.broadcast_to(components, table).astype(jnp.float32), is_allele)


def concentrations(
    roles: Membership, shapes: Any, data: PackedData, others: Values
) -> tuple[Array, Array | None, Array]:
    """Concentrations of weights (..., population) and of components (..., locus, allele), None where those are known,
    and which alleles a locus has (locus, allele).

    They are in the precision of the program, and have the shapes that it gives them.
    """
    bound, size = with_placeholder_data(shapes, data), roles.shape
    site_priors = terms(bound).priors
    weights = innermost_distribution(site_priors[roles.weights].distribution(bound, others)).concentration
    table = (size.populations, size.loci, size.alleles)
    if roles.known:
        return weights, None, (bound.observed[roles.components] > 0).reshape(table).any(0)
    components = innermost_distribution(site_priors[roles.components].distribution(bound, others))
    is_allele = jnp.ones(table, bool)
    if isinstance(components, PaddedDirichlet):
        is_allele = jnp.broadcast_to(components.real, table)
    concentration = jnp.asarray(components.concentration)
    if concentration.ndim < len(size.table):
        concentration = jnp.broadcast_to(concentration, size.table)
    return weights, concentration.reshape(-1, size.loci, size.alleles), is_allele[0]


def log_prior(roles: Membership, shapes: Any, data: PackedData, values: Values) -> Array:
    """The log prior density of weights, components and other sites."""
    bound = with_placeholder_data(shapes, data)
    prior_terms = [term for term in terms(bound).terms if term.name not in (roles.origins, roles.observed)]
    return sum_of_terms(
        prior_terms, bound, {name: value.astype(bound.sites[name].dtype) for name, value in values.items()}
    )


def with_placeholder_data(shapes: Any, data: PackedData) -> Bound:
    """The Bound with zeros in place of packed values: what depends on them is not computed."""
    shape = abstract_bound(shapes)
    zeros = (
        {name: jnp.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        for specs in (shape.observed, shape.present)
    )
    observed, present = zeros
    return replace(data.bound, observed=observed | data.bound.observed, present=present | data.bound.present)
