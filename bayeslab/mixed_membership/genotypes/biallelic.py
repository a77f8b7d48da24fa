"""Passes over genotypes of two alleles, written out so that loops over loci look at every copy once.

Products of small matrices would go through memory several times. Sums over individuals are sums of a few rows in single
precision, added up in the precision of the program: they are nearly always the same on any number of devices.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import mul

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.counts import NUM_VECTOR_LANES, sequential_sum
from bayeslab.mixed_membership.devices import ROWS_PER_PARTIAL_SUM, DeviceContext
from bayeslab.mixed_membership.genotypes.allele_counts import (
    GenotypeShape,
    group_rows,
    sum_to_individuals,
    to_rows,
    to_tiles,
)
from bayeslab.mixed_membership.genotypes.newton import upper_triangle

MAX_TERMS_PER_LOOP = 5
"""Most terms of a sum over populations that are added up in one loop."""
MIN_ALLELE_VARIANCE = 1e-9
"""Smallest product p (1 - p) that derivatives are divided by."""
MIN_COMPLEMENT_PROBABILITY = 2.0**-24
"""Smallest probability of the first allele: the distance to 1 of the next smaller number in single precision."""


def biallelic_ancestry_gradient(ancestry: Array, frequencies: Array, alleles: Array, shape: GenotypeShape) -> Array:
    """The gradient of the log likelihood by ancestry (individual, population), up to a constant of every individual.

    frequencies: (population, locus, allele).
    """
    return shape.devices.run(
        partial(_ancestry_gradient_on_device, shape=shape.part), ancestry, alleles, frequencies[..., 1]
    )[0]


def frequency_curvature(ancestry: Array, second_frequencies: Array, alleles: Array, shape: GenotypeShape) -> Array:
    """Minus the second derivatives of the log likelihood by frequencies of the second allele (population, locus), as
    upper triangles (pair, locus), see `symmetric_indices`."""
    return _from_locus_tiles(
        shape.devices.run(
            partial(_frequency_curvature_on_device, shape=shape.part), ancestry, alleles, second_frequencies
        )[1],
        shape,
    )


def frequency_gradient(ancestry: Array, second_frequencies: Array, alleles: Array, shape: GenotypeShape) -> Array:
    """The gradient of the log likelihood by frequencies of the second allele (population, locus)."""
    return _from_locus_tiles(
        shape.devices.run(
            partial(_frequency_gradient_on_device, shape=shape.part), ancestry, alleles, second_frequencies
        )[1],
        shape,
    )


def locus_log_likelihood_ratio(
    ancestry: tuple[Array, Array], frequencies: tuple[Array, Array], alleles: Array, shape: GenotypeShape
) -> Array:
    """Log likelihood ratios of loci (locus,), of the second ancestry and frequencies over the first."""
    tables = tuple(table[..., 1] for table in frequencies)
    run = partial(_locus_log_likelihood_ratio_on_device, shape=shape.part)
    return _from_locus_tiles(shape.devices.run(run, jnp.stack(ancestry, 1), alleles, *tables)[1], shape)


def _frequency_curvature_on_device(
    device: DeviceContext, ancestry: Array, alleles: Array, second_frequencies: Array, shape: GenotypeShape
) -> tuple[tuple[()], Array]:
    """The upper triangles of minus the second derivatives as tiles (tile, pair, locus)."""
    rows, columns = upper_triangle(shape.populations)

    def step(q: Array, shown: Array, table: Array) -> Array:
        num_second, num_first = _count_alleles(shown)
        p = _expected_frequency(q, table)
        steep = lax.optimization_barrier(num_second / p**2 + num_first / (1 - p) ** 2)
        return (q[:, rows] * q[:, columns]).T @ steep

    return (), device.total(_sum_over_rows(step, (len(rows),), ancestry, alleles, (second_frequencies,), shape))


def _frequency_gradient_on_device(
    device: DeviceContext, ancestry: Array, alleles: Array, second_frequencies: Array, shape: GenotypeShape
) -> tuple[tuple[()], Array]:
    """The gradient by frequencies as tiles (tile, population, locus)."""

    def step(q: Array, shown: Array, table: Array) -> Array:
        slope = lax.optimization_barrier(_derivative_by_probability(q, shown, table))
        return jnp.stack(
            [
                sequential_sum(shares[population] * derivatives for shares, derivatives in zip(q, slope, strict=True))
                for population in range(len(table))
            ]
        )

    return (), device.total(_sum_over_rows(step, (shape.populations,), ancestry, alleles, (second_frequencies,), shape))


def _locus_log_likelihood_ratio_on_device(
    device: DeviceContext, ancestry: Array, alleles: Array, before: Array, after: Array, shape: GenotypeShape
) -> tuple[tuple[()], Array]:
    """Log likelihood ratios as tiles (tile, locus). ancestry: (individual, 2, population), before and after."""

    def step(q: Array, shown: Array, *tables: Array) -> Array:
        before, after = (
            _pair_probability(_expected_frequency(q[:, which], table), shown) for which, table in enumerate(tables)
        )
        return jnp.log(reduce(mul, lax.optimization_barrier(after / before)))

    return (), device.total(_sum_over_rows(step, (), ancestry, alleles, (before, after), shape))


def _sum_over_rows(
    step: Callable[..., Array],
    size: tuple[int, ...],
    ancestry: Array,
    alleles: Array,
    tables: tuple[Array, ...],
    shape: GenotypeShape,
) -> Array:
    """Sums (tile, *size, locus) of a step over all rows.

    step: (ancestry of some rows, observed alleles, frequencies) -> (*size, locus).
    """
    rows = to_rows(ancestry, shape)

    def tile(given: tuple[Array, ...]) -> Array:
        *tables, alleles = given

        def further(total: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
            return total + step(*given, *tables), None

        nothing = jnp.zeros((*size, shape.width), jnp.result_type(float))
        return lax.scan(further, nothing, group_rows(ROWS_PER_PARTIAL_SUM, rows, alleles))[0]

    return lax.map(tile, (*(_to_locus_tiles(table, shape) for table in tables), alleles))


def _ancestry_gradient_on_device(
    _: DeviceContext, ancestry: Array, alleles: Array, frequencies: Array, shape: GenotypeShape
) -> tuple[Array, tuple[()]]:
    """The gradient by ancestry (individual, population) for the individuals of one device."""

    def tile(given: tuple[Array, Array]) -> Array:
        table, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            slope = lax.optimization_barrier(_derivative_by_probability(*given, table))
            parts = (sequential_sum((slope * frequencies).reshape(NUM_VECTOR_LANES, -1)) for frequencies in table)
            return None, jnp.stack([lax.optimization_barrier(part).sum() for part in parts])

        return lax.scan(step, None, group_rows(1, to_rows(ancestry, shape), alleles))[1]

    return sum_to_individuals(lax.map(tile, (_to_locus_tiles(frequencies, shape), alleles)).sum(0), shape), ()


def _derivative_by_probability(q: Array, observed_allele: Array, table: Array) -> Array:
    """Derivatives (row, locus) of the log likelihood by the probability of the second allele."""
    num_second, num_first = _count_alleles(observed_allele)
    p = _expected_frequency(q, table)
    return (num_second - (num_second + num_first) * p) / jnp.maximum(p * (1 - p), MIN_ALLELE_VARIANCE)


def _count_alleles(observed_allele: Array) -> tuple[Array, Array]:
    """Numbers of copies (row, locus) that show the second allele, and that show the first."""
    is_second, is_first = (
        [(copy == allele).astype(jnp.float32) for copy in observed_allele.swapaxes(0, 1)] for allele in (1, 0)
    )
    return sequential_sum(is_second), sequential_sum(is_first)


def _expected_frequency(q: Array, table: Array) -> Array:
    """Probabilities (row, locus) of the second allele, summed in parts: longer sums in one loop are not vectorised."""
    terms = [q[:, population, None] * frequencies for population, frequencies in enumerate(table)]
    total = sequential_sum(terms[:MAX_TERMS_PER_LOOP])
    for first in range(MAX_TERMS_PER_LOOP, len(terms), MAX_TERMS_PER_LOOP):
        total = lax.optimization_barrier(total + sequential_sum(terms[first : first + MAX_TERMS_PER_LOOP]))
    return total


def _pair_probability(p: Array, observed_allele: Array) -> Array:
    """The probability (row, locus) of the observed alleles of both copies. p: that of the second allele."""
    complement = jnp.maximum(1 - p, MIN_COMPLEMENT_PROBABILITY)
    first_copy, second_copy = (
        jnp.where(copy == 1, p, jnp.where(copy == 0, complement, 1.0)) for copy in observed_allele.swapaxes(0, 1)
    )
    return first_copy * second_copy


def _to_locus_tiles(table: Array, shape: GenotypeShape) -> Array:
    """A table (population, locus) as tiles (tile, population, locus)."""
    return to_tiles(table[..., None], shape)[:, :, 0]


def _from_locus_tiles(tiles: Array, shape: GenotypeShape) -> Array:
    """Tiles (tile, ..., locus) as (..., locus)."""
    lanes = jnp.moveaxis(tiles, 0, -2)
    return lanes.reshape(*lanes.shape[:-2], -1)[..., : shape.loci]
