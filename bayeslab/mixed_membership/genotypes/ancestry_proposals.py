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

from bayeslab.mixed_membership.counts import NUM_VECTOR_LANES, largest_divisor
from bayeslab.mixed_membership.devices import DeviceContext
from bayeslab.mixed_membership.dirichlet import log_prior_ratio
from bayeslab.mixed_membership.genotypes.allele_counts import (
    MISSING_ALLELE,
    ROWS_PER_STEP,
    GenotypeShape,
    group_rows,
    observed_frequencies,
    sum_to_individuals,
    to_rows,
    to_tiles,
)
from bayeslab.mixed_membership.genotypes.biallelic import biallelic_ancestry_gradient
from bayeslab.mixed_membership.genotypes.newton import ancestry_derivatives, clip_to_simplex, symmetric_indices
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.genotypes.truncated_normal import (
    ProposedMove,
    TruncatedNormal,
    centre,
    on_simplex,
    overrelaxed,
    recentre,
)

MAX_RATIOS_PER_STEP = 2**15
"""Ratios of probabilities in one step, about: they are in memory together."""
FACTORS_PER_LOG = 16
"""Ratios of probabilities near 1 that are multiplied before their log is taken."""


class AncestryExpansion(NamedTuple):
    """The quadratic expansion of the log posterior of ancestry.

    at: ancestry (population, individual) that it is about. proposal: the truncated normal distribution that it gives.
    """

    at: Array
    proposal: TruncatedNormal


def expand_ancestry(
    position: Array, frequencies: Array, alleles: Array, shape: GenotypeShape, prior: Array
) -> AncestryExpansion:
    """The expansion about an ancestry.

    position: ancestry (individual, population), where the posterior has its mass.
    prior: concentrations of the same shape.
    """
    position = clip_to_simplex(position).astype(jnp.float32)
    curvature = ancestry_derivatives(position, frequencies, alleles, shape)[1].T[symmetric_indices(shape.populations)]
    bend = (jnp.maximum(prior - 1, 0.0) / position**2).T
    exact = position.T.astype(jnp.result_type(float))
    return AncestryExpansion(position.T, on_simplex(exact, curvature + bend * jnp.eye(shape.populations)[:, :, None]))


def metropolis_step(
    key: Array,
    position: Position,
    genotypes: Genotypes,
    prior: Array,
    expansion: AncestryExpansion,
    overrelaxation: Array,
) -> tuple[Array, Array, Array, Array]:
    """Ancestry after a Metropolis-Hastings step of every individual, the sum of accepted log likelihood ratios, the
    share of individuals that accepted, and the mode of ancestry, which depends on the frequencies alone.

    prior: concentrations (individual, population).
    expansion: see `expand_ancestry`. overrelaxation: see `overrelaxed`.
    """
    proposal_key, acceptance_key = jax.random.split(key)
    proposal, move = propose_ancestry(proposal_key, position, genotypes, prior, expansion, overrelaxation)
    taken, gained = move.accepted(acceptance_key)
    new = jnp.where(taken[:, None], move.new, position.ancestry)
    return new, gained, taken.mean(), centre(proposal).T.astype(position.ancestry.dtype)


def propose_ancestry(
    key: Array,
    position: Position,
    genotypes: Genotypes,
    prior: Array,
    expansion: AncestryExpansion,
    overrelaxation: Array,
) -> tuple[TruncatedNormal, ProposedMove]:
    """The proposal distribution of ancestry, and the ancestry that is proposed."""
    ancestry, frequencies = position
    gradient = ancestry_gradient(expansion.at.T, frequencies, *genotypes).T
    gradient = gradient + jnp.maximum(prior.T - 1, 0.0) / expansion.at
    proposal = recentre(expansion.proposal, gradient)
    new, log_density, possible = overrelaxed(key, proposal, ancestry.T, overrelaxation)
    new = jnp.where(possible[:, None], new.T, ancestry).astype(ancestry.dtype)
    gain = log_likelihood_ratio(ancestry, new, frequencies, *genotypes)
    ratio = gain + log_prior_ratio(prior, ancestry, new).sum(1) - log_density
    return proposal, ProposedMove(new, gain, ratio, possible)


def ancestry_gradient(ancestry: Array, frequencies: Array, alleles: Array, shape: GenotypeShape) -> Array:
    """The gradient of the log likelihood by ancestry (individual, population); with two alleles up to a constant, see
    `biallelic_ancestry_gradient`."""
    if shape.alleles == 2:
        return biallelic_ancestry_gradient(ancestry, frequencies, alleles, shape)
    return shape.devices.run(partial(_gradient_on_device, shape=shape.part), ancestry, alleles, frequencies)[0]


def log_likelihood_ratio(
    before: Array, after: Array, frequencies: Array, alleles: Array, shape: GenotypeShape
) -> Array:
    """Log likelihood ratios of individuals (individual,), of the ancestry after over the ancestry before."""
    both = jnp.stack([before, after], 1)
    return shape.devices.run(partial(_log_likelihood_ratio_on_device, shape=shape.part), both, alleles, frequencies)[0]


def _gradient_on_device(
    _: DeviceContext, ancestry: Array, alleles: Array, frequencies: Array, shape: GenotypeShape
) -> tuple[Array, tuple[()]]:
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

        return lax.scan(step, None, group_rows(ROWS_PER_STEP, to_rows(ancestry, shape), alleles))[1]

    return sum_to_individuals(lax.map(tile, (to_tiles(frequencies, shape), alleles)).sum(0), shape), ()


def _log_likelihood_ratio_on_device(
    _: DeviceContext, both: Array, alleles: Array, frequencies: Array, shape: GenotypeShape
) -> tuple[Array, tuple[()]]:
    """Log likelihood ratios of the individuals of one device. both: ancestry (individual, 2, population)."""
    dtype = jnp.result_type(float)
    rows, number = to_rows(both, shape), largest_divisor(ROWS_PER_STEP, MAX_RATIOS_PER_STEP // shape.width)

    def tile(given: tuple[Array, Array]) -> Array:
        frequencies, alleles = given

        def step(_: None, given: tuple[Array, Array]) -> tuple[None, Array]:
            q, observed_allele = given
            of_copies = zip(
                *(_observed_probabilities(q, frequencies, observed_allele[:, copy]) for copy in range(2)), strict=True
            )
            before, after = (first_copy * second_copy for first_copy, second_copy in of_copies)
            ratios = lax.optimization_barrier(after / before).reshape(len(q), -1, NUM_VECTOR_LANES)
            whole = ratios.shape[1] // FACTORS_PER_LOG * FACTORS_PER_LOG
            products = ratios[:, :whole].reshape(len(q), -1, FACTORS_PER_LOG, NUM_VECTOR_LANES).prod(2)
            remainder = ratios[:, whole:].prod(1)
            return None, jnp.log(products).astype(dtype).sum((1, 2)) + jnp.log(remainder).astype(dtype).sum(1)

        return lax.scan(step, None, group_rows(number, rows, alleles))[1]

    ratios = lax.map(tile, (to_tiles(frequencies, shape), alleles))
    return sum_to_individuals(ratios.sum(0).reshape(-1, 1), shape)[:, 0], ()


def _observed_probabilities(q: Array, frequencies: Array, observed_allele: Array) -> tuple[Array, Array]:
    """Probabilities of observed alleles (row, locus) by the first and the second ancestry of q (row, 2, population)."""
    allele, sums = observed_allele.astype(jnp.int32), [jnp.zeros((), jnp.float32)] * 2
    for population, table in enumerate(frequencies):
        p = observed_frequencies(table, allele)
        sums = [total + q[:, which, population, None] * p for which, total in enumerate(sums)]
    before, after = (jnp.where(observed_allele == MISSING_ALLELE, 1.0, total) for total in sums)
    return before, after
