"""Ancestry drawn given frequencies alone, origins summed out.

Drawn origins fix the ancestry of an individual far better than its genotypes do, so that draws which take turns with
origins follow each other slowly. The log likelihood of its ancestry, the sum over copies of log sum_k q_k p_kjl, is
nearly a quadratic. The maximum and the curvature of that give a proposal (`cut`), accepted by the rule of Metropolis
and Hastings for every individual by itself.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.counts import LANES
from bayeslab.mixed_membership.devices import Here
from bayeslab.mixed_membership.dirichlet import powers_gained
from bayeslab.mixed_membership.genotypes.allele_counts import (
    MISSING,
    STEP,
    Shape,
    divisor,
    individual_sums,
    of_shown,
    rows_of,
    tiles_of,
    together,
)
from bayeslab.mixed_membership.genotypes.biallelic import slopes_of_individuals
from bayeslab.mixed_membership.genotypes.newton import curvature_of_individuals, inside, square
from bayeslab.mixed_membership.genotypes.truncated_normal import Cut, Move, centre, moved, on_simplex, relaxed

AT_ONCE = 2**15
"""Ratios of probabilities that are in memory together, about."""
FACTORS = 16
"""Ratios of probabilities near 1 that are multiplied before their log is taken."""


class Reference(NamedTuple):
    """at: ancestry (population, individual) where the log likelihood is expanded. proposal: about it."""

    at: Array
    proposal: Cut


def reference(at: Array, frequencies: Array, alleles: Array, shape: Shape, prior: Array) -> Reference:
    """at: ancestry (individual, population), where the posterior is. prior: concentrations of the same shape."""
    at = inside(at).astype(jnp.float32)
    curvature = curvature_of_individuals(at, frequencies, alleles, shape)[1].T[square(shape.populations)]
    bend = (jnp.maximum(prior - 1, 0.0) / at**2).T
    exact = at.T.astype(jnp.result_type(float))
    return Reference(at.T, on_simplex(exact, curvature + bend * jnp.eye(shape.populations)[:, :, None]))


def anew(
    key: Array,
    ancestry: Array,
    frequencies: Array,
    alleles: Array,
    shape: Shape,
    prior: Array,
    about: Reference,
    back: Array,
) -> tuple[Array, Array, Array, Array]:
    """Ancestry after a proposal for every individual, the log likelihood that was gained by all, the share of those
    that took it, and where ancestry is likeliest, which depends on the frequencies alone. back: see `relaxed`.
    """
    first, second = jax.random.split(key)
    proposal, move = proposed(first, ancestry, frequencies, alleles, shape, prior, about, back)
    taken, gained = move.accepted(second)
    new = jnp.where(taken[:, None], move.new, ancestry)
    return new, gained, taken.mean(), centre(proposal).T.astype(ancestry.dtype)


def proposed(
    key: Array,
    ancestry: Array,
    frequencies: Array,
    alleles: Array,
    shape: Shape,
    prior: Array,
    about: Reference,
    back: Array,
) -> tuple[Cut, Move]:
    """What ancestry is proposed from, and the ancestry."""
    gradient = slopes(about.at.T, frequencies, alleles, shape).T + jnp.maximum(prior.T - 1, 0.0) / about.at
    proposal = moved(about.proposal, gradient)
    new, log_density, possible = relaxed(key, proposal, ancestry.T, back)
    new = jnp.where(possible[:, None], new.T, ancestry).astype(ancestry.dtype)
    gain = gains(ancestry, new, frequencies, alleles, shape)
    ratio = gain + powers_gained(prior, ancestry, new).sum(1) - log_density
    return proposal, Move(new, gain, ratio, possible)


def slopes(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> Array:
    """Derivatives of the log likelihood by ancestry (individual, population); of two alleles, see
    `slopes_of_individuals`."""
    if shape.alleles == 2:
        return slopes_of_individuals(ancestry, frequencies, alleles, shape)
    return shape.devices.run(partial(_slopes, shape=shape.part), ancestry, alleles, frequencies)[0]


def gains(before: Array, after: Array, frequencies: Array, alleles: Array, shape: Shape) -> Array:
    """The log likelihood of individuals (individual,) by another ancestry, less that by the one before."""
    both = jnp.stack([before, after], 1)
    return shape.devices.run(partial(_gains, shape=shape.part), both, alleles, frequencies)[0]


def _slopes(_: Here, ancestry: Array, alleles: Array, frequencies: Array, shape: Shape) -> tuple[Array, tuple[()]]:
    def tile(given: tuple[Array, Array]) -> Array:
        frequencies, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            q, shown = given
            slope = jnp.zeros_like(q)
            for allele in range(shape.alleles):
                table = frequencies[:, allele]
                number = (shown == allele).astype(jnp.float32).sum(1)
                slope += lax.optimization_barrier(jnp.where(number > 0, number / (q @ table), 0.0)) @ table.T
            return None, slope

        return lax.scan(step, None, together(STEP, rows_of(ancestry, shape), alleles))[1]

    return individual_sums(lax.map(tile, (tiles_of(frequencies, shape), alleles)).sum(0), shape), ()


def _gains(_: Here, both: Array, alleles: Array, frequencies: Array, shape: Shape) -> tuple[Array, tuple[()]]:
    total = jnp.result_type(float)
    rows, number = rows_of(both, shape), divisor(STEP, AT_ONCE // shape.width)

    def tile(given: tuple[Array, Array]) -> Array:
        frequencies, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            q, shown = given
            both = zip(*(_probabilities(q, frequencies, shown[:, copy]) for copy in range(2)), strict=True)
            before, after = (first * second for first, second in both)
            parts = lax.optimization_barrier(after / before).reshape(len(q), -1, LANES)
            whole = parts.shape[1] // FACTORS * FACTORS
            most = parts[:, :whole].reshape(len(q), -1, FACTORS, LANES).prod(2)
            few = parts[:, whole:].prod(1)
            return None, jnp.log(most).astype(total).sum((1, 2)) + jnp.log(few).astype(total).sum(1)

        return lax.scan(step, None, together(number, rows, alleles))[1]

    gains = lax.map(tile, (tiles_of(frequencies, shape), alleles))
    return individual_sums(gains.sum(0).reshape(-1, 1), shape)[:, 0], ()


def _probabilities(q: Array, frequencies: Array, shown: Array) -> tuple[Array, Array]:
    """Of what is shown (row, locus), by the two ancestries (row, 2, population)."""
    allele, sums = shown.astype(jnp.int32), [jnp.zeros((), jnp.float32)] * 2
    for population, table in enumerate(frequencies):
        p = of_shown(table, allele)
        sums = [total + q[:, which, population, None] * p for which, total in enumerate(sums)]
    before, after = (jnp.where(shown == MISSING, 1.0, total) for total in sums)
    return before, after
