"""Passes over genotypes of two alleles, written out so that loops over loci look at every copy once.

Products of small matrices would go through memory several times. Sums over individuals are sums of a few rows in single
precision, added up in the precision of the program: they are nearly always the same on any number of devices.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import mul

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.counts import LANES, added
from bayeslab.mixed_membership.devices import ROWS, Here
from bayeslab.mixed_membership.genotypes.allele_counts import Shape, individual_sums, rows_of, tiles_of, together
from bayeslab.mixed_membership.genotypes.newton import pairs

TERMS = 5
"""Most terms of a sum over populations that are added up in one loop."""
LEAST = 1e-9
"""Smallest product p (1 - p) that derivatives are divided by."""
NEAREST = 2.0**-24
"""Smallest probability of the first allele: the distance to 1 of the next smaller number in single precision."""


def slopes_of_individuals(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> Array:
    """The gradient of the log likelihood by ancestry (individual, population), up to a constant of every individual.

    frequencies: (population, locus, allele).
    """
    return shape.devices.run(partial(_of_individuals, shape=shape.part), ancestry, alleles, frequencies[..., 1])[0]


def curvature_of_loci(ancestry: Array, at: Array, alleles: Array, shape: Shape) -> Array:
    """Minus the second derivatives of the log likelihood by frequencies of the second allele (population, locus), as
    upper triangles (pair, locus), see `square`."""
    return _lanes(shape.devices.run(partial(_curvature, shape=shape.part), ancestry, alleles, at)[1], shape)


def slopes_of_loci(ancestry: Array, at: Array, alleles: Array, shape: Shape) -> Array:
    """The gradient of the log likelihood by frequencies of the second allele (population, locus)."""
    return _lanes(shape.devices.run(partial(_slopes, shape=shape.part), ancestry, alleles, at)[1], shape)


def gains_of_loci(
    ancestry: tuple[Array, Array], frequencies: tuple[Array, Array], alleles: Array, shape: Shape
) -> Array:
    """Log likelihood ratios of loci (locus,), of the second ancestry and frequencies over the first."""
    tables = tuple(table[..., 1] for table in frequencies)
    run = partial(_gains, shape=shape.part)
    return _lanes(shape.devices.run(run, jnp.stack(ancestry, 1), alleles, *tables)[1], shape)


def _curvature(here: Here, ancestry: Array, alleles: Array, at: Array, shape: Shape) -> tuple[tuple[()], Array]:
    """The upper triangles of minus the second derivatives as tiles (tile, pair, locus)."""
    rows, columns = pairs(shape.populations)

    def step(q: Array, shown: Array, table: Array) -> Array:
        num_second, num_first = _numbers(shown)
        p = _mean(q, table)
        steep = lax.optimization_barrier(num_second / p**2 + num_first / (1 - p) ** 2)
        return (q[:, rows] * q[:, columns]).T @ steep

    return (), here.total(_summed(step, (len(rows),), ancestry, alleles, (at,), shape))


def _slopes(here: Here, ancestry: Array, alleles: Array, at: Array, shape: Shape) -> tuple[tuple[()], Array]:
    """The gradient by frequencies as tiles (tile, population, locus)."""

    def step(q: Array, shown: Array, table: Array) -> Array:
        slope = lax.optimization_barrier(_slope(q, shown, table))
        return jnp.stack(
            [
                added(shares[population] * derivatives for shares, derivatives in zip(q, slope, strict=True))
                for population in range(len(table))
            ]
        )

    return (), here.total(_summed(step, (shape.populations,), ancestry, alleles, (at,), shape))


def _gains(
    here: Here, ancestry: Array, alleles: Array, before: Array, after: Array, shape: Shape
) -> tuple[tuple[()], Array]:
    """Log likelihood ratios as tiles (tile, locus). ancestry: (individual, 2, population), before and after."""

    def step(q: Array, shown: Array, *tables: Array) -> Array:
        before, after = (_probability(_mean(q[:, which], table), shown) for which, table in enumerate(tables))
        return jnp.log(reduce(mul, lax.optimization_barrier(after / before)))

    return (), here.total(_summed(step, (), ancestry, alleles, (before, after), shape))


def _summed(
    step: Callable[..., Array],
    size: tuple[int, ...],
    ancestry: Array,
    alleles: Array,
    tables: tuple[Array, ...],
    shape: Shape,
) -> Array:
    """Sums (tile, *size, locus) of a step over all rows.

    step: (ancestry of some rows, observed alleles, frequencies) -> (*size, locus).
    """
    rows = rows_of(ancestry, shape)

    def tile(given: tuple[Array, ...]) -> Array:
        *tables, alleles = given

        def further(total: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
            return total + step(*given, *tables), None

        nothing = jnp.zeros((*size, shape.width), jnp.result_type(float))
        return lax.scan(further, nothing, together(ROWS, rows, alleles))[0]

    return lax.map(tile, (*(_tiles(table, shape) for table in tables), alleles))


def _of_individuals(
    _: Here, ancestry: Array, alleles: Array, frequencies: Array, shape: Shape
) -> tuple[Array, tuple[()]]:
    """The gradient by ancestry (individual, population) for the individuals of one device."""

    def tile(given: tuple[Array, Array]) -> Array:
        table, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            slope = lax.optimization_barrier(_slope(*given, table))
            parts = (added((slope * frequencies).reshape(LANES, -1)) for frequencies in table)
            return None, jnp.stack([lax.optimization_barrier(part).sum() for part in parts])

        return lax.scan(step, None, together(1, rows_of(ancestry, shape), alleles))[1]

    return individual_sums(lax.map(tile, (_tiles(frequencies, shape), alleles)).sum(0), shape), ()


def _slope(q: Array, shown: Array, table: Array) -> Array:
    """Derivatives (row, locus) of the log likelihood by the probability of the second allele."""
    num_second, num_first = _numbers(shown)
    p = _mean(q, table)
    return (num_second - (num_second + num_first) * p) / jnp.maximum(p * (1 - p), LEAST)


def _numbers(shown: Array) -> tuple[Array, Array]:
    """Numbers of copies (row, locus) that show the second allele, and that show the first."""
    is_second, is_first = ([(copy == allele).astype(jnp.float32) for copy in shown.swapaxes(0, 1)] for allele in (1, 0))
    return added(is_second), added(is_first)


def _mean(q: Array, table: Array) -> Array:
    """Probabilities (row, locus) of the second allele, summed in parts: longer sums in one loop are not vectorised."""
    terms = [q[:, population, None] * frequencies for population, frequencies in enumerate(table)]
    total = added(terms[:TERMS])
    for first in range(TERMS, len(terms), TERMS):
        total = lax.optimization_barrier(total + added(terms[first : first + TERMS]))
    return total


def _probability(p: Array, shown: Array) -> Array:
    """The probability (row, locus) of the observed alleles of both copies. p: that of the second allele."""
    complement = jnp.maximum(1 - p, NEAREST)
    first_copy, second_copy = (
        jnp.where(copy == 1, p, jnp.where(copy == 0, complement, 1.0)) for copy in shown.swapaxes(0, 1)
    )
    return first_copy * second_copy


def _tiles(table: Array, shape: Shape) -> Array:
    """A table (population, locus) as tiles (tile, population, locus)."""
    return tiles_of(table[..., None], shape)[:, :, 0]


def _lanes(tiles: Array, shape: Shape) -> Array:
    """Tiles (tile, ..., locus) as (..., locus)."""
    lanes = jnp.moveaxis(tiles, 0, -2)
    return lanes.reshape(*lanes.shape[:-2], -1)[..., : shape.loci]
