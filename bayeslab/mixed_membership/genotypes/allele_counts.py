"""Genotypes in bytes, and the counts of their origins: drawn counts for Gibbs, expected counts for EM.

A copy of individual i at locus l that shows allele j comes from population k with probability proportional to
q_ik p_kjl. Loci are lanes of vectors, individuals follow each other. Nothing is kept of an origin but the counts that
it enters, which are bytes at first, so the memory is that of the genotypes. Numbers are in single precision, sums of
many numbers in the precision of the program.
"""

from functools import partial
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.processor import on_accelerator
from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.counts import NUM_VECTOR_LANES, Counts, largest_divisor
from bayeslab.mixed_membership.devices import DeviceContext, Devices

MISSING_ALLELE = 255
"""Byte of a copy that is missing or only pads."""
ROWS_PER_STEP = 20
"""Rows in one step of expected counts; the number of rows is padded to a multiple of it."""
MAX_ROWS_PER_FLUSH = 120
"""Most rows, of two copies each, whose counts a byte holds."""
MAX_CELLS_PER_STEP = 16384
"""Rows times loci in one step of drawn counts on a CPU, at most, unless one row of a tile has more."""
MAX_FREQUENCIES_PER_TILE = 2**17
"""Frequencies of a tile of loci, at most, about: they stay in the cache of a processor."""
MAX_ALLELES_PER_LOOP = 64
"""Alleles times populations up to which one loop has all populations: a longer loop is not vectorised."""


class GenotypeShape(NamedTuple):
    """The sizes of genotypes (individual, locus, copy), and how they are split into tiles, flushes and steps."""

    individuals: int
    loci: int
    copies: int
    alleles: int
    populations: int
    devices: Devices = Devices()

    @property
    def part(self) -> "GenotypeShape":
        """The shape of the genotypes of one device."""
        return self._replace(individuals=self.devices.share(self.individuals), devices=Devices())

    @property
    def table(self) -> tuple[int, ...]:
        """The shape of components."""
        return self.populations, self.loci, self.alleles

    @property
    def max_count(self) -> int:
        """The largest count that there can be."""
        return 2 * self.pairs_per_individual * max(self.loci, self.individuals)

    @property
    def pairs_per_individual(self) -> int:
        """Rows of an individual, each of a pair of copies."""
        return ceil(self.copies / 2)

    @property
    def tiles(self) -> int:
        """Number of tiles that loci are split into."""
        return ceil(self.loci * self.alleles * self.populations / MAX_FREQUENCIES_PER_TILE)

    @property
    def parts(self) -> int:
        """Number of parts of a tile, in each of which a byte per lane holds the counts of a row."""
        return ceil(self.loci / self.tiles / (NUM_VECTOR_LANES * MAX_ROWS_PER_FLUSH))

    @property
    def width(self) -> int:
        """Loci of a tile."""
        unit = NUM_VECTOR_LANES * self.parts
        return ceil(self.loci / self.tiles / unit) * unit

    @property
    def flushes(self) -> int:
        """Number of times that byte counters are added to the counts."""
        return ceil(self.individuals * self.pairs_per_individual / MAX_ROWS_PER_FLUSH)

    @property
    def steps(self) -> int:
        """Number of steps of ROWS_PER_STEP rows between two flushes."""
        return ceil(self.individuals * self.pairs_per_individual / ROWS_PER_STEP / self.flushes)


def pack(y: Array, present: Array | None, shape: GenotypeShape) -> Array:
    """Genotypes (individual, locus, copy) as bytes (device, tile, flush, row, 2, locus).

    Two copies of an individual are a row. Missing copies, and those that pad, are MISSING_ALLELE.
    """
    bytes_ = y.astype(jnp.uint8)
    if present is not None:
        bytes_ = jnp.where(present, bytes_, jnp.uint8(MISSING_ALLELE))
    num_padding = shape.part.individuals * shape.devices.number - shape.individuals
    bytes_ = jnp.pad(bytes_, ((0, num_padding), (0, 0), (0, 0)), constant_values=MISSING_ALLELE)
    device_bytes = bytes_.reshape(shape.devices.number, shape.part.individuals, *shape[1:3])
    return shape.devices.spread(jax.vmap(partial(_pack_on_device, shape=shape.part))(device_bytes))


def _pack_on_device(bytes_: Array, shape: GenotypeShape) -> Array:
    """Genotypes (individual, locus, copy) of one device as bytes (tile, flush, row, 2, locus)."""
    pad = ((0, 0), (0, 2 * shape.pairs_per_individual - shape.copies), (0, shape.tiles * shape.width - shape.loci))
    rows = jnp.pad(bytes_.transpose(0, 2, 1), pad, constant_values=MISSING_ALLELE).reshape(
        -1, 2, shape.tiles, shape.width
    )
    missing = shape.flushes * shape.steps * ROWS_PER_STEP - len(rows)
    rows = jnp.pad(rows, ((0, missing), (0, 0), (0, 0), (0, 0)), constant_values=MISSING_ALLELE)
    return rows.transpose(2, 0, 1, 3).reshape(shape.tiles, shape.flushes, -1, 2, shape.width)


def draw_counts(key: Array, ancestry: Array, frequencies: Array, alleles: Array, shape: GenotypeShape) -> Counts:
    """Counts of origins that are drawn from their full conditional.

    key: (2,). ancestry: (individual, population). frequencies: (population, locus, allele). alleles: see `pack`.
    """
    return Counts(
        *shape.devices.run(partial(_draw_counts_on_device, shape=shape.part), ancestry, alleles, key, frequencies)
    )


def _draw_counts_on_device(
    device: DeviceContext, ancestry: Array, alleles: Array, key: Array, frequencies: Array, shape: GenotypeShape
) -> tuple[Array, Array]:
    """Counts of drawn origins: in the individuals of this device, and with alleles over all devices."""
    rows_per_step = (
        ROWS_PER_STEP if on_accelerator() else largest_divisor(ROWS_PER_STEP, MAX_CELLS_PER_STEP // shape.width)
    )
    ancestry, tiles = to_rows(ancestry, shape), to_tiles(frequencies, shape)
    numbers = jnp.arange(ancestry[..., 0].size, dtype=jnp.uint32) + jnp.uint32(device.first) * jnp.uint32(
        shape.pairs_per_individual
    )
    populations = jnp.arange(shape.populations, dtype=jnp.uint8)
    symbols = jnp.arange(shape.alleles, dtype=jnp.uint8)

    def tile(given: tuple[Array, ...]) -> tuple[Array, Array]:
        frequencies, alleles, column = given

        def step(counted: Array, given: tuple[Array, ...]) -> tuple[Array, Array]:
            q, observed_allele, row = given
            both_origins = lax.optimization_barrier(_draw_origins(key, q, frequencies, observed_allele, row, column))
            origins = (both_origins & 255).astype(jnp.uint8), (both_origins >> 8).astype(jnp.uint8)
            indicators = [(origin == populations[:, None, None]).astype(jnp.uint8) for origin in origins]
            lane_parts = (indicators[0] + indicators[1]).reshape(
                shape.populations, rows_per_step, -1, NUM_VECTOR_LANES * shape.parts
            )
            row_counts = lane_parts.sum(2, dtype=jnp.uint8).astype(jnp.int32).sum(-1)
            for index in range(rows_per_step):
                for copy, origin in enumerate(origins):
                    is_counted = (origin[index] == populations[:, None, None]) & (
                        observed_allele[index, copy] == symbols[:, None]
                    )
                    counted += is_counted.astype(jnp.uint8)
            return counted, row_counts.T

        def flush(total: Array, given: tuple[Array, ...]) -> tuple[Array, Array]:
            steps = tuple(rows.reshape(-1, rows_per_step, *rows.shape[1:]) for rows in given)
            counted, row_counts = lax.scan(step, jnp.zeros(total.shape, jnp.uint8), steps)
            return total + counted.astype(jnp.int32), row_counts.reshape(-1, shape.populations)

        nothing = jnp.zeros((shape.populations, shape.alleles, shape.width), jnp.int32)
        return lax.scan(flush, nothing, (ancestry, alleles, numbers.reshape(ancestry.shape[:2])))

    counted, row_counts = lax.map(tile, (tiles, alleles, _column_numbers(shape)))
    return sum_to_individuals(row_counts.sum(0), shape), device.total(from_tiles(counted, shape))


def _draw_origins(key: Array, q: Array, frequencies: Array, observed_allele: Array, row: Array, column: Array) -> Array:
    """Drawn origins (row, locus) of both copies, a byte each, with MISSING_ALLELE where a copy is missing.

    They are drawn by inversion: an origin is where cumulative probabilities pass a uniform number times their sum.
    """
    size = (len(q), column.shape[0])
    counters = jnp.broadcast_to(row[:, None], size), jnp.broadcast_to(column[None], size)
    both_origins = jnp.zeros(size, jnp.int32)
    for copy, uniform in enumerate(uniforms(key, *counters)):
        allele = observed_allele[:, copy].astype(jnp.int32)
        sums = _cumulative_probabilities(q, frequencies, allele)
        threshold = uniform * sums[-1]
        origin = sum(((below <= threshold).astype(jnp.int32) for below in sums[:-1]), jnp.zeros(size, jnp.int32))
        both_origins += jnp.where(allele == MISSING_ALLELE, MISSING_ALLELE, origin) << (8 * copy)
    return both_origins.astype(jnp.uint16)


def _cumulative_probabilities(q: Array, frequencies: Array, allele: Array) -> list[Array]:
    """Cumulative sums (row, locus) of q_ik p_kjl over populations, for the observed allele j."""
    sums: list[Array] = []
    for population, table in enumerate(frequencies):
        frequency = observed_frequencies(table, allele)
        if frequencies.shape[0] * len(table) > MAX_ALLELES_PER_LOOP:
            frequency = lax.optimization_barrier(frequency)
        term = q[:, population : population + 1] * frequency
        sums.append(sums[-1] + term if sums else term)
    return sums


def expected_counts(ancestry: Array, frequencies: Array, alleles: Array, shape: GenotypeShape) -> tuple[Counts, Array]:
    """Expected counts of origins given everything else, and the log of the sums of q_ik p_kjl of all copies, added up.

    That log is the log likelihood where q and p are probabilities.
    """
    run = partial(_expected_counts_on_device, shape=shape.part)
    individuals, (counted, log_sums) = shape.devices.run(run, ancestry, alleles, frequencies)
    return Counts(individuals, counted), log_sums


def _expected_counts_on_device(
    device: DeviceContext, ancestry: Array, alleles: Array, frequencies: Array, shape: GenotypeShape
) -> tuple[Array, tuple[Array, Array]]:
    """Expected counts in the individuals of this device; expected counts with alleles and log sums over all devices."""
    ancestry, tiles = to_rows(ancestry, shape), to_tiles(frequencies, shape)
    dtype = jnp.result_type(float)

    def tile(given: tuple[Array, Array]) -> tuple[Any, Array]:
        frequencies, alleles = given

        def step(carry: tuple[Array, Array], given: tuple[Array, Array]) -> tuple[Any, Array]:
            (counted, log_sums), (q, observed_allele) = carry, given
            row_counts, sums, log_sum = jnp.zeros_like(q), [], jnp.zeros((), dtype)
            for allele in range(shape.alleles):
                table = frequencies[:, allele]
                number = (observed_allele == allele).astype(jnp.float32).sum(1)
                weight = q @ table
                log_sum += jnp.where(number > 0, number * jnp.log(weight), 0.0).astype(dtype).sum()
                share = lax.optimization_barrier(jnp.where(number > 0, number / weight, 0.0))
                sums.append(q.T @ share)
                row_counts += share @ table.T
            return (counted + jnp.stack(sums, 1), log_sums + log_sum), row_counts * q

        steps = group_rows(ROWS_PER_STEP, ancestry, alleles)
        nothing = jnp.zeros((shape.populations, shape.alleles, shape.width), jnp.float32)
        (counted, log_sums), row_counts = lax.scan(step, (nothing, jnp.zeros((), dtype)), steps)
        return (counted * frequencies, log_sums), row_counts

    (counted, log_sums), row_counts = lax.map(tile, (tiles, alleles))
    return sum_to_individuals(row_counts.sum(0), shape), device.total((from_tiles(counted, shape), log_sums.sum()))


def to_rows(ancestry: Array, shape: GenotypeShape) -> Array:
    """Values of individuals as rows (flush, row, ...): an individual has one row for every pair of copies."""
    rows = jnp.repeat(ancestry.astype(jnp.float32), shape.pairs_per_individual, 0)
    pad = (0, shape.flushes * shape.steps * ROWS_PER_STEP - len(rows)), *((0, 0),) * (rows.ndim - 1)
    return jnp.pad(rows, pad, mode="edge").reshape(shape.flushes, -1, *rows.shape[1:])


def group_rows(num_rows: int, *rows: Array) -> Any:
    """Arrays (flush, row, ...) as (step, row, ...), with this number of rows in a step."""
    return tuple(array.reshape(-1, num_rows, *array.shape[2:]) for array in rows)


def observed_frequencies(table: Array, observed_allele: Array) -> Array:
    """Frequencies (row, locus) of observed alleles in one population, whose table is (allele, locus)."""
    frequency = table[0][None]
    for j in range(1, len(table)):
        frequency = jnp.where(observed_allele == j, table[j][None], frequency)
    return frequency


def to_tiles(frequencies: Array, shape: GenotypeShape) -> Array:
    """Frequencies (population, locus, allele) as tiles (tile, population, allele, locus)."""
    lanes = frequencies.astype(jnp.float32).transpose(0, 2, 1)
    lanes = jnp.pad(lanes, ((0, 0), (0, 0), (0, shape.tiles * shape.width - shape.loci)))
    return lanes.reshape(*lanes.shape[:2], shape.tiles, shape.width).transpose(2, 0, 1, 3)


def _column_numbers(shape: GenotypeShape) -> Array:
    """Numbers of loci (tile, locus), as counters of random bits."""
    return jnp.arange(shape.tiles * shape.width, dtype=jnp.uint32).reshape(shape.tiles, shape.width)


def sum_to_individuals(rows: Array, shape: GenotypeShape) -> Array:
    """Sums (individual, ...) over the rows of every individual."""
    row_sums = rows.reshape(-1, rows.shape[-1])[: shape.individuals * shape.pairs_per_individual]
    return row_sums.reshape(shape.individuals, shape.pairs_per_individual, -1).sum(1)


def from_tiles(tiles: Array, shape: GenotypeShape) -> Array:
    """Tiles (tile, population, allele, locus) as (population, locus, allele)."""
    lanes = jnp.moveaxis(tiles, 0, 2).reshape(*tiles.shape[1:3], -1)
    return lanes[..., : shape.loci].transpose(0, 2, 1)
