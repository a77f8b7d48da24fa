"""Metropolis-Hastings steps of ancestry given frequencies alone, origins summed out.

Drawn origins fix the ancestry of an individual far better than its genotypes do, so that draws which take turns with
origins follow each other slowly. The log likelihood of its ancestry, the sum over copies of log sum_k q_k p_kjl, is
nearly a quadratic. The maximum and the curvature of that give a truncated normal proposal, which every individual
accepts or refuses by itself.
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
"""Ratios of probabilities in one step, about: they are in memory together."""
FACTORS = 16
"""Ratios of probabilities near 1 that are multiplied before their log is taken."""


class Reference(NamedTuple):
    """The quadratic expansion of the log posterior of ancestry.

    at: ancestry (population, individual) that it is about. proposal: the truncated normal distribution that it gives.
    """

    at: Array
    proposal: Cut


def reference(at: Array, frequencies: Array, alleles: Array, shape: Shape, prior: Array) -> Reference:
    """The expansion about an ancestry.

    at: ancestry (individual, population), where the posterior has its mass.
    prior: concentrations of the same shape.
    """
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
    """Ancestry after a Metropolis-Hastings step of every individual, the sum of accepted log likelihood ratios, the
    share of individuals that accepted, and the mode of ancestry, which depends on the frequencies alone.

    about: see `reference`. back: see `relaxed`.
    """
    proposal_key, acceptance_key = jax.random.split(key)
    proposal, move = proposed(proposal_key, ancestry, frequencies, alleles, shape, prior, about, back)
    taken, gained = move.accepted(acceptance_key)
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
    """The proposal distribution of ancestry, and the ancestry that is proposed."""
    gradient = slopes(about.at.T, frequencies, alleles, shape).T + jnp.maximum(prior.T - 1, 0.0) / about.at
    proposal = moved(about.proposal, gradient)
    new, log_density, possible = relaxed(key, proposal, ancestry.T, back)
    new = jnp.where(possible[:, None], new.T, ancestry).astype(ancestry.dtype)
    gain = gains(ancestry, new, frequencies, alleles, shape)
    ratio = gain + powers_gained(prior, ancestry, new).sum(1) - log_density
    return proposal, Move(new, gain, ratio, possible)


def slopes(ancestry: Array, frequencies: Array, alleles: Array, shape: Shape) -> Array:
    """The gradient of the log likelihood by ancestry (individual, population); with two alleles up to a constant, see
    `slopes_of_individuals`."""
    if shape.alleles == 2:
        return slopes_of_individuals(ancestry, frequencies, alleles, shape)
    return shape.devices.run(partial(_slopes, shape=shape.part), ancestry, alleles, frequencies)[0]


def gains(before: Array, after: Array, frequencies: Array, alleles: Array, shape: Shape) -> Array:
    """Log likelihood ratios of individuals (individual,), of the ancestry after over the ancestry before."""
    both = jnp.stack([before, after], 1)
    return shape.devices.run(partial(_gains, shape=shape.part), both, alleles, frequencies)[0]


def _slopes(_: Here, ancestry: Array, alleles: Array, frequencies: Array, shape: Shape) -> tuple[Array, tuple[()]]:
    """The gradient (individual, population) for the individuals of one device."""

    def tile(given: tuple[Array, Array]) -> Array:
        frequencies, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            q, observed_allele = given
            slope = jnp.zeros_like(q)
            for allele in range(shape.alleles):
                table = frequencies[:, allele]
                number = (observed_allele == allele).astype(jnp.float32).sum(1)
                slope += lax.optimization_barrier(jnp.where(number > 0, number / (q @ table), 0.0)) @ table.T
            return None, slope

        return lax.scan(step, None, together(STEP, rows_of(ancestry, shape), alleles))[1]

    return individual_sums(lax.map(tile, (tiles_of(frequencies, shape), alleles)).sum(0), shape), ()


def _gains(_: Here, both: Array, alleles: Array, frequencies: Array, shape: Shape) -> tuple[Array, tuple[()]]:
    """Log likelihood ratios of the individuals of one device. both: ancestry (individual, 2, population)."""
    dtype = jnp.result_type(float)
    rows, number = rows_of(both, shape), divisor(STEP, AT_ONCE // shape.width)

    def tile(given: tuple[Array, Array]) -> Array:
        frequencies, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            q, observed_allele = given
            of_copies = zip(
                *(_probabilities(q, frequencies, observed_allele[:, copy]) for copy in range(2)), strict=True
            )
            before, after = (first_copy * second_copy for first_copy, second_copy in of_copies)
            ratios = lax.optimization_barrier(after / before).reshape(len(q), -1, LANES)
            whole = ratios.shape[1] // FACTORS * FACTORS
            products = ratios[:, :whole].reshape(len(q), -1, FACTORS, LANES).prod(2)
            remainder = ratios[:, whole:].prod(1)
            return None, jnp.log(products).astype(dtype).sum((1, 2)) + jnp.log(remainder).astype(dtype).sum(1)

        return lax.scan(step, None, together(number, rows, alleles))[1]

    ratios = lax.map(tile, (tiles_of(frequencies, shape), alleles))
    return individual_sums(ratios.sum(0).reshape(-1, 1), shape)[:, 0], ()


def _probabilities(q: Array, frequencies: Array, shown: Array) -> tuple[Array, Array]:
    """Probabilities of observed alleles (row, locus) by the first and the second ancestry of q (row, 2, population)."""
    allele, sums = shown.astype(jnp.int32), [jnp.zeros((), jnp.float32)] * 2
    for population, table in enumerate(frequencies):
        p = of_shown(table, allele)
        sums = [total + q[:, which, population, None] * p for which, total in enumerate(sums)]
    before, after = (jnp.where(shown == MISSING, 1.0, total) for total in sums)
    return before, after
