"""Ancestry and frequencies of two alleles moved together, along what one makes up for in the other.

Of ancestry Q and frequencies P the likelihood knows the product alone, which is that of Q M and of the inverse of M
times P, for every matrix M whose rows sum to 1: only the sides of the simplex and the cube hold such moves back. Draws
of one given the other go there in steps that are short beside their spread. Here M is made of K (K - 1) shares, each of
one population that goes to another. Proposals follow M, and points follow these with the scores that they have
(`carried`). So all genotypes inside keep their likelihood, the opposite shares lead back, and the log density of the
shares is nearly a quadratic: its curvature is what the sides take away from that of the likelihood, its top is learned
in the warm-up from what moves gained. Moves go to the other side of it, as proposals do.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from bayeslab.mixed_membership.dirichlet import Priors, powers_gained
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.genotypes.ancestry_proposals import Reference
from bayeslab.mixed_membership.genotypes.biallelic import gains_of_loci
from bayeslab.mixed_membership.genotypes.frequency_proposals import LociReference, both_alleles
from bayeslab.mixed_membership.genotypes.transport import carried, curvatures
from bayeslab.mixed_membership.genotypes.truncated_normal import Cut

SLOW = 0.12
"""Curvature of the density of shares, as a part of that of the likelihood of ancestry, below which directions are
moved in: in others draws of one given the other are as good."""
LEAST = 1e-3
"""Curvature that directions have, as a part of that."""
FARTHEST = float(np.arccos(-0.95))
"""Angle of a move about the top: half a turn would lead to the opposite."""
NEAREST = 0.1
"""Angle of moves for which they are not worth their time."""
ACCEPTED = 0.3
"""Share of moves that angles of the warm-up aim at."""
SHORTER = 0.1
"""Share of moves that go any part of the angle: far from the top, or where it is not what it is taken for, they are
taken sooner."""
GAIN = 0.2
"""How far an angle follows one move, in its log."""
UNKNOWN = 10.0
"""Variance of the top, before a move is made."""
DOUBT = 0.2
"""Standard deviation of what a move gains, about the quadratic, as a part of how far out it is, squared and halved."""


class Exchange(NamedTuple):
    """at (population, individual): ancestry from which shares are measured. curvature (population, population,
    individual): of the log likelihood there. measure: from slopes of shares to their coordinates, in which the log
    density is -(z - top)^2 / 2 about; root: from coordinates to shares. slow: which coordinates are moved. top,
    covariance: what is known of the top, a normal distribution. angle: how far moves go.
    """

    at: Array
    curvature: Array
    measure: Array
    root: Array
    slow: Array
    top: Array
    covariance: Array
    angle: Array

    @property
    def moves(self) -> Array:
        return self.slow.any() & (self.angle > NEAREST)


def exchange_about(ancestry: Array, frequencies: Array, about: Reference, loci: LociReference, real: Array) -> Exchange:
    """ancestry (individual, population), frequencies (population, locus, allele): draws, whose scores show how points
    follow at the sides. real: which alleles a locus has (locus, allele)."""
    at, p = about.at.astype(jnp.result_type(float)), loci.at
    whole, left = curvatures(about.proposal, ancestry.T)
    pairs = at[:, None] * at
    inner = _by_shares(jnp.einsum("abn,kln->abkl", pairs, left))
    taken = _by_shares(jnp.einsum("abn,kln->abkl", pairs, whole - left))
    of_loci, left_of_loci = curvatures(loci.proposal, frequencies[..., 1])
    lost = jnp.where(real.all(1), of_loci - left_of_loci, 0.0)
    taken += _by_shares(jnp.einsum("abl,kml->abkm", lost, p[:, None] * p))
    lower = jnp.linalg.cholesky(inner)
    values, vectors = jnp.linalg.eigh(solve_triangular(lower, solve_triangular(lower, taken, lower=True).T, lower=True))
    sizes, axes = jnp.sqrt(jnp.maximum(values, LEAST)), solve_triangular(lower, vectors, lower=True, trans=1)
    top, covariance = jnp.zeros_like(sizes), UNKNOWN * jnp.eye(len(sizes))
    return Exchange(at, whole, (axes * sizes).T, axes / sizes, values < SLOW, top, covariance, jnp.array(FARTHEST))


def exchanged(
    key: Array,
    ancestry: Array,
    frequencies: Array,
    exchange: Exchange,
    proposals: tuple[Cut, Cut],
    alleles: Array,
    shape: Shape,
    prior: Priors,
    learn: Array,
) -> tuple[Array, Array, Exchange, Array, Array]:
    """Ancestry and frequencies after a move, what is known then, the log likelihood gained, and whether the move was
    taken. proposals: of individuals and of loci. learn: whether more is known by the move."""
    first, second, third, fourth = jax.random.split(key, 4)
    part = jnp.where(jax.random.uniform(third) < SHORTER, jax.random.uniform(fourth, minval=0.01), 1.0)
    angle = part * exchange.angle
    before = _coordinates(exchange, ancestry)
    noise = jnp.where(exchange.slow, jnp.sin(angle) * jax.random.normal(first, before.shape), 0.0)
    to = _turned(exchange, before, angle) + noise
    shares = exchange.root @ (to - before)
    new_ancestry, new_frequencies, gain, found = displaced(
        ancestry, frequencies, shares, proposals, alleles, shape, prior
    )
    after = _coordinates(exchange, new_ancestry)
    noise_back = jnp.where(exchange.slow, after - (to - before) - _turned(exchange, after, angle), 0.0)
    ratio = found + ((noise**2).sum() - (noise_back**2).sum()) / (2 * jnp.sin(angle) ** 2)
    chance = jnp.where(jnp.isfinite(found), jnp.minimum(jnp.exp(ratio), 1.0), 0.0)
    taken = jax.random.uniform(second) < chance
    known = _learned(exchange, before, to, found, chance)
    return (
        jnp.where(taken, new_ancestry, ancestry),
        jnp.where(taken, new_frequencies, frequencies),
        jax.tree.map(lambda one, other: jnp.where(learn, one, other), known, exchange),
        jnp.where(taken, gain, 0.0),
        taken,
    )


def displaced(
    ancestry: Array,
    frequencies: Array,
    shares: Array,
    proposals: tuple[Cut, Cut],
    alleles: Array,
    shape: Shape,
    prior: Priors,
) -> tuple[Array, Array, Array, Array]:
    """Ancestry and frequencies with so many shares exchanged, the log likelihood gained, and the log posterior with the
    change of volume, NaN where the opposite shares do not lead back."""
    onward, back = (_matrix(sign * shares / 2, shape.populations) for sign in (1, -1))
    q, shrunk, returns = carried(proposals[0], (back.T, onward.T), ancestry.T)
    p, shrunk_loci, loci_return = carried(proposals[1], (onward, back), frequencies[..., 1])
    both = prior.real.all(1)
    new_ancestry = q.T.astype(ancestry.dtype)
    new_frequencies = both_alleles(jnp.where(both, p, frequencies[..., 1]), frequencies)
    gain = gains_of_loci((ancestry, new_ancestry), (frequencies, new_frequencies), alleles, shape).sum()
    found = gain - shrunk.astype(gain.dtype).sum() - jnp.where(both, shrunk_loci, 0.0).astype(gain.dtype).sum()
    found += powers_gained(prior.weights, ancestry, new_ancestry).sum()
    found += powers_gained(prior.components, frequencies, new_frequencies).sum()
    possible = returns.all() & (loci_return | ~both).all()
    return new_ancestry, new_frequencies, gain, jnp.where(possible, found, jnp.nan)


def _turned(exchange: Exchange, coordinates: Array, angle: Array) -> Array:
    """About the top."""
    turned = exchange.top + jnp.cos(angle) * (coordinates - exchange.top)
    return jnp.where(exchange.slow, turned, coordinates)


def _learned(exchange: Exchange, before: Array, to: Array, found: Array, chance: Array) -> Exchange:
    """From found = |before - top|^2 / 2 - |to - top|^2 / 2 and an error, of whose size is thought above. What is not
    finite tells nothing."""
    way = to - before
    out = jnp.where(exchange.slow, before**2 + to**2, 0.0).sum() / 2
    follows = exchange.covariance @ way
    tells = jnp.isfinite(found)
    weight = jnp.where(tells, follows / (way @ follows + 1 + (DOUBT * out) ** 2), 0.0)
    more = jnp.where(tells, found - (before**2 - to**2).sum() / 2 - way @ exchange.top, 0.0)
    angle = jnp.clip(exchange.angle * jnp.exp(GAIN * (chance - ACCEPTED)), NEAREST / 2, FARTHEST)
    covariance = exchange.covariance - jnp.outer(weight, follows)
    return exchange._replace(top=exchange.top + weight * more, covariance=covariance, angle=angle)


def _coordinates(exchange: Exchange, ancestry: Array) -> Array:
    slopes = jnp.einsum("kln,ln->kn", exchange.curvature, ancestry.T - exchange.at)
    of_pairs = exchange.at @ slopes.T
    one, other = _shares(len(of_pairs))
    return exchange.measure @ (of_pairs[one, other] - of_pairs[one, one])


def _matrix(shares: Array, populations: int) -> Array:
    """Its rows sum to 1, and its inverse has the opposite shares (Cayley)."""
    one, other = _shares(populations)
    matrix = jnp.zeros((populations, populations), shares.dtype).at[one, other].set(shares / 2)
    matrix -= jnp.diag(matrix.sum(1))
    return jnp.linalg.solve(jnp.eye(populations) - matrix, jnp.eye(populations) + matrix)


def _by_shares(sums: Array) -> Array:
    """Second derivatives (share, share) of sums (from, from, category, category)."""
    one, other = _shares(len(sums))

    def part(left: np.ndarray, right: np.ndarray) -> Array:
        return sums[one[:, None], one[None], left[:, None], right[None]]

    return part(other, other) - part(other, one) - part(one, other) + part(one, one)


def _shares(populations: int) -> tuple[np.ndarray, np.ndarray]:
    """From which population each goes, and to which."""
    return np.nonzero(~np.eye(populations, dtype=bool))
