"""Flat coordinates of weights and components, for ascents."""

import jax.numpy as jnp
from jax import Array

from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape


def to_coordinates(weights: Array, components: Array) -> Array:
    """Flat coordinates of weights and components."""
    return jnp.concatenate([weights.ravel(), components.ravel()])


def from_coordinates(coordinates: Array, shape: GenotypeShape | TokenShape) -> tuple[Array, Array]:
    """Weights (individual, population) and components (population, locus, allele) of flat coordinates."""
    weights, components = jnp.split(coordinates, [shape.individuals * shape.populations])
    size = (shape.populations, shape.loci, shape.alleles)
    return weights.reshape(shape.individuals, shape.populations), components.reshape(size)
