"""Individuals in batches of equal size, of which a step of stochastic inference takes one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import Shape, packed
from bayeslab.mixed_membership.likelihood import Likeliest
from bayeslab.mixed_membership.packed_data import Counted, without_observed
from bayeslab.mixed_membership.recognition import Membership, individuals_of
from bayeslab.mixed_membership.tokens.alternating_start import alternating_start
from bayeslab.mixed_membership.tokens.topic_counts import Tokens, packed_tokens
from bayeslab.programs.program import Bound


def shape_of_part(found: Membership, bound: Bound, parts: int) -> Shape | Tokens:
    """The shape of the largest batch. Individual i is number i // parts of batch i % parts."""
    shape = found.shape
    size = -(-shape.individuals // parts)
    if isinstance(shape, Tokens):
        batch_number = np.asarray(jax.jit(partial(individuals_of, found))(bound)) % parts
        return shape._replace(individuals=size, tokens=int(np.bincount(batch_number).max()))
    return shape._replace(individuals=size)


def counted_parts(found: Membership, bound: Bound, part: Shape | Tokens, parts: int) -> Counted:
    """The packed data of all batches, with packed arrays (batch, ...). part: the shape of a batch."""
    name = found.observed
    observed = bound.observed[name]
    present = bound.present.get(name, jnp.ones(observed.shape, bool))

    def of_tokens(number: Array) -> Array:
        assert isinstance(part, Tokens)
        individuals = individuals_of(found, bound)
        return packed_tokens(observed, present & (individuals % parts == number), individuals // parts, part)

    def of_genotypes(number: Array) -> Array:
        assert isinstance(part, Shape)
        individual = jnp.arange(part.individuals) * parts + number
        row = jnp.minimum(individual, len(observed) - 1)
        is_present = present[row] & (individual < len(observed)).reshape(-1, *(1 for _ in observed.shape[1:]))
        return packed(observed[row], is_present, part)

    pack_one = of_tokens if isinstance(part, Tokens) else of_genotypes
    return Counted(without_observed(found, bound), lax.map(pack_one, jnp.arange(parts)))


def start_of_parts(key: Array, packed: Array, part: Shape | Tokens, prior: Priors) -> Array:
    """Components (population, locus, allele) near a mode of the likelihood of the tokens of all batches, or of the
    genotypes of one batch.

    packed: (batch, ...). part: the shape of a batch.
    prior: with weights (batch, individual, population).
    """
    num_batches, size = prior.weights.shape[:2]
    if isinstance(part, Tokens):
        document = packed[:, 0, :, 0] + jnp.arange(num_batches, dtype=packed.dtype)[:, None, None] * size
        document = jnp.where(packed[:, 0, :, 0] < size, document, num_batches * size)
        merged = packed[:, 0].at[:, :, 0].set(document).reshape(1, -1, *packed.shape[3:])
        return alternating_start(key, merged, part._replace(individuals=num_batches * size), prior.real)[1]
    key, number_key = jax.random.split(key)
    number = jax.random.randint(number_key, (), 0, num_batches)
    likelihood = Likeliest(packed[number], part, prior._replace(weights=prior.weights[number]))
    return likelihood.near_top(key)[1]


def in_parts(values: Array, parts: int) -> Array:
    """Values (individual, ...) as (batch, individual, ...), padded with those of the last individual."""
    size = -(-len(values) // parts)
    padded = jnp.pad(values, ((0, size * parts - len(values)), *((0, 0),) * (values.ndim - 1)), mode="edge")
    return padded.reshape(size, parts, *values.shape[1:]).swapaxes(0, 1)


def of_individuals(values: Array, individuals: int) -> Array:
    """Values (batch, individual, ...) as (individual, ...), without those that pad."""
    return values.swapaxes(0, 1).reshape(-1, *values.shape[2:])[:individuals]
