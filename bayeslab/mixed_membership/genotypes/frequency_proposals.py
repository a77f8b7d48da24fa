"""Metropolis-Hastings steps of the frequencies of two alleles given ancestry alone, origins summed out.

Loci are independent of each other then, so every locus has its own proposal and its own decision, as individuals have
in `bayeslab.mixed_membership.genotypes.ancestry_proposals`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.mixed_membership.dirichlet import powers_gained
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.genotypes.biallelic import curvature_of_loci, gains_of_loci, slopes_of_loci
from bayeslab.mixed_membership.genotypes.newton import square
from bayeslab.mixed_membership.genotypes.truncated_normal import Cut, Move, in_cube, moved, relaxed

EDGE = 1e-3
"""Smallest distance to 0 and 1 of frequencies that the log likelihood is expanded about."""


class LociReference(NamedTuple):
    """The quadratic expansion of the log posterior of frequencies.

    at: frequencies of the second allele (population, locus) that it is about. proposal: the truncated normal
    distribution that it gives.
    """

    at: Array
    proposal: Cut


def loci_reference(at: Array, ancestry: Array, alleles: Array, shape: Shape, prior: Array) -> LociReference:
    """The expansion about frequencies.

    at: frequencies (population, locus, allele), where the posterior has its mass.
    prior: concentrations of the same shape.
    """
    at = jnp.clip(at[..., 1], EDGE, 1 - EDGE).astype(jnp.float32)
    bend = jnp.maximum(prior - 1, 0.0)
    bend = bend[..., 1] / at**2 + bend[..., 0] / (1 - at) ** 2
    matrix = curvature_of_loci(ancestry, at, alleles, shape)[square(shape.populations)]
    return LociReference(at, in_cube(at, matrix + bend * jnp.eye(shape.populations)[:, :, None]))


def loci_anew(
    key: Array,
    ancestry: Array,
    frequencies: Array,
    alleles: Array,
    shape: Shape,
    prior: Array,
    real: Array,
    about: LociReference,
    back: Array,
) -> tuple[Array, Array, Array]:
    """Frequencies after a Metropolis-Hastings step of every locus, the sum of accepted log likelihood ratios, and the
    share of loci that accepted.

    real: which alleles a locus has (locus, allele); with one of them it has nothing to draw.
    about: see `loci_reference`. back: see `relaxed`.
    """
    proposal_key, acceptance_key = jax.random.split(key)
    _, move = proposed(proposal_key, ancestry, frequencies, alleles, shape, prior, real, about, back)
    taken, gained = move.accepted(acceptance_key)
    share = taken.sum() / jnp.maximum(real.all(1).sum(), 1)
    return jnp.where(taken[:, None], move.new, frequencies), gained, share


def proposed(
    key: Array,
    ancestry: Array,
    frequencies: Array,
    alleles: Array,
    shape: Shape,
    prior: Array,
    real: Array,
    about: LociReference,
    back: Array,
) -> tuple[Cut, Move]:
    """The proposal distribution of frequencies, and the frequencies that are proposed."""
    centre, bend = about.at, jnp.maximum(prior - 1, 0.0)
    gradient = slopes_of_loci(ancestry, centre, alleles, shape) + bend[..., 1] / centre - bend[..., 0] / (1 - centre)
    proposal = moved(about.proposal, gradient)
    new, log_density, returns = relaxed(key, proposal, frequencies[..., 1], back)
    possible = real.all(1) & returns
    new = both_alleles(jnp.where(possible, new, frequencies[..., 1]), frequencies)
    gain = gains_of_loci((ancestry, ancestry), (frequencies, new), alleles, shape)
    ratio = gain + powers_gained(prior, frequencies, new).sum((0, 2)) - log_density
    return proposal, Move(new, gain, ratio, possible)


def both_alleles(second: Array, before: Array) -> Array:
    """Frequencies (population, locus, allele) with these of the second allele (population, locus).

    Where the second stays the first is copied: beside 1 it has digits that 1 less the second has not.
    """
    second = second.astype(before.dtype)
    return jnp.where((second == before[..., 1])[..., None], before, jnp.stack([1 - second, second], -1))
