"""Individuals in batches of equal size, of which a step of stochastic inference takes one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, pack
from bayeslab.mixed_membership.likelihood import Likelihood
from bayeslab.mixed_membership.packed_data import PackedData, without_observed
from bayeslab.mixed_membership.recognition import Membership, individuals_of_tokens
from bayeslab.mixed_membership.tokens.alternating_start import alternating_start
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape, pack_tokens
from bayeslab.programs.program import Bound


def largest_batch_shape(roles: Membership, bound: Bound, num_batches: int) -> GenotypeShape | TokenShape:
    """The shape of the largest batch. Individual i is number i // parts of batch i % parts."""
    shape = roles.shape
    size = -(-shape.individuals // num_batches)
    if isinstance(shape, TokenShape):
        batch_number = np.asarray(jax.jit(partial(individuals_of_tokens, roles))(bound)) % num_batches
        return shape._replace(individuals=size, tokens=int(np.bincount(batch_number).max()))
    return shape._replace(individuals=size)


def pack_batches(
    roles: Membership, bound: Bound, batch_shape: GenotypeShape | TokenShape, num_batches: int
) -> PackedData:
    """The packed data of all batches, with packed arrays (batch, ...). batch_shape: the shape of a batch."""
    name = roles.observed
    observed = bound.observed[name]
    present = bound.present.get(name, jnp.ones(observed.shape, bool))

    def of_tokens(number: Array) -> Array:
        assert isinstance(batch_shape, TokenShape)
        individuals = individuals_of_tokens(roles, bound)
        return pack_tokens(
            observed, present & (individuals % num_batches == number), individuals // num_batches, batch_shape
        )

    def of_genotypes(number: Array) -> Array:
        assert isinstance(batch_shape, GenotypeShape)
        individual = jnp.arange(batch_shape.individuals) * num_batches + number
        row = jnp.minimum(individual, len(observed) - 1)
        is_present = present[row] & (individual < len(observed)).reshape(-1, *(1 for _ in observed.shape[1:]))
        return pack(observed[row], is_present, batch_shape)

    pack_one = of_tokens if isinstance(batch_shape, TokenShape) else of_genotypes
    return PackedData(without_observed(roles, bound), lax.map(pack_one, jnp.arange(num_batches)))


def start_from_batches(
    key: Array, packed_batches: Array, batch_shape: GenotypeShape | TokenShape, prior: Priors
) -> Array:
    """Components (population, locus, allele) near a mode of the likelihood of the tokens of all batches, or of the
    genotypes of one batch.

    packed_batches: (batch, ...). batch_shape: the shape of a batch.
    prior: with weights (batch, individual, population).
    """
    num_batches, size = prior.weights.shape[:2]
    if isinstance(batch_shape, TokenShape):
        document = (
            packed_batches[:, 0, :, 0] + jnp.arange(num_batches, dtype=packed_batches.dtype)[:, None, None] * size
        )
        document = jnp.where(packed_batches[:, 0, :, 0] < size, document, num_batches * size)
        merged = packed_batches[:, 0].at[:, :, 0].set(document).reshape(1, -1, *packed_batches.shape[3:])
        return alternating_start(key, merged, batch_shape._replace(individuals=num_batches * size), prior.is_allele)[1]
    key, number_key = jax.random.split(key)
    number = jax.random.randint(number_key, (), 0, num_batches)
    likelihood = Likelihood(packed_batches[number], batch_shape, prior._replace(weights=prior.weights[number]))
    return likelihood.near_mode(key)[1]


def split_into_batches(values: Array, num_batches: int) -> Array:
    """Values (individual, ...) as (batch, individual, ...), padded with those of the last individual."""
    size = -(-len(values) // num_batches)
    padded = jnp.pad(values, ((0, size * num_batches - len(values)), *((0, 0),) * (values.ndim - 1)), mode="edge")
    return padded.reshape(size, num_batches, *values.shape[1:]).swapaxes(0, 1)


def join_batches(values: Array, individuals: int) -> Array:
    """Values (batch, individual, ...) as (individual, ...), without those that pad."""
    return values.swapaxes(0, 1).reshape(-1, *values.shape[2:])[:individuals]
