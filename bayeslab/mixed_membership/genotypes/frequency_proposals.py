"""Metropolis-Hastings steps of the frequencies of two alleles given ancestry alone, origins summed out.

Loci are independent of each other then, so every locus has its own proposal and its own decision, as individuals have
in `bayeslab.mixed_membership.genotypes.ancestry_proposals`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.mixed_membership.dirichlet import Priors, log_prior_ratio
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.genotypes.biallelic import (
    frequency_curvature,
    frequency_gradient,
    locus_log_likelihood_ratio,
)
from bayeslab.mixed_membership.genotypes.newton import symmetric_indices
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.genotypes.truncated_normal import (
    ProposedMove,
    TruncatedNormal,
    in_cube,
    overrelaxed,
    recentre,
)

MIN_EXPANSION_FREQUENCY = 1e-3
"""Smallest distance to 0 and 1 of frequencies that the log likelihood is expanded about."""


class FrequencyExpansion(NamedTuple):
    """The quadratic expansion of the log posterior of frequencies.

    at: frequencies of the second allele (population, locus) that it is about. proposal: the truncated normal
    distribution that it gives.
    """

    at: Array
    proposal: TruncatedNormal


def expand_frequencies(
    position: Array, ancestry: Array, alleles: Array, shape: GenotypeShape, prior: Array
) -> FrequencyExpansion:
    """The expansion about frequencies.

    position: frequencies (population, locus, allele), where the posterior has its mass.
    prior: concentrations of the same shape.
    """
    position = jnp.clip(position[..., 1], MIN_EXPANSION_FREQUENCY, 1 - MIN_EXPANSION_FREQUENCY).astype(jnp.float32)
    bend = jnp.maximum(prior - 1, 0.0)
    bend = bend[..., 1] / position**2 + bend[..., 0] / (1 - position) ** 2
    matrix = frequency_curvature(ancestry, position, alleles, shape)[symmetric_indices(shape.populations)]
    return FrequencyExpansion(position, in_cube(position, matrix + bend * jnp.eye(shape.populations)[:, :, None]))


def metropolis_step_of_loci(
    key: Array,
    position: Position,
    genotypes: Genotypes,
    prior: Priors,
    expansion: FrequencyExpansion,
    overrelaxation: Array,
) -> tuple[Array, Array, Array]:
    """Frequencies after a Metropolis-Hastings step of every locus, the sum of accepted log likelihood ratios, and the
    share of loci that accepted.

    A locus with a single allele has nothing to draw.
    expansion: see `expand_frequencies`. overrelaxation: see `overrelaxed`.
    """
    proposal_key, acceptance_key = jax.random.split(key)
    _, move = propose_frequencies(proposal_key, position, genotypes, prior, expansion, overrelaxation)
    taken, gained = move.accepted(acceptance_key)
    share = taken.sum() / jnp.maximum(prior.is_allele.all(1).sum(), 1)
    return jnp.where(taken[:, None], move.new, position.frequencies), gained, share


def propose_frequencies(
    key: Array,
    position: Position,
    genotypes: Genotypes,
    prior: Priors,
    expansion: FrequencyExpansion,
    overrelaxation: Array,
) -> tuple[TruncatedNormal, ProposedMove]:
    """The proposal distribution of frequencies, and the frequencies that are proposed."""
    (ancestry, frequencies), centre = position, expansion.at
    bend = jnp.maximum(prior.components - 1, 0.0)
    gradient = frequency_gradient(ancestry, centre, *genotypes) + bend[..., 1] / centre - bend[..., 0] / (1 - centre)
    proposal = recentre(expansion.proposal, gradient)
    new, log_density, returns = overrelaxed(key, proposal, frequencies[..., 1], overrelaxation)
    possible = prior.is_allele.all(1) & returns
    new = with_both_alleles(jnp.where(possible, new, frequencies[..., 1]), frequencies)
    gain = locus_log_likelihood_ratio((ancestry, ancestry), (frequencies, new), *genotypes)
    ratio = gain + log_prior_ratio(prior.components, frequencies, new).sum((0, 2)) - log_density
    return proposal, ProposedMove(new, gain, ratio, possible)


def with_both_alleles(second: Array, before: Array) -> Array:
    """Frequencies (population, locus, allele) with these of the second allele (population, locus).

    Where the second stays the first is copied: beside 1 it has digits that 1 less the second has not.
    """
    second = second.astype(before.dtype)
    return jnp.where((second == before[..., 1])[..., None], before, jnp.stack([1 - second, second], -1))
