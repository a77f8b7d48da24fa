"""Joint Metropolis-Hastings moves of ancestry and frequencies of two alleles, along what one makes up for in the other.

Of ancestry Q and frequencies P the likelihood knows the product alone, which is that of Q M and of the inverse of M
times P, for every matrix M whose rows sum to 1: only the sides of the simplex and the cube hold such moves back. Draws
of one given the other go there in steps that are short beside their spread. Here M is made of K (K - 1) shares, each of
one population that goes to another. Proposals follow M, and points follow these with the scores that they have
(`bayeslab.mixed_membership.genotypes.transport`). So all genotypes inside keep their likelihood, the opposite shares
lead back, and the log density of the shares is nearly a quadratic: its curvature is what the sides take away from that
of the likelihood, its mode is learned in the warm-up from what moves gained. Moves are over-relaxed, to the other side
of the mode, as proposals are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from bayeslab.mixed_membership.dirichlet import Priors, log_prior_ratio
from bayeslab.mixed_membership.genotypes.ancestry_proposals import AncestryExpansion
from bayeslab.mixed_membership.genotypes.biallelic import locus_log_likelihood_ratio
from bayeslab.mixed_membership.genotypes.frequency_proposals import FrequencyExpansion, with_both_alleles
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.genotypes.transport import proposal_curvatures, transport_points
from bayeslab.mixed_membership.genotypes.truncated_normal import TruncatedNormal

MAX_SLOW_CURVATURE_RATIO = 0.12
"""Curvature of the density of shares, over that of the likelihood of ancestry, below which directions are moved in: in
others, draws of ancestry and frequencies given each other are as good."""
MIN_CURVATURE_RATIO = 1e-3
"""Smallest curvature that a direction is given, over that of the likelihood of ancestry."""
MAX_ANGLE_RADIANS = float(np.arccos(-0.95))
"""Largest angle of a move about the mode, in radians: half a turn would lead to the opposite point."""
MIN_ANGLE_RADIANS = 0.1
"""Angle in radians up to which moves are not worth their time."""
TARGET_ACCEPTANCE = 0.3
"""Acceptance probability that the angle is adapted to in the warm-up."""
SHORT_MOVE_SHARE = 0.1
"""Share of moves that go by a random part of the angle: far from the mode, or where the mode is not what it is taken
for, they are accepted sooner."""
LOG_ANGLE_STEP = 0.2
"""Step of the log of the angle, per unit of acceptance probability above the target."""
INITIAL_MODE_VARIANCE = 10.0
"""Variance of the mode before a move is made."""
RELATIVE_ERROR_SD = 0.2
"""Standard deviation of the log ratio of a move about that of the quadratic, over half the squared distance from 0."""


class JointMoves(NamedTuple):
    """What joint moves are made of.

    at: ancestry (population, individual) from which shares are measured.
    curvature: of the log likelihood there, (population, population, individual).
    measure: the matrix from slopes of shares to their coordinates, in which the log density is about -(z - mode)^2 / 2.
    root: the matrix from coordinates to shares. slow: which coordinates are moved.
    mode, covariance: what is known of the mode, as a normal distribution. angle: how far moves go, in radians.
    """

    at: Array
    curvature: Array
    measure: Array
    root: Array
    slow: Array
    mode: Array
    covariance: Array
    angle: Array

    @property
    def moves(self) -> Array:
        """Whether joint moves are worth their time."""
        return self.slow.any() & (self.angle > MIN_ANGLE_RADIANS)


def expand_joint_moves(
    ancestry: Array, frequencies: Array, expansion: AncestryExpansion, loci: FrequencyExpansion, is_allele: Array
) -> JointMoves:
    """Joint moves about an expansion.

    ancestry (individual, population), frequencies (population, locus, allele): draws, whose scores show how points
    follow at the sides. is_allele: which alleles a locus has (locus, allele).
    """
    centre, p = expansion.at.astype(jnp.result_type(float)), loci.at
    whole, remainder = proposal_curvatures(expansion.proposal, ancestry.T)
    pairs = centre[:, None] * centre
    inner = _second_derivatives_by_shares(jnp.einsum("abn,kln->abkl", pairs, remainder))
    taken = _second_derivatives_by_shares(jnp.einsum("abn,kln->abkl", pairs, whole - remainder))
    whole_of_loci, remainder_of_loci = proposal_curvatures(loci.proposal, frequencies[..., 1])
    lost = jnp.where(is_allele.all(1), whole_of_loci - remainder_of_loci, 0.0)
    taken += _second_derivatives_by_shares(jnp.einsum("abl,kml->abkm", lost, p[:, None] * p))
    lower = jnp.linalg.cholesky(inner)
    values, vectors = jnp.linalg.eigh(solve_triangular(lower, solve_triangular(lower, taken, lower=True).T, lower=True))
    sizes, axes = (
        jnp.sqrt(jnp.maximum(values, MIN_CURVATURE_RATIO)),
        solve_triangular(lower, vectors, lower=True, trans=1),
    )
    mode, covariance = jnp.zeros_like(sizes), INITIAL_MODE_VARIANCE * jnp.eye(len(sizes))
    return JointMoves(
        centre,
        whole,
        (axes * sizes).T,
        axes / sizes,
        values < MAX_SLOW_CURVATURE_RATIO,
        mode,
        covariance,
        jnp.array(MAX_ANGLE_RADIANS),
    )


def joint_metropolis_step(
    key: Array,
    position: Position,
    joint_moves: JointMoves,
    proposals: tuple[TruncatedNormal, TruncatedNormal],
    genotypes: Genotypes,
    prior: Priors,
) -> tuple[Position, JointMoves, Array, Array]:
    """The position after a Metropolis-Hastings step, joint moves whose mode and angle are adapted to it, the log
    likelihood ratio, and whether the move was accepted.

    proposals: of individuals and of loci.
    """
    noise_key, acceptance_key, choice_key, part_key = jax.random.split(key, 4)
    part = jnp.where(jax.random.uniform(choice_key) < SHORT_MOVE_SHARE, jax.random.uniform(part_key, minval=0.01), 1.0)
    angle = part * joint_moves.angle
    before = _move_coordinates(joint_moves, position.ancestry)
    noise = jnp.where(joint_moves.slow, jnp.sin(angle) * jax.random.normal(noise_key, before.shape), 0.0)
    target = _rotate_about_mode(joint_moves, before, angle) + noise
    shares = joint_moves.root @ (target - before)
    new, gain, log_ratio = exchange_shares(position, shares, proposals, genotypes, prior)
    after = _move_coordinates(joint_moves, new.ancestry)
    noise_back = jnp.where(
        joint_moves.slow, after - (target - before) - _rotate_about_mode(joint_moves, after, angle), 0.0
    )
    ratio = log_ratio + ((noise**2).sum() - (noise_back**2).sum()) / (2 * jnp.sin(angle) ** 2)
    chance = jnp.where(jnp.isfinite(log_ratio), jnp.minimum(jnp.exp(ratio), 1.0), 0.0)
    taken = jax.random.uniform(acceptance_key) < chance
    updated = _update_mode(joint_moves, before, target, log_ratio, chance)
    chosen = jax.tree.map(lambda new, old: jnp.where(taken, new, old), new, position)
    return chosen, updated, jnp.where(taken, gain, 0.0), taken


def exchange_shares(
    position: Position,
    shares: Array,
    proposals: tuple[TruncatedNormal, TruncatedNormal],
    genotypes: Genotypes,
    prior: Priors,
) -> tuple[Position, Array, Array]:
    """The position with these shares exchanged, the log likelihood ratio, and the log posterior ratio with the change
    of volume, NaN where the opposite shares do not lead back."""
    ancestry, frequencies = position
    forward, backward = (_cayley_transform(sign * shares / 2, genotypes.shape.populations) for sign in (1, -1))
    q, shrunk, returns = transport_points(proposals[0], (backward.T, forward.T), ancestry.T)
    p, shrunk_loci, loci_return = transport_points(proposals[1], (forward, backward), frequencies[..., 1])
    is_biallelic = prior.is_allele.all(1)
    new_ancestry = q.T.astype(ancestry.dtype)
    new_frequencies = with_both_alleles(jnp.where(is_biallelic, p, frequencies[..., 1]), frequencies)
    gain = locus_log_likelihood_ratio((ancestry, new_ancestry), (frequencies, new_frequencies), *genotypes).sum()
    log_ratio = (
        gain - shrunk.astype(gain.dtype).sum() - jnp.where(is_biallelic, shrunk_loci, 0.0).astype(gain.dtype).sum()
    )
    log_ratio += log_prior_ratio(prior.weights, ancestry, new_ancestry).sum()
    log_ratio += log_prior_ratio(prior.components, frequencies, new_frequencies).sum()
    possible = returns.all() & (loci_return | ~is_biallelic).all()
    return Position(new_ancestry, new_frequencies), gain, jnp.where(possible, log_ratio, jnp.nan)


def _rotate_about_mode(joint_moves: JointMoves, coordinates: Array, angle: Array) -> Array:
    """Coordinates turned about the mode by an angle, as far as they are moved."""
    turned = joint_moves.mode + jnp.cos(angle) * (coordinates - joint_moves.mode)
    return jnp.where(joint_moves.slow, turned, coordinates)


def _update_mode(joint_moves: JointMoves, before: Array, target: Array, log_ratio: Array, chance: Array) -> JointMoves:
    """Joint moves whose mode and angle are adapted to one move: a Kalman update of the mode.

    The measurement is log_ratio = |before - mode|^2 / 2 - |target - mode|^2 / 2 and an error, whose standard deviation
    has a part that RELATIVE_ERROR_SD gives. A value that is not finite tells nothing. chance: the acceptance
    probability.
    """
    displacement = target - before
    half_square_distance = jnp.where(joint_moves.slow, before**2 + target**2, 0.0).sum() / 2
    follows = joint_moves.covariance @ displacement
    is_informative = jnp.isfinite(log_ratio)
    weight = jnp.where(
        is_informative, follows / (displacement @ follows + 1 + (RELATIVE_ERROR_SD * half_square_distance) ** 2), 0.0
    )
    residual = jnp.where(
        is_informative, log_ratio - (before**2 - target**2).sum() / 2 - displacement @ joint_moves.mode, 0.0
    )
    angle = jnp.clip(
        joint_moves.angle * jnp.exp(LOG_ANGLE_STEP * (chance - TARGET_ACCEPTANCE)),
        MIN_ANGLE_RADIANS / 2,
        MAX_ANGLE_RADIANS,
    )
    covariance = joint_moves.covariance - jnp.outer(weight, follows)
    return joint_moves._replace(mode=joint_moves.mode + weight * residual, covariance=covariance, angle=angle)


def _move_coordinates(joint_moves: JointMoves, ancestry: Array) -> Array:
    """The coordinates of the shares that lead to an ancestry (individual, population)."""
    slopes = jnp.einsum("kln,ln->kn", joint_moves.curvature, ancestry.T - joint_moves.at)
    of_pairs = joint_moves.at @ slopes.T
    source, target = _share_indices(len(of_pairs))
    return joint_moves.measure @ (of_pairs[source, target] - of_pairs[source, source])


def _cayley_transform(shares: Array, populations: int) -> Array:
    """The matrix of shares, by a Cayley transform: its rows sum to 1, and its inverse has the opposite shares."""
    source, target = _share_indices(populations)
    matrix = jnp.zeros((populations, populations), shares.dtype).at[source, target].set(shares / 2)
    matrix -= jnp.diag(matrix.sum(1))
    return jnp.linalg.solve(jnp.eye(populations) - matrix, jnp.eye(populations) + matrix)


def _second_derivatives_by_shares(sums: Array) -> Array:
    """Second derivatives (share, share) of sums (from, from, category, category)."""
    source, target = _share_indices(len(sums))

    def entries(left: np.ndarray, right: np.ndarray) -> Array:
        return sums[source[:, None], source[None], left[:, None], right[None]]

    return entries(target, target) - entries(target, source) - entries(source, target) + entries(source, source)


def _share_indices(populations: int) -> tuple[np.ndarray, np.ndarray]:
    """The population that every share comes from, and the one it goes to."""
    return np.nonzero(~np.eye(populations, dtype=bool))
