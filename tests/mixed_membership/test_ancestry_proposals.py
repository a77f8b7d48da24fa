"""Ancestry drawn with origins summed out: passes over the data, proposals, and the posterior that is left alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, pack
from bayeslab.mixed_membership.genotypes.ancestry_proposals import (
    ancestry_gradient,
    expand_ancestry,
    log_likelihood_ratio,
    metropolis_step,
)
from bayeslab.mixed_membership.genotypes.biallelic import (
    biallelic_ancestry_gradient,
    frequency_curvature,
    frequency_gradient,
    locus_log_likelihood_ratio,
)
from bayeslab.mixed_membership.genotypes.frequency_proposals import expand_frequencies, metropolis_step_of_loci
from bayeslab.mixed_membership.genotypes.newton import ancestry_derivatives, symmetric_indices
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.genotypes.truncated_normal import (
    overrelaxed,
)
from bayeslab.programs.program import precision_scope
from memberships import SHAPES, simulated
from proposals import in_the_middle, proposals, proposals_in_a_cube
from quick_cases import quick_ones

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.populations < 9], ids=str)
def test_passes_are_those_of_all_copies(shape: GenotypeShape) -> None:
    y, present, q, p = simulated(shape)
    other = np.random.default_rng(1).dirichlet(np.ones(shape.populations), shape.individuals)
    q, other, p = (one.astype(np.float32).astype(float) for one in (q, other, p))
    shown = p[:, np.arange(p.shape[1])[:, None], y]  # (population, individual, locus, copy)
    before, after = (np.einsum("ik,kilc->ilc", one, shown) for one in (q, other))
    gained = np.where(present, np.log(after / before), 0.0).sum((1, 2))
    slope = np.einsum("ilc,kilc->ik", present / before, shown)
    with precision_scope():
        data = pack(jnp.asarray(y), jnp.asarray(present), shape)
        np.testing.assert_allclose(log_likelihood_ratio(q, other, p, data, shape), gained, rtol=1e-5, atol=1e-4)
        if shape.alleles > 2:
            np.testing.assert_allclose(ancestry_gradient(q, p, data, shape), slope, rtol=1e-4)
        both, curvature = ancestry_derivatives(q, p, data, shape)
    np.testing.assert_allclose(both, slope, rtol=1e-4)
    bent = np.einsum("ilc,kilc,jilc->ikj", present / before**2, shown, shown)
    np.testing.assert_allclose(curvature[:, symmetric_indices(shape.populations)], bent, rtol=1e-4)


def two_alleles(shape: GenotypeShape) -> tuple[Array, Array, Array, Array]:
    """Of shape, with frequencies of the second allele in single precision."""
    y, present, q, p = simulated(shape)
    return y, present, q.astype(np.float32).astype(float), p[..., 1].astype(np.float32).astype(float)


@pytest.mark.parametrize(
    "shape",
    [
        GenotypeShape(130, 300, 2, 2, 3),
        GenotypeShape(7, 3, 1, 2, 2),
        GenotypeShape(50, 20_000, 3, 2, 4),
        GenotypeShape(4, 9, 4, 2, 1),
    ],
    ids=str,
)
def test_passes_over_loci_are_those_of_all_copies(shape: GenotypeShape) -> None:
    y, present, q, p = two_alleles(shape)
    other_q, other_p = (np.random.default_rng(1).permuted(one, axis=-1) for one in (q, p))
    one, other = (((y == allele) & present).sum(2) for allele in (1, 0))  # (individual, locus)
    mean, after = q @ p, other_q @ other_p
    gained = (one * np.log(after / mean) + other * np.log((1 - after) / (1 - mean))).sum(0)
    slope, bent = one / mean - other / (1 - mean), one / mean**2 + other / (1 - mean) ** 2
    tables = tuple(jnp.asarray(np.stack([1 - table, table], -1), jnp.float32) for table in (p, other_p))
    with precision_scope():
        data = pack(jnp.asarray(y), jnp.asarray(present), shape)
        found = locus_log_likelihood_ratio((jnp.asarray(q), jnp.asarray(other_q)), tables, data, shape)
        np.testing.assert_allclose(found, gained, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(frequency_gradient(q, p, data, shape), q.T @ slope, rtol=1e-4, atol=1e-2)
        of_individuals = np.asarray(biallelic_ancestry_gradient(jnp.asarray(q), tables[0], data, shape))
        curvature = frequency_curvature(q, p, data, shape)[symmetric_indices(shape.populations)]
    np.testing.assert_allclose(curvature, np.einsum("ik,ij,il->kjl", q, q, bent), rtol=1e-4)
    by_ancestry = slope @ p.T  # but for a number of every individual
    by_ancestry, of_individuals = (one - one[:, :1] for one in (by_ancestry, of_individuals))
    np.testing.assert_allclose(of_individuals, by_ancestry, rtol=1e-4, atol=1e-4 * np.abs(slope).sum(1).max())


@pytest.mark.parametrize("kind", quick_ones([proposals, proposals_in_a_cube], proposals))
def test_proposals_have_their_density(kind: Any) -> None:
    """Two distributions near draws, over the density of these, weigh them to the same, which is the density at the
    point that all come from. Draws after draws have the distribution of these, and none of time's directions."""
    draws, size = 40_000, 400
    middle = (np.arange(size) + 0.5) / size
    run = jax.jit(lambda key, proposal, at, back: overrelaxed(key, proposal, at, jnp.asarray(back)))
    with precision_scope():
        proposal = kind()
        for place in range(5):
            many = jax.tree.map(lambda leaf: jnp.repeat(leaf[..., place : place + 1], draws, -1), proposal)  # noqa: B023
            begin = in_the_middle(many)
            begin = jnp.repeat(run(jax.random.key(30), many, begin, 0.0)[0][:, :1], draws, 1)
            x, log_p, leads_back = map(np.asarray, run(jax.random.key(place), many, begin, 0.0))
            assert leads_back.mean() > 0.97
            assert ((x >= 0) & (x <= 1)).all()
            if proposal.simplex:
                np.testing.assert_allclose(x.sum(0), 1, rtol=1e-12)
            free, weights = x[:2].T, []
            sd = free.std(0)
            low, high = (np.clip(free.mean(0) + by * sd, 0, 1) for by in (-5, 5))
            grid = np.stack(np.meshgrid(*(middle[:, None] * (high - low) + low).T), -1)
            inside = grid.sum(-1) < 1 if proposal.simplex else np.ones(grid.shape[:2], bool)
            for shift in (-0.5, 0.5):
                bump, mine = (
                    np.exp(-0.5 * (((one - free.mean(0)) / sd / 0.7 - shift) ** 2).sum(-1)) for one in (grid, free)
                )
                weights.append(mine / (bump[inside].sum() * ((high - low) / size).prod()) / np.exp(log_p))
            gap = weights[0] - weights[1]
            assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(draws)
            again, ratio, known = map(np.asarray, run(jax.random.key(place + 10), many, jnp.asarray(x), 0.8))
            again = np.where(known, again, x)
            back, *_ = run(jax.random.key(place), many, jnp.asarray(x), 0.0)
            np.testing.assert_allclose(back, x, atol=1e-9)  # whatever they come from
            other = again[:2].T
            for power in (1, 2):
                gap = other**power - free**power
                assert (np.abs(gap.mean(0)) < 4.5 * gap.std(0) / np.sqrt(draws)).all()
            gap = free[:, 0] * other[:, 1] ** 2 - other[:, 0] * free[:, 1] ** 2
            assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(draws)
            assert np.corrcoef(free[known, 0], other[known, 0])[0, 1] < -0.5
            (_, at_third, one), (_, from_again, other) = (
                run(jax.random.key(9), many, jnp.asarray(one), 0.0) for one in (begin, again)
            )
            known = known & leads_back & np.asarray(one & other)
            assert known.mean() > 0.95
            np.testing.assert_allclose(ratio[known], (at_third - from_again - log_p)[known], atol=1e-5)


@pytest.mark.parametrize(("alpha", "back"), quick_ones([(0.5, 0.0), (1.0, 0.8), (3.0, 0.8)], (1.0, 0.8)))
def test_the_posterior_given_frequencies_is_left_alone(alpha: float, back: float) -> None:
    """Moments of the ancestry of individuals with the same genotypes, one of them without any, beside draws of the
    prior that are weighed."""
    rng = np.random.default_rng(3)
    shape = GenotypeShape(individuals=3000, loci=25, copies=2, alleles=3, populations=3)
    p = rng.dirichlet(np.ones(3), (3, 25))
    few = rng.integers(0, 3, (3, 25, 2))
    y, present = np.tile(few, (1000, 1, 1)), np.ones(shape[:3], bool)
    present[2::3], present[1::3, 5:] = False, False
    with precision_scope():
        data = pack(jnp.asarray(y), jnp.asarray(present), shape)
        prior = jnp.full((3000, 3), alpha, jnp.float32)
        frequencies, panel = jnp.asarray(p, jnp.float32), Genotypes(data, shape)
        first = jnp.full((3000, 3), 1 / 3, jnp.float32)
        about = expand_ancestry(first, frequencies, *panel, prior)

        def step(q: Any, key: Any) -> Any:
            q, _, accepted, _ = metropolis_step(key, Position(q, frequencies), panel, prior, about, jnp.asarray(back))
            return q, (q, accepted)

        run = jax.jit(lambda q, keys: jax.lax.scan(step, q, keys)[1])
        draws, accepted = run(first, jax.random.split(jax.random.key(1), 120))
    assert np.asarray(accepted).mean() > 0.3
    draws = np.asarray(draws)[40:].reshape(-1, 1000, 3, 3).astype(float)
    prior_draws = rng.dirichlet(np.full(3, alpha), 400_000)
    for one in range(3):
        shown = p[:, np.arange(25)[:, None], few[one]]
        log_p = (np.log(np.einsum("gk,klc->glc", prior_draws, shown)) * present[one]).sum((1, 2))
        weight = np.exp(log_p - log_p.max())
        for power in (1, 2):
            expected = weight / weight.sum() @ prior_draws**power
            unsure = np.sqrt((weight / weight.sum()) ** 2 @ (prior_draws**power - expected) ** 2)
            means = (draws[:, :, one] ** power).mean(0)  # of every individual, independent of each other
            error = means.std(0) / np.sqrt(1000)
            assert (np.abs(means.mean(0) - expected) < 4.5 * np.hypot(error, unsure)).all()


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [0.5, 1.0, 3.0])
def test_the_posterior_given_ancestry_is_left_alone(concentration: float) -> None:
    """The same for frequencies of loci, some rare, one without data and one with a single allele, which stays."""
    rng = np.random.default_rng(4)
    shape = GenotypeShape(individuals=30, loci=2000, copies=2, alleles=2, populations=2)
    q = rng.dirichlet(np.ones(2), 30)
    few = (rng.random((30, 4, 2)) < np.array([0.5, 0.03, 0.9, 0.5])[:, None]).astype(int)
    y, present = np.tile(few, (1, 500, 1)), np.ones(shape[:3], bool)
    present[:, 3::4] = False
    real = np.ones((2000, 2), bool)
    real[-1, 1] = False
    with precision_scope():
        data = pack(jnp.asarray(y), jnp.asarray(present), shape)
        prior = jnp.full((2, 2000, 2), concentration, jnp.float32)
        first = np.repeat([[few.mean((0, 2)) * 0.9 + 0.05]], 500, 1).reshape(1, 2000) * np.ones((2, 1))
        first = jnp.asarray(np.stack([1 - first, first], -1), jnp.float32)
        first = first.at[:, -1].set(jnp.array([1.0, 0.0], jnp.float32))
        ancestry, panel = jnp.asarray(q, jnp.float32), Genotypes(data, shape)
        about = expand_frequencies(first, ancestry, *panel, prior)
        priors = Priors(jnp.ones_like(ancestry), prior, jnp.asarray(real))

        def step(p: Any, key: Any, about: Any) -> Any:
            position = Position(ancestry, p)
            p, _, accepted = metropolis_step_of_loci(key, position, panel, priors, about, jnp.asarray(0.7))
            return p, (p[..., 1], accepted)

        run = jax.jit(lambda p, keys, about: jax.lax.scan(lambda p, key: step(p, key, about), p, keys)[1])
        early = run(first, jax.random.split(jax.random.key(0), 40), about)[0][20:].mean(0)
        about = expand_frequencies(jnp.stack([1 - early, early], -1), ancestry, *panel, prior)
        draws, accepted = run(first, jax.random.split(jax.random.key(1), 140), about)
    assert np.asarray(accepted).mean() > 0.5
    draws = np.asarray(draws).astype(float)
    assert (draws[:, :, -1] == 0).all()
    draws = draws[60:, :, :-4].reshape(80, 2, -1, 4)
    prior_draws = rng.beta(concentration, concentration, (400_000, 2))
    for one in range(4):
        number = (few[:, one] * present[:, one]).sum(1)
        mean, total = prior_draws @ q.T, present[:, one].sum(1)
        log_p = (number * np.log(mean) + (total - number) * np.log1p(-mean)).sum(1)
        weight = np.exp(log_p - log_p.max())
        for power in (1, 2):
            expected = weight / weight.sum() @ prior_draws**power
            unsure = np.sqrt((weight / weight.sum()) ** 2 @ (prior_draws**power - expected) ** 2)
            means = (draws[:, :, :, one] ** power).mean(0)  # of every locus, independent of each other
            error = means.std(1) / np.sqrt(means.shape[1])
            assert (np.abs(means.mean(1) - expected) < 4.5 * np.hypot(error, unsure)).all()
