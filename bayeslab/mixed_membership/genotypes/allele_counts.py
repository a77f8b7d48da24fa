"""Genotypes in bytes, and the counts of origins that they lead to: drawn ones for Gibbs, expected ones for EM.

A copy of individual i at locus l that shows allele j comes from population k with probability proportional to
q_ik p_kjl. Loci are lanes of vectors, individuals follow each other. Nothing is kept of an origin but the counts that
it enters, in bytes first, so the memory is that of the genotypes. Numbers are in single precision, sums of many in
that of the program.
"""

from functools import partial
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.threefry import uniforms
from bayeslab.mixed_membership.counts import LANES, Counts
from bayeslab.mixed_membership.devices import Devices, Here

MISSING = 255
STEP = 20
"""Rows that are padded to, and that expected counts take at once."""
FLUSH = 120
"""Rows that counters of a byte can hold, with two copies each."""
AT_ONCE = 16384
"""Loci that are looked at in one go, at least."""
FREQUENCIES = 2**17
"""Numbers that a tile of loci holds, at most: they stay in the cache of a processor."""
APART = 64
"""Alleles of all populations from which on a population is looked at by itself: one loop over all is not vectorised."""


class Shape(NamedTuple):
    individuals: int
    loci: int
    copies: int
    alleles: int
    populations: int
    devices: Devices = Devices()

    @property
    def part(self) -> "Shape":
        """Of the individuals of one device."""
        return self._replace(individuals=self.devices.share(self.individuals), devices=Devices())

    @property
    def table(self) -> tuple[int, ...]:
        """The shape of components."""
        return self.populations, self.loci, self.alleles

    @property
    def most(self) -> int:
        """The largest count that there can be."""
        return 2 * self.pairs * max(self.loci, self.individuals)

    @property
    def pairs(self) -> int:
        return ceil(self.copies / 2)

    @property
    def tiles(self) -> int:
        return ceil(self.loci * self.alleles * self.populations / FREQUENCIES)

    @property
    def parts(self) -> int:
        """Of a tile, in each of which a counter of a byte can hold the origins of a row."""
        return ceil(self.loci / self.tiles / (LANES * FLUSH))

    @property
    def width(self) -> int:
        """Of a tile."""
        unit = LANES * self.parts
        return ceil(self.loci / self.tiles / unit) * unit

    @property
    def flushes(self) -> int:
        return ceil(self.individuals * self.pairs / FLUSH)

    @property
    def steps(self) -> int:
        """Of STEP rows, between two flushes."""
        return ceil(self.individuals * self.pairs / STEP / self.flushes)


def packed(y: Array, present: Array | None, shape: Shape) -> Array:
    """Genotypes (individual, locus, copy) as bytes (device, tile, flush, row, 2, locus).

    Two copies of an individual are a row. Missing copies, and those that pad, are MISSING.
    """
    bytes_ = y.astype(jnp.uint8)
    if present is not None:
        bytes_ = jnp.where(present, bytes_, jnp.uint8(MISSING))
    more = shape.part.individuals * shape.devices.number - shape.individuals
    bytes_ = jnp.pad(bytes_, ((0, more), (0, 0), (0, 0)), constant_values=MISSING)
    parts = bytes_.reshape(shape.devices.number, shape.part.individuals, *shape[1:3])
    return shape.devices.spread(jax.vmap(partial(_packed, shape=shape.part))(parts))


def _packed(bytes_: Array, shape: Shape) -> Array:
    """Of one device."""
    pad = ((0, 0), (0, 2 * shape.pairs - shape.copies), (0, shape.tiles * shape.width - shape.loci))
    rows = jnp.pad(bytes_.transpose(0, 2, 1), pad, constant_values=MISSING).reshape(-1, 2, shape.tiles, shape.width)
    missing = shape.flushes * shape.steps * STEP - len(rows)
    rows = jnp.pad(rows, ((0, missing), (0, 0), (0, 0), (0, 0)), constant_values=MISSING)
    return rows.transpose(2, 0, 1, 3).reshape(shape.tiles, shape.flushes, -1, 2, shape.width)


def drawn_counts(key: Array, ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> Counts:
    """Counts of origins that are drawn given everything else.

    key: (2,). ancestry: (individual, population). frequencies: (population, locus, allele). alleles: see `packed`.
    """
    return Counts(*shape.devices.run(partial(_drawn, shape=shape.part), ancestry, alleles, key, frequencies))


def _drawn(
    here: Here, ancestry: Array, alleles: Array, key: Array, frequencies: Array, shape: Shape
) -> tuple[Array, Array]:
    together = divisor(STEP, AT_ONCE // shape.width)
    ancestry, tiles = rows_of(ancestry, shape), tiles_of(frequencies, shape)
    numbers = jnp.arange(ancestry[..., 0].size, dtype=jnp.uint32) + jnp.uint32(here.first) * jnp.uint32(shape.pairs)
    populations = jnp.arange(shape.populations, dtype=jnp.uint8)
    symbols = jnp.arange(shape.alleles, dtype=jnp.uint8)

    def tile(given: tuple[Array, ...]) -> tuple[Array, Array]:
        frequencies, alleles, column = given

        def step(counted: Array, given: tuple[Array, ...]) -> tuple[Array, Array]:
            q, shown, row = given
            both = lax.optimization_barrier(_origins(key, q, frequencies, shown, row, column))
            origins = (both & 255).astype(jnp.uint8), (both >> 8).astype(jnp.uint8)
            of = [(one == populations[:, None, None]).astype(jnp.uint8) for one in origins]
            parts = (of[0] + of[1]).reshape(shape.populations, together, -1, LANES * shape.parts)
            mine = parts.sum(2, dtype=jnp.uint8).astype(jnp.int32).sum(-1)
            for place in range(together):
                for copy, origin in enumerate(origins):
                    both_are = (origin[place] == populations[:, None, None]) & (shown[place, copy] == symbols[:, None])
                    counted += both_are.astype(jnp.uint8)
            return counted, mine.T

        def flush(total: Array, given: tuple[Array, ...]) -> tuple[Array, Array]:
            few = tuple(one.reshape(-1, together, *one.shape[1:]) for one in given)
            counted, mine = lax.scan(step, jnp.zeros(total.shape, jnp.uint8), few)
            return total + counted.astype(jnp.int32), mine.reshape(-1, shape.populations)

        nothing = jnp.zeros((shape.populations, shape.alleles, shape.width), jnp.int32)
        return lax.scan(flush, nothing, (ancestry, alleles, numbers.reshape(ancestry.shape[:2])))

    counted, mine = lax.map(tile, (tiles, alleles, _columns(shape)))
    return individual_sums(mine.sum(0), shape), here.total(loci_of(counted, shape))


def _origins(key: Array, q: Array, frequencies: Array, shown: Array, row: Array, column: Array) -> Array:
    """Of both copies, a byte each, (row, locus); MISSING where nothing is shown.

    The origin is where the cumulative probabilities pass a uniform number times their sum.
    """
    size = (len(q), column.shape[0])
    counters = jnp.broadcast_to(row[:, None], size), jnp.broadcast_to(column[None], size)
    both = jnp.zeros(size, jnp.int32)
    for copy, uniform in enumerate(uniforms(key, *counters)):
        allele = shown[:, copy].astype(jnp.int32)
        sums = _cumulative(q, frequencies, allele)
        threshold = uniform * sums[-1]
        origin = sum(((below <= threshold).astype(jnp.int32) for below in sums[:-1]), jnp.zeros(size, jnp.int32))
        both += jnp.where(allele == MISSING, MISSING, origin) << (8 * copy)
    return both.astype(jnp.uint16)


def _cumulative(q: Array, frequencies: Array, allele: Array) -> list[Array]:
    """Sums of q_ik p_kjl over the first populations, for the allele j that is shown."""
    sums: list[Array] = []
    for population, table in enumerate(frequencies):
        shown = of_shown(table, allele)
        if frequencies.shape[0] * len(table) > APART:
            shown = lax.optimization_barrier(shown)
        part = q[:, population : population + 1] * shown
        sums.append(sums[-1] + part if sums else part)
    return sums


def expected_counts(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> tuple[Counts, Array]:
    """Expected counts of origins given everything else, and the log of the sums of q_ik p_kjl of all copies, added up.

    With probabilities, that is the log likelihood.
    """
    run = partial(_expected, shape=shape.part)
    individuals, (counted, log_sums) = shape.devices.run(run, ancestry, alleles, frequencies)
    return Counts(individuals, counted), log_sums


def _expected(
    here: Here, ancestry: Array, alleles: Array, frequencies: Array, shape: Shape
) -> tuple[Array, tuple[Array, Array]]:
    ancestry, tiles = rows_of(ancestry, shape), tiles_of(frequencies, shape)
    total = jnp.result_type(float)

    def tile(given: tuple[Array, Array]) -> tuple[Any, Array]:
        frequencies, alleles = given

        def step(carry: tuple[Array, Array], given: tuple[Array, Array]) -> tuple[Any, Array]:
            (counted, log_sums), (q, shown) = carry, given
            mine, sums, gained = jnp.zeros_like(q), [], jnp.zeros((), total)
            for allele in range(shape.alleles):
                table = frequencies[:, allele]
                number = (shown == allele).astype(jnp.float32).sum(1)
                weight = q @ table
                gained += jnp.where(number > 0, number * jnp.log(weight), 0.0).astype(total).sum()
                share = lax.optimization_barrier(jnp.where(number > 0, number / weight, 0.0))
                sums.append(q.T @ share)
                mine += share @ table.T
            return (counted + jnp.stack(sums, 1), log_sums + gained), mine * q

        few = together(STEP, ancestry, alleles)
        nothing = jnp.zeros((shape.populations, shape.alleles, shape.width), jnp.float32)
        (counted, log_sums), mine = lax.scan(step, (nothing, jnp.zeros((), total)), few)
        return (counted * frequencies, log_sums), mine

    (counted, log_sums), mine = lax.map(tile, (tiles, alleles))
    return individual_sums(mine.sum(0), shape), here.total((loci_of(counted, shape), log_sums.sum()))


def rows_of(ancestry: Array, shape: Shape) -> Array:
    """(flush, row, ...), an individual's as often as it has pairs of copies."""
    rows = jnp.repeat(ancestry.astype(jnp.float32), shape.pairs, 0)
    pad = (0, shape.flushes * shape.steps * STEP - len(rows)), *((0, 0),) * (rows.ndim - 1)
    return jnp.pad(rows, pad, mode="edge").reshape(shape.flushes, -1, *rows.shape[1:])


def together(number: int, *rows: Array) -> Any:
    """Arrays (flush, row, ...) with so many rows at once, (step, row, ...)."""
    return tuple(one.reshape(-1, number, *one.shape[2:]) for one in rows)


def of_shown(table: Array, shown: Array) -> Array:
    """The frequencies (row, locus) of the alleles that are shown, among those of a population (allele, locus)."""
    found = table[0][None]
    for j in range(1, len(table)):
        found = jnp.where(shown == j, table[j][None], found)
    return found


def tiles_of(frequencies: Array, shape: Shape) -> Array:
    """(tile, population, allele, locus) of (population, locus, allele)."""
    lanes = frequencies.astype(jnp.float32).transpose(0, 2, 1)
    lanes = jnp.pad(lanes, ((0, 0), (0, 0), (0, shape.tiles * shape.width - shape.loci)))
    return lanes.reshape(*lanes.shape[:2], shape.tiles, shape.width).transpose(2, 0, 1, 3)


def _columns(shape: Shape) -> Array:
    return jnp.arange(shape.tiles * shape.width, dtype=jnp.uint32).reshape(shape.tiles, shape.width)


def individual_sums(rows: Array, shape: Shape) -> Array:
    """Sums over the rows of each, (individual, ...)."""
    kept = rows.reshape(-1, rows.shape[-1])[: shape.individuals * shape.pairs]
    return kept.reshape(shape.individuals, shape.pairs, -1).sum(1)


def loci_of(tiles: Array, shape: Shape) -> Array:
    """(population, locus, allele) of (tile, population, allele, locus)."""
    lanes = jnp.moveaxis(tiles, 0, 2).reshape(*tiles.shape[1:3], -1)
    return lanes[..., : shape.loci].transpose(0, 2, 1)


def divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most so large; at least 1."""
    return max(d for d in range(1, number + 1) if number % d == 0 and (d <= most or d == 1))
