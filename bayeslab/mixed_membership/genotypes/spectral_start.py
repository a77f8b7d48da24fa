"""A start for ancestry and frequencies near the maximum: a truncated singular value decomposition, then simplices.

Expected genotypes are ancestry times frequencies, of rank K. The leading singular vectors of the centred genotypes are
found by subspace iteration, and factored by alternating least squares onto the simplices (Cabreros and Storey 2019,
Genetics 212:1009), all without another copy of the genotypes.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.devices import DeviceContext
from bayeslab.mixed_membership.genotypes.allele_counts import (
    MISSING_ALLELE,
    ROWS_PER_STEP,
    GenotypeShape,
    from_tiles,
    group_rows,
    sum_to_individuals,
    to_rows,
    to_tiles,
)
from bayeslab.mixed_membership.genotypes.newton import clip_to_simplex, project_to_simplex

NUM_EXTRA_DIRECTIONS = 8
"""Directions of the subspace beyond those wanted."""
NUM_SUBSPACE_ITERATIONS = 3
"""Subspace iterations, of two passes over the data each."""
NUM_ALTERNATIONS = 100
"""Alternating least squares steps, without a pass over the data."""
RIDGE_WEIGHT = 1e-4
"""Ridge of the least squares steps, added to mean squares."""


def spectral_start(key: Array, alleles: Array, shape: GenotypeShape, is_allele: Array) -> tuple[Array, Array]:
    """Ancestry (individual, population) and frequencies (population, locus, allele) near the maximum.

    is_allele: which alleles a locus has (locus, allele).
    """
    populations, keys = shape.populations, jax.random.split(key)
    run, device_shape = shape.devices.run, shape.part
    onto_loci, onto_individuals = (
        partial(_project_onto_loci, shape=device_shape),
        partial(_project_onto_individuals, shape=device_shape),
    )
    _, mean = run(partial(_mean_frequencies, shape=device_shape), jnp.zeros(shape.individuals), alleles)
    size = min(populations - 1 + NUM_EXTRA_DIRECTIONS, shape.individuals)
    basis = jax.random.normal(keys[0], (shape.individuals, size), jnp.float32)

    def iterate(_: int, basis: Array) -> Array:
        return jnp.linalg.qr(run(onto_individuals, basis, alleles, run(onto_loci, basis, alleles, mean)[1], mean)[0])[0]

    basis = lax.fori_loop(0, NUM_SUBSPACE_ITERATIONS, iterate, basis)
    _, loadings = run(onto_loci, basis, alleles, mean)  # (direction, locus, allele)
    flat = loadings.reshape(size, -1)
    directions = jnp.linalg.eigh(flat @ flat.T)[1][:, ::-1][:, : populations - 1]
    left = jnp.concatenate([jnp.ones((shape.individuals, 1), jnp.float32), basis @ directions], 1)
    right = jnp.concatenate([mean.reshape(1, -1), directions.T @ flat])
    shares = jax.random.exponential(keys[1], (shape.individuals, populations), jnp.float32)
    ancestry = (shares / shares.sum(1, keepdims=True)).astype(jnp.float32)
    ridge = RIDGE_WEIGHT * jnp.eye(populations, dtype=jnp.float32)

    def frequencies_of(ancestry: Array) -> Array:
        square = ancestry.T @ ancestry / shape.individuals
        raw = jnp.linalg.solve(square + ridge, ancestry.T @ left / shape.individuals) @ right
        tables = jnp.where(is_allele, raw.reshape(populations, *is_allele.shape), -1e6)
        return jnp.moveaxis(project_to_simplex(jnp.moveaxis(tables, 2, 0)), 0, 2)

    def alternate(_: int, ancestry: Array) -> Array:
        flat = frequencies_of(ancestry).reshape(populations, -1)
        square = flat @ flat.T / shape.loci
        raw = jnp.linalg.solve(square + ridge, flat @ right.T / shape.loci @ left.T)
        return project_to_simplex(raw).T

    ancestry = lax.fori_loop(0, NUM_ALTERNATIONS, alternate, ancestry)
    pseudo_share = 0.5 / shape.loci
    return clip_to_simplex(ancestry + pseudo_share), clip_to_simplex(
        frequencies_of(ancestry) + pseudo_share * mean, is_allele
    )


def _mean_frequencies(device: DeviceContext, _: Array, alleles: Array, shape: GenotypeShape) -> tuple[tuple[()], Array]:
    """The share of every allele among the copies that are not missing, (locus, allele)."""

    def tile(alleles: Array) -> Array:
        def step(counts: Array, shown: Array) -> tuple[Array, None]:
            return counts + jnp.stack(
                [(shown == j).astype(jnp.float32).sum((0, 1)) for j in range(shape.alleles)]
            ), None

        nothing = jnp.zeros((shape.alleles, shape.width), jnp.float32)
        return lax.scan(step, nothing, alleles.reshape(-1, ROWS_PER_STEP, *alleles.shape[2:]))[0]

    counts = device.total(from_tiles(lax.map(tile, alleles)[:, None], shape)[0])
    return (), counts / jnp.maximum(counts.sum(-1, keepdims=True), 1.0)


def _project_onto_loci(
    device: DeviceContext, basis: Array, alleles: Array, mean: Array, shape: GenotypeShape
) -> tuple[tuple[()], Array]:
    """Products (direction, locus, allele) of centred genotypes and a basis (individual, direction)."""
    rows = to_rows(basis, shape)

    def tile(given: tuple[Array, Array]) -> Array:
        mean, alleles = given

        def step(sums: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
            basis, observed_allele = given
            counts, num_present = _allele_shares(observed_allele, shape)
            centred = [count - num_present * table for count, table in zip(counts, mean, strict=True)]
            return sums + jnp.stack(
                [basis.T @ lax.optimization_barrier(centred_counts) for centred_counts in centred], 1
            ), None

        steps = group_rows(ROWS_PER_STEP, rows, alleles)
        nothing = jnp.zeros((basis.shape[1], *mean.shape), jnp.float32)
        return lax.scan(step, nothing, steps)[0]

    return (), device.total(from_tiles(lax.map(tile, (to_tiles(mean[None], shape)[:, 0], alleles)), shape))


def _project_onto_individuals(
    device: DeviceContext, basis: Array, alleles: Array, loadings: Array, mean: Array, shape: GenotypeShape
) -> tuple[Array, tuple[()]]:
    """Products (individual, direction) of centred genotypes and loadings (direction, locus, allele)."""

    def tile(given: tuple[Array, ...]) -> Array:
        loadings, mean, alleles = given

        def step(_: None, shown: Array) -> tuple[None, Array]:
            counts, num_present = _allele_shares(shown, shape)
            centred = [count - num_present * table for count, table in zip(counts, mean, strict=True)]
            parts = [
                lax.optimization_barrier(centred_counts) @ loadings[:, j].T for j, centred_counts in enumerate(centred)
            ]
            return None, sum(parts[1:], parts[0])

        return lax.scan(step, None, alleles.reshape(-1, ROWS_PER_STEP, *alleles.shape[2:]))[1]

    tiles = to_tiles(loadings, shape), to_tiles(mean[None], shape)[:, 0], alleles
    return sum_to_individuals(lax.map(tile, tiles).sum(0), shape), ()


def _allele_shares(observed_allele: Array, shape: GenotypeShape) -> tuple[list[Any], Array]:
    """Copies (row, locus) of every allele among two (row, 2, locus), and those that are not missing, both over the
    number of copies of an individual."""
    counts = [(observed_allele == allele).astype(jnp.float32).sum(1) / shape.copies for allele in range(shape.alleles)]
    return counts, (observed_allele != MISSING_ALLELE).astype(jnp.float32).sum(1) / shape.copies
