"""Dirichlet distributions of different size in one array: each is the one of its own size."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to

from bayeslab.distributions import PaddedCategorical, PaddedDirichlet
from bayeslab.elimination.cubature import of_dirichlet

CONCENTRATION, SIZES = np.array([[1.5, 2.0, 0.7, 3.0], [1.0, 1.0, 4.0, 1.0], [2.0, 5.0, 5.0, 5.0]]), np.array([4, 3, 2])
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def each() -> list[tuple[int, int, dist.Dirichlet]]:
    return [(row, size, dist.Dirichlet(CONCENTRATION[row, :size])) for row, size in enumerate(SIZES)]


def test_every_row_is_a_dirichlet_of_its_size() -> None:
    padded, draws = PaddedDirichlet(CONCENTRATION, SIZES), 40_000
    x = np.asarray(padded.sample(jax.random.key(0), (draws,)))
    for row, size, one in each():
        assert (x[:, row, size:] == 0).all()
        np.testing.assert_allclose(padded.log_prob(x[:9])[:, row], one.log_prob(x[:9, row, :size]), rtol=1e-12)
        z = (x[:, row, :size].mean(0) - one.mean) / np.sqrt(one.variance / draws)
        assert np.abs(z).max() < 4.5
        np.testing.assert_allclose(padded.mean[row, :size], one.mean)
        np.testing.assert_allclose(padded.variance[row, :size], one.variance)
    gradient = jax.grad(lambda alpha: PaddedDirichlet(alpha, SIZES).log_prob(x[0]).sum())(CONCENTRATION)
    assert np.isfinite(gradient).all()
    assert (gradient[1, 3:] == 0).all()


def test_a_probability_may_be_exactly_zero() -> None:
    flat = PaddedDirichlet(np.array([1.0, 2.0, 1.0, 5.0]), 3)
    np.testing.assert_allclose(flat.log_prob(np.array([0.0, 0.4, 0.6, 0.0])), np.log(6 * 0.4), rtol=1e-12)
    assert flat.log_prob(np.array([0.4, 0.0, 0.6, 0.0])) == -np.inf


def test_sticks_break_as_those_of_each_size() -> None:
    """What is left over is standard Normal, so that densities of unconstrained numbers integrate to one."""
    transform, unpadded = biject_to(PaddedDirichlet(CONCENTRATION, SIZES).support), biject_to(dist.constraints.simplex)
    u = RNG.normal(size=(5, 3, 3))
    x = transform(u)
    slope = transform.log_abs_det_jacobian(u, x)
    assert transform.codomain(x).all()
    for row, size, _ in each():
        mine = u[:, row, : size - 1]
        np.testing.assert_allclose(x[:, row, :size], unpadded(mine), rtol=1e-12)
        left_over = dist.Normal().log_prob(u[:, row, size - 1 :]).sum(-1)
        expected = unpadded.log_abs_det_jacobian(mine, unpadded(mine)) + left_over
        np.testing.assert_allclose(slope[:, row], expected, rtol=1e-12)
        np.testing.assert_allclose(transform.inv(x)[:, row, : size - 1], mine, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(transform.inv(x)[:, row, size - 1 :], 0.0)


def test_points_have_the_expected_logarithms() -> None:
    """What EM and MeanField take for the mean of log x, also of a probability alone."""
    sizes = np.array([4, 3, 1])
    points = of_dirichlet(PaddedDirichlet(CONCENTRATION, sizes))
    for row, size in enumerate(sizes):
        alpha = CONCENTRATION[row, :size]
        expected = jax.scipy.special.digamma(alpha) - jax.scipy.special.digamma(alpha.sum())
        np.testing.assert_allclose(jnp.log(points[:, row, :size]).mean(0), expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(points[:, row, size:], 0.0)


def test_categories_end_where_the_probabilities_do() -> None:
    one = PaddedCategorical(np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), np.array([2, 3]))
    np.testing.assert_array_equal(one.support(np.array([[1, 2], [2, 2], [-1, 0]])), [[1, 1], [0, 1], [0, 1]])
    np.testing.assert_allclose(one.log_prob(np.array([1, 2])), np.log([0.5, 0.5]))


@pytest.mark.parametrize("sizes", [[4, 0, 2], [5, 3, 2], [4, 2.5, 2]])
def test_sizes_are_checked(sizes: list[float]) -> None:
    with pytest.raises(ValueError, match=r"sizes has .* at \[.\]; expected an integer from 1 to 4"):
        PaddedDirichlet(CONCENTRATION, np.array(sizes))
