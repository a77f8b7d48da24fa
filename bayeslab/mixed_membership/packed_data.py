"""The packed data of a Bound of mixed membership, and the priors of its weights and components."""

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
    """The data that passes need, packed once a fit.

    bound: without the observed alleles or words. packed: these, see `packed` and `packed_tokens`.
    blocks: these in blocks of words, where origins are drawn so.
    """

    bound: Bound
    packed: Array
    blocks: Blocks | None = None


def counted(found: Membership, bound: Bound) -> Counted:
    """The packed data, which all chains share."""
    name, shape = found.observed, found.shape
    observed, present = bound.observed[name], bound.present.get(name)
    if isinstance(shape, Tokens):
        data = packed_tokens(observed, present, individuals_of(found, bound), shape)
    else:
        data = packed(observed, present, shape)
    return Counted(without_observed(found, bound), data)


def counted_in_blocks(found: Membership, bound: Bound) -> Counted:
    """The packed data, with blocks of words where origins are drawn in these."""
    data, name = counted(found, bound), found.observed
    if found.known or not isinstance(found.shape, Tokens) or not pays(found.shape):
        return data
    blocks = in_blocks(bound.observed[name], bound.present.get(name), individuals_of(found, bound), found.shape)
    return data._replace(blocks=blocks)


def without_observed(found: Membership, bound: Bound) -> Bound:
    """The Bound without the observed values that are packed."""
    parts = (
        {name: value for name, value in values.items() if name != found.observed}
        for values in (bound.observed, bound.present)
    )
    observed, present = parts
    return replace(bound, observed=observed, present=present)


def priors(found: Membership, shapes: Any, data: Counted, others: Values) -> Priors:
    """Priors of weights and components at values of the other sites. shapes: the structure of the Bound."""
    size = found.shape
    weights, components, is_allele = concentrations(found, shapes, data, others)
    weight_concentrations = jnp.broadcast_to(weights, (size.individuals, size.populations)).astype(jnp.float32)
    table = (size.populations, size.loci, size.alleles)
    if components is None:
        return Priors(weight_concentrations, jnp.ones(table, jnp.float32), is_allele)
    return Priors(weight_concentrations, jnp.broadcast_to(components, table).astype(jnp.float32), is_allele)


def concentrations(found: Membership, shapes: Any, data: Counted, others: Values) -> tuple[Array, Array | None, Array]:
    """Concentrations of weights (..., population) and of components (..., locus, allele), None where those are known,
    and which alleles a locus has (locus, allele).

    They are in the precision of the program, and have the shapes that it gives them.
    """
    bound, size = whole(shapes, data), found.shape
    site_priors = terms(bound).priors
    weights = unwrapped(site_priors[found.weights].distribution(bound, others)).concentration
    table = (size.populations, size.loci, size.alleles)
    if found.known:
        return weights, None, (bound.observed[found.components] > 0).reshape(table).any(0)
    components = unwrapped(site_priors[found.components].distribution(bound, others))
    is_allele = jnp.ones(table, bool)
    if isinstance(components, PaddedDirichlet):
        is_allele = jnp.broadcast_to(components.real, table)
    concentration = jnp.asarray(components.concentration)
    if concentration.ndim < len(size.table):
        concentration = jnp.broadcast_to(concentration, size.table)
    return weights, concentration.reshape(-1, size.loci, size.alleles), is_allele[0]


def log_prior(found: Membership, shapes: Any, data: Counted, values: Values) -> Array:
    """The log prior density of weights, components and other sites."""
    bound = whole(shapes, data)
    prior_terms = [term for term in terms(bound).terms if term.name not in (found.origins, found.observed)]
    return total(prior_terms, bound, {name: value.astype(bound.sites[name].dtype) for name, value in values.items()})


def whole(shapes: Any, data: Counted) -> Bound:
    """The Bound with zeros in place of packed values: what depends on them is not computed."""
    shape = blueprint(shapes)
    zeros = (
        {name: jnp.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        for specs in (shape.observed, shape.present)
    )
    observed, present = zeros
    return replace(data.bound, observed=observed | data.bound.observed, present=present | data.bound.present)
