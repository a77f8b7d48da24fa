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

from bayeslab.mixed_membership.devices import Here
from bayeslab.mixed_membership.genotypes.allele_counts import (
    MISSING,
    STEP,
    Shape,
    individual_sums,
    loci_of,
    rows_of,
    tiles_of,
    together,
)
from bayeslab.mixed_membership.genotypes.newton import inside, projected

MORE = 8
"""Directions of the subspace beyond those wanted."""
ITERATIONS = 3
"""Subspace iterations, of two passes over the data each."""
ALTERNATIONS = 100
"""Alternating least squares steps, without a pass over the data."""
SHRINKAGE = 1e-4
"""Ridge of the least squares steps, added to mean squares."""


def spectral_start(key: Array, alleles: Array, shape: Shape, real: Array) -> tuple[Array, Array]:
    """Ancestry (individual, population) and frequencies (population, locus, allele) near the maximum.

    real: which alleles a locus has (locus, allele).
    """
    populations, keys = shape.populations, jax.random.split(key)
    run, device_shape = shape.devices.run, shape.part
    onto_loci, onto_individuals = (
        partial(_onto_loci, shape=device_shape),
        partial(_onto_individuals, shape=device_shape),
    )
    _, mean = run(partial(_means, shape=device_shape), jnp.zeros(shape.individuals), alleles)
    size = min(populations - 1 + MORE, shape.individuals)
    basis = jax.random.normal(keys[0], (shape.individuals, size), jnp.float32)

    def iterate(_: int, basis: Array) -> Array:
        return jnp.linalg.qr(run(onto_individuals, basis, alleles, run(onto_loci, basis, alleles, mean)[1], mean)[0])[0]

    basis = lax.fori_loop(0, ITERATIONS, iterate, basis)
    _, loadings = run(onto_loci, basis, alleles, mean)  # (direction, locus, allele)
    flat = loadings.reshape(size, -1)
    directions = jnp.linalg.eigh(flat @ flat.T)[1][:, ::-1][:, : populations - 1]
    left = jnp.concatenate([jnp.ones((shape.individuals, 1), jnp.float32), basis @ directions], 1)
    right = jnp.concatenate([mean.reshape(1, -1), directions.T @ flat])
    shares = jax.random.exponential(keys[1], (shape.individuals, populations), jnp.float32)
    ancestry = (shares / shares.sum(1, keepdims=True)).astype(jnp.float32)
    ridge = SHRINKAGE * jnp.eye(populations, dtype=jnp.float32)

    def frequencies_of(ancestry: Array) -> Array:
        square = ancestry.T @ ancestry / shape.individuals
        raw = jnp.linalg.solve(square + ridge, ancestry.T @ left / shape.individuals) @ right
        tables = jnp.where(real, raw.reshape(populations, *real.shape), -1e6)
        return jnp.moveaxis(projected(jnp.moveaxis(tables, 2, 0)), 0, 2)

    def alternate(_: int, ancestry: Array) -> Array:
        flat = frequencies_of(ancestry).reshape(populations, -1)
        square = flat @ flat.T / shape.loci
        raw = jnp.linalg.solve(square + ridge, flat @ right.T / shape.loci @ left.T)
        return projected(raw).T

    ancestry = lax.fori_loop(0, ALTERNATIONS, alternate, ancestry)
    pseudo_share = 0.5 / shape.loci
    return inside(ancestry + pseudo_share), inside(frequencies_of(ancestry) + pseudo_share * mean, real)


def _means(here: Here, _: Array, alleles: Array, shape: Shape) -> tuple[tuple[()], Array]:
    """The share of every allele among the copies that are not missing, (locus, allele)."""

    def tile(alleles: Array) -> Array:
        def step(counts: Array, shown: Array) -> tuple[Array, None]:
            return counts + jnp.stack(
                [(shown == j).astype(jnp.float32).sum((0, 1)) for j in range(shape.alleles)]
            ), None

        nothing = jnp.zeros((shape.alleles, shape.width), jnp.float32)
        return lax.scan(step, nothing, alleles.reshape(-1, STEP, *alleles.shape[2:]))[0]

    counts = here.total(loci_of(lax.map(tile, alleles)[:, None], shape)[0])
    return (), counts / jnp.maximum(counts.sum(-1, keepdims=True), 1.0)


def _onto_loci(here: Here, basis: Array, alleles: Array, mean: Array, shape: Shape) -> tuple[tuple[()], Array]:
    """Products (direction, locus, allele) of centred genotypes and a basis (individual, direction)."""
    rows = rows_of(basis, shape)

    def tile(given: tuple[Array, Array]) -> Array:
        mean, alleles = given

        def step(sums: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
            basis, observed_allele = given
            counts, num_present = _counts(observed_allele, shape)
            centred = [count - num_present * table for count, table in zip(counts, mean, strict=True)]
            return sums + jnp.stack(
                [basis.T @ lax.optimization_barrier(centred_counts) for centred_counts in centred], 1
            ), None

        steps = together(STEP, rows, alleles)
        nothing = jnp.zeros((basis.shape[1], *mean.shape), jnp.float32)
        return lax.scan(step, nothing, steps)[0]

    return (), here.total(loci_of(lax.map(tile, (tiles_of(mean[None], shape)[:, 0], alleles)), shape))


def _onto_individuals(
    here: Here, basis: Array, alleles: Array, loadings: Array, mean: Array, shape: Shape
) -> tuple[Array, tuple[()]]:
    """Products (individual, direction) of centred genotypes and loadings (direction, locus, allele)."""

    def tile(given: tuple[Array, ...]) -> Array:
        loadings, mean, alleles = given

        def step(_: None, shown: Array) -> tuple[None, Array]:
            counts, num_present = _counts(shown, shape)
            centred = [count - num_present * table for count, table in zip(counts, mean, strict=True)]
            parts = [
                lax.optimization_barrier(centred_counts) @ loadings[:, j].T for j, centred_counts in enumerate(centred)
            ]
            return None, sum(parts[1:], parts[0])

        return lax.scan(step, None, alleles.reshape(-1, STEP, *alleles.shape[2:]))[1]

    tiles = tiles_of(loadings, shape), tiles_of(mean[None], shape)[:, 0], alleles
    return individual_sums(lax.map(tile, tiles).sum(0), shape), ()


def _counts(shown: Array, shape: Shape) -> tuple[list[Any], Array]:
    """Copies (row, locus) of every allele among two (row, 2, locus), and those that are not missing, both over the
    number of copies of an individual."""
    counts = [(shown == allele).astype(jnp.float32).sum(1) / shape.copies for allele in range(shape.alleles)]
    return counts, (shown != MISSING).astype(jnp.float32).sum(1) / shape.copies
