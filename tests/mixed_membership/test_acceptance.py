"""Moves of ancestry and frequencies are accepted by the ratio that Metropolis and Hastings ask for.

Log posteriors, scores and densities of proposals are computed again in double precision, of the numbers as they are
kept, without the code of the library: concentrations from 1e-4, alleles of which there are no copy, one and two, and
frequencies near both ends.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp, xlogy
from scipy.stats import norm

import bayeslab as bl
from bayeslab import datasets
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.draw_checks import require_likelihood, require_no_falls
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, pack
from bayeslab.mixed_membership.genotypes.ancestry_proposals import expand_ancestry
from bayeslab.mixed_membership.genotypes.ancestry_proposals import propose_ancestry as proposed_ancestry
from bayeslab.mixed_membership.genotypes.frequency_proposals import expand_frequencies
from bayeslab.mixed_membership.genotypes.frequency_proposals import propose_frequencies as proposed_frequencies
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.genotypes.truncated_normal import MIN_FREE_DISTANCE, TruncatedNormal
from bayeslab.mixed_membership.recognition import find_membership
from bayeslab.models import structure_admixture
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.draw_checks import FalseConditional

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
INDIVIDUALS, LOCI, POPULATIONS, BACK = 60, 80, 3, 0.9


def genotypes() -> tuple[Array, Array, Array, Array]:
    """Genotypes, ancestry, frequencies (population, locus, allele) and concentrations, in single precision.

    A third of the alleles have no copy, one or two.
    """
    q = RNG.dirichlet(np.full(POPULATIONS, 0.5), INDIVIDUALS)
    p = RNG.uniform(0.05, 0.95, (POPULATIONS, LOCI))
    y = (RNG.random((INDIVIDUALS, LOCI, 2)) < (q @ p)[..., None]).astype(int)
    for locus in range(LOCI // 3):
        y[:, locus] = locus % 2
        y[RNG.integers(INDIVIDUALS, size=locus % 3), locus, 0] ^= 1
        few = RNG.beta(0.05, 1.0, POPULATIONS) + 1e-30
        p[:, locus] = 1 - few if locus % 2 else few
    f = np.stack([1 - p, p], -1)
    f[:, : LOCI // 3, 0] = np.maximum(f[:, : LOCI // 3, 0], 1e-12)
    concentration = 10 ** RNG.uniform(-4, 0.5, (POPULATIONS, LOCI, 2))
    single = np.float32
    return y, q.astype(single), f.astype(single), concentration.astype(single)


def log_likelihood(y: Array, q: Array, f: Array, beside_one: bool) -> Array:
    """(individual, locus). beside_one: whether the first allele has what the second leaves, in single precision."""
    q, f, number = q.astype(float), f.astype(float), y.sum(-1)
    second = q @ f[..., 1]
    first = np.maximum(1 - second, 2.0**-24) if beside_one else q @ f[..., 0]
    return xlogy(number, second) + xlogy(2 - number, first)


def log_share(low: float, high: float) -> float:
    """log of the normal probability between two ends, to as many digits where it is small."""
    if low + high < 0:
        low, high = -high, -low
    upper, lower = log_ndtr(-low), log_ndtr(-high)
    with np.errstate(all="ignore"):  # of what is held there may be nothing between
        return float(upper + np.log1p(-np.exp(lower - upper)))


def scores(proposal: TruncatedNormal, at: Array) -> tuple[Array, Array]:
    """Of one point (coordinate,): its normal scores in the order of the proposal, and the log density of each."""
    order, centre, scale = (np.asarray(one, float) for one in proposal)
    far = 30.0 if proposal.centre.dtype == np.float64 else 11.0  # standard deviations that a mean may be outside
    x, left = at[order.astype(int)].astype(float), 1.0
    found, density, errors = [], [], np.zeros(len(centre))
    for i in range(len(centre)):
        sd, mean = scale[i, i], centre[i] + scale[i] @ errors
        low, high = -mean / sd, (left - mean) / sd
        off = max(low - far, 0.0) + min(high + far, 0.0)
        low, high = low - off, high - off
        standard = low + x[i] / sd
        whole = log_share(low, high)
        below, above = log_share(low, standard) - whole, log_share(standard, high) - whole
        found.append(ndtri_exp(below) if below < above else -ndtri_exp(above))
        density.append(norm.logpdf(standard) - np.log(sd) - whole)
        errors[i] = (x[i] - mean) / sd
        left = max(left - x[i], 1e-9) if proposal.simplex else left
    return np.array(found), np.array(density)


def log_way(scores: tuple[Array, Array], to: tuple[Array, Array], free: Array) -> float:
    """The log density of a move, of coordinates that are free: of the score it comes to given that it comes from."""
    (before, _), (after, density) = ((one[free] for one in each) for each in (scores, to))
    return float((norm.logpdf(after, -BACK * before, np.sqrt(1 - BACK**2)) - norm.logpdf(after) + density).sum())


def held(proposal: TruncatedNormal, at: Array, new: Array) -> Array:
    order = np.asarray(proposal.order)[: len(np.asarray(proposal.centre))]
    return (at == new)[order]


def check(
    proposal: TruncatedNormal, before: Array, after: Array, posterior: Array, ratio: Array, possible: Array
) -> int:
    """before, after: (coordinate, item). posterior: gained by every item. How many moves were compared."""
    compared = 0
    for item in np.flatnonzero(possible):
        one = jax.tree.map(lambda leaf, item=item: leaf[..., item], proposal)
        at, new = before[:, item], after[:, item]
        free = ~held(one, at, new)
        if not free.any():
            continue
        first, second = scores(one, at), scores(one, new)
        right = posterior[item] + log_way(second, first, free) - log_way(first, second, free)
        assert ratio[item] == pytest.approx(right, abs=0.02), (item, at, new)
        inside = new[np.asarray(one.order)[: len(free)]][free]
        assert ((inside > 0.99 * MIN_FREE_DISTANCE) & (inside < 1 - 0.99 * MIN_FREE_DISTANCE)).all()
        compared += 1
    return compared


def test_frequencies_given_ancestry() -> None:
    y, q, f, concentration = genotypes()
    shape = GenotypeShape(*y.shape, alleles=2, populations=POPULATIONS)
    compared = 0
    with precision_scope():
        data = pack(jnp.asarray(y.astype(np.uint8)), jnp.ones(y.shape, bool), shape)
        priors = Priors(jnp.ones_like(q), jnp.asarray(concentration), jnp.ones((LOCI, 2), bool))
        about = expand_frequencies(jnp.asarray(f), jnp.asarray(q), data, shape, jnp.asarray(concentration))
        step = jax.jit(
            lambda key, f: proposed_frequencies(
                key, Position(q, f), Genotypes(data, shape), priors, about, jnp.asarray(BACK)
            )
        )
        for key in range(12):
            proposal, move = step(jax.random.key(key), f)
            new = np.asarray(move.new)
            gain = (log_likelihood(y, q, new, True) - log_likelihood(y, q, f, True)).sum(0)
            powers = (concentration - 1.0) * (np.log(new.astype(float)) - np.log(f.astype(float)))
            posterior = gain + powers.sum((0, 2))
            compared += check(
                proposal, f[..., 1], new[..., 1], posterior, np.asarray(move.log_acceptance_ratio), move.possible
            )
            taken = np.asarray(move.possible) & (np.log(RNG.random(LOCI)) < np.asarray(move.log_acceptance_ratio))
            f = np.where(taken[:, None], new, f)
    assert compared > 6 * LOCI


@pytest.mark.parametrize("alpha", [1e-2, pytest.param(0.3, marks=pytest.mark.slow), 2.0])
def test_ancestry_given_frequencies(alpha: float) -> None:
    y, q, f, _ = genotypes()
    q = np.maximum(RNG.dirichlet(np.full(POPULATIONS, alpha), INDIVIDUALS), 1e-30).astype(np.float32)
    shape = GenotypeShape(*y.shape, alleles=2, populations=POPULATIONS)
    prior, compared = np.full(q.shape, alpha, np.float32), 0
    with precision_scope():
        data = pack(jnp.asarray(y.astype(np.uint8)), jnp.ones(y.shape, bool), shape)
        panel = Genotypes(data, shape)
        about = expand_ancestry(jnp.asarray(q), jnp.asarray(f), *panel, jnp.asarray(prior))
        step = jax.jit(lambda key, q: proposed_ancestry(key, Position(q, f), panel, prior, about, jnp.asarray(BACK)))
        for key in range(12):
            proposal, move = step(jax.random.key(key), q)
            new = np.asarray(move.new)
            gain = (log_likelihood(y, new, f, False) - log_likelihood(y, q, f, False)).sum(1)
            posterior = gain + ((prior - 1.0) * (np.log(new.astype(float)) - np.log(q.astype(float)))).sum(1)
            compared += check(proposal, q.T, new.T, posterior, np.asarray(move.log_acceptance_ratio), move.possible)
            taken = np.asarray(move.possible) & (
                np.log(RNG.random(INDIVIDUALS)) < np.asarray(move.log_acceptance_ratio)
            )
            q = np.where(taken[:, None], new, q)
    assert compared > 2 * INDIVIDUALS


def test_falls_for_one_draw_are_refused() -> None:
    """Those of a log likelihood with 400 dimensions, about 20 nats wide: 5 deviations are usual, 500 nats are not."""
    rng = np.random.default_rng(0)
    found = -rng.gamma(400.0, size=(2, 600))
    require_no_falls(found)
    require_no_falls(found - np.linspace(3000, 0, 600))  # warm-up that was too short is no false draw
    found[1, 450] -= 500
    with pytest.raises(FalseConditional, match=r"draw 450 of chain 1 lies \d+ nats below those before and after it"):
        require_no_falls(found)


def test_the_likelihood_of_draws_is_computed_again() -> None:
    """A frequency that is not the one that was accepted is seen."""
    data = datasets.genotypes(datasets.simulated_genotypes(40, 60, 2, seed=1)["y"]) | {"num_populations": 2}
    with precision_scope():
        bound = bl.bind(structure_admixture.model, data)
        found = find_membership(bound)
        rng = np.random.default_rng(0)
        weights, components = rng.dirichlet([1, 1], (1, 5, 40)), rng.dirichlet([1, 1], (1, 5, 2, 60))
        y = np.asarray(bound.observed[found.observed]).astype(int)
        p = np.einsum("csik,cskla->csila", weights, components)
        right = np.log(np.take_along_axis(p, y[None, None], -1)).sum((2, 3, 4))
        samples = {"ancestry": weights, "frequencies": components}
        require_likelihood(found, bound, samples, right)
        samples["frequencies"] = components + 0.01 * np.array([1, -1])
        with pytest.raises(FalseConditional, match="that was carried along differs from that of a draw by"):
            require_likelihood(found, bound, samples, right)
