"""Individuals in parts of equal size, of which a step of stochastic inference takes one."""

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
    """Of the largest part. Individual i is number i // parts of part i % parts."""
    shape = found.shape
    size = -(-shape.individuals // parts)
    if isinstance(shape, Tokens):
        part = np.asarray(jax.jit(partial(individuals_of, found))(bound)) % parts
        return shape._replace(individuals=size, tokens=int(np.bincount(part).max()))
    return shape._replace(individuals=size)


def counted_parts(found: Membership, bound: Bound, part: Shape | Tokens, parts: int) -> Counted:
    """What is observed, packed (part, ...)."""
    name = found.observed
    observed = bound.observed[name]
    present = bound.present.get(name, jnp.ones(observed.shape, bool))

    def of_tokens(number: Array) -> Array:
        assert isinstance(part, Tokens)
        individuals = individuals_of(found, bound)
        return packed_tokens(observed, present & (individuals % parts == number), individuals // parts, part)

    def of_genotypes(number: Array) -> Array:
        assert isinstance(part, Shape)
        place = jnp.arange(part.individuals) * parts + number
        at = jnp.minimum(place, len(observed) - 1)
        there = present[at] & (place < len(observed)).reshape(-1, *(1 for _ in observed.shape[1:]))
        return packed(observed[at], there, part)

    each = of_tokens if isinstance(part, Tokens) else of_genotypes
    return Counted(without_observed(found, bound), lax.map(each, jnp.arange(parts)))


def start_of_parts(key: Array, packed: Array, part: Shape | Tokens, prior: Priors) -> Array:
    """Components (population, locus, allele) near a maximum of the likelihood: of the tokens of all parts, of the
    genotypes of one. prior: with weights (part, individual, population)."""
    parts, size = prior.weights.shape[:2]
    if isinstance(part, Tokens):
        document = packed[:, 0, :, 0] + jnp.arange(parts, dtype=packed.dtype)[:, None, None] * size
        document = jnp.where(packed[:, 0, :, 0] < size, document, parts * size)
        merged = packed[:, 0].at[:, :, 0].set(document).reshape(1, -1, *packed.shape[3:])
        return alternating_start(key, merged, part._replace(individuals=parts * size), prior.real)[1]
    key, first = jax.random.split(key)
    number = jax.random.randint(first, (), 0, parts)
    one = Likeliest(packed[number], part, prior._replace(weights=prior.weights[number]))
    return one.near_top(key)[1]


def in_parts(values: Array, parts: int) -> Array:
    """Values (individual, ...) as (part, individual, ...); those that pad are of the last individual."""
    size = -(-len(values) // parts)
    padded = jnp.pad(values, ((0, size * parts - len(values)), *((0, 0),) * (values.ndim - 1)), mode="edge")
    return padded.reshape(size, parts, *values.shape[1:]).swapaxes(0, 1)


def of_individuals(values: Array, individuals: int) -> Array:
    """Values (part, individual, ...) as (individual, ...)."""
    return values.swapaxes(0, 1).reshape(-1, *values.shape[2:])[:individuals]
