"""Ancestry drawn with origins summed out: passes over the data, proposals, and the posterior that is left alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_membership import SHAPES, simulated

from bayeslab.membership.alleles import Shape, packed
from bayeslab.membership.newton import curvature_of_individuals, square
from bayeslab.membership.simplex import Cut, cut, drawn, log_density, moved, top
from bayeslab.membership.summed import anew, first_reference, gains, reference, slopes
from bayeslab.program import precision

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.populations < 9], ids=str)
def test_passes_are_those_of_all_copies(shape: Shape) -> None:
    y, present, q, p = simulated(shape)
    other = np.random.default_rng(1).dirichlet(np.ones(shape.populations), shape.individuals)
    q, other, p = (one.astype(np.float32).astype(float) for one in (q, other, p))
    shown = p[:, np.arange(p.shape[1])[:, None], y]  # (population, individual, locus, copy)
    before, after = (np.einsum("ik,kilc->ilc", one, shown) for one in (q, other))
    gained = np.where(present, np.log(after / before), 0.0).sum((1, 2))
    slope = np.einsum("ilc,kilc->ik", present / before, shown)
    with precision():
        data = packed(jnp.asarray(y), jnp.asarray(present), shape)
        np.testing.assert_allclose(gains(q, other, p, data, shape), gained, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(slopes(q, p, data, shape), slope, rtol=1e-4)
        both, curvature = curvature_of_individuals(q, p, data, shape)
    np.testing.assert_allclose(both, slope, rtol=1e-4)
    bent = np.einsum("ilc,kilc,jilc->ikj", present / before**2, shown, shown)
    np.testing.assert_allclose(curvature[:, square(shape.populations)], bent, rtol=1e-4)


def proposals() -> Cut:
    """Within the simplex, across its sides, and far outside of it; the last is of no data at all."""
    at = np.array([[0.3, 0.3, 0.4], [0.01, 0.5, 0.49], [0.98, 0.01, 0.01], [0.2, 0.7, 0.1], [0.2, 0.3, 0.5]])
    root = np.random.default_rng(2).normal(size=(5, 3, 3)) * np.array([20, 30, 60, 30, 0])[:, None, None]
    proposal = cut(jnp.asarray(at), jnp.asarray(root @ root.swapaxes(1, 2)))
    return moved(proposal, jnp.zeros((5, 3)).at[3].set(jnp.array([0.0, 4000.0, -3000.0])))


def test_proposals_have_their_density() -> None:
    """Draws weigh a normal distribution near them, over their own density, to 1."""
    draws, middle = 40_000, (np.arange(1000) + 0.5) / 1000
    with precision():
        proposal = proposals()
        assert np.asarray(top(proposal))[3].min() < -1  # where the quadratic is largest
        for place in range(5):
            many = jax.tree.map(lambda leaf: jnp.repeat(leaf[place : place + 1], draws, 0), proposal)  # noqa: B023
            x, log_p = map(np.asarray, jax.jit(drawn)(jax.random.key(place), many))
            np.testing.assert_allclose(log_p, jax.jit(log_density)(many, x), rtol=1e-6, atol=1e-6)
            assert (x >= 0).all()
            np.testing.assert_allclose(x.sum(1), 1, rtol=1e-12)
            free = x[:, :2]
            low, high = (np.clip(free.mean(0) + by * free.std(0), 0, 1) for by in (-5, 5))
            grid = np.stack(np.meshgrid(*(middle[:, None] * (high - low) + low).T), -1)
            area = ((high - low) / 1000).prod()
            inverse = np.linalg.inv(np.cov(free.T) / 2)
            known, mine = (
                np.exp(-0.5 * np.einsum("ni,ij,nj->n", one - free.mean(0), inverse, one - free.mean(0)))
                for one in (grid[grid.sum(-1) < 1], free)
            )
            weight = mine / (known.sum() * area) / np.exp(log_p)
            assert abs(weight.mean() - 1) < 4.5 * weight.std() / np.sqrt(draws)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_the_posterior_given_frequencies_is_left_alone(alpha: float) -> None:
    """Moments of the ancestry of individuals with the same genotypes, one of them without any, beside draws of the
    prior that are weighed."""
    rng = np.random.default_rng(3)
    shape = Shape(individuals=3000, loci=25, copies=2, alleles=3, populations=3)
    p = rng.dirichlet(np.ones(3), (3, 25))
    few = rng.integers(0, 3, (3, 25, 2))
    y, present = np.tile(few, (1000, 1, 1)), np.ones(shape[:3], bool)
    present[2::3], present[1::3, 5:] = False, False
    with precision():
        data = packed(jnp.asarray(y), jnp.asarray(present), shape)
        prior = jnp.full((3000, 3), alpha, jnp.float32)
        given = jnp.asarray(p, jnp.float32), data, shape, prior
        first = jnp.full((3000, 3), 1 / 3, jnp.float32)
        _, _, at = anew(jax.random.key(0), first, *given, first_reference(first))
        about = reference(at, *given)

        def step(q: Any, key: Any) -> Any:
            q, accepted, _ = anew(key, q, *given, about)
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
