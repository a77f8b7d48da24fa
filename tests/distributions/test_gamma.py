"""Gamma variates on whole arrays: the laws of SciPy, and their edges."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayeslab.distributions import Beta, Dirichlet, Gamma, InverseGamma, Wishart, WishartCholesky
from bayeslab.distributions.gamma import log_gamma_variates
from bayeslab.distributions.set_bits import first_set_indices
from bayeslab.programs.program import precision_scope

LEVEL = 1e-4
"""Of every Kolmogorov-Smirnov test; with 20,000 draws a shift by 0.05 standard deviations is all but surely seen."""


@pytest.mark.parametrize("concentration", [1e-3, 0.3, 1.0, 2.5, 300.0])
def test_gamma_variates_follow_their_law(concentration: float) -> None:
    with precision_scope():
        draws = np.asarray(log_gamma_variates(jax.random.PRNGKey(1), jnp.asarray(concentration), (20_000,)))
    assert np.isfinite(draws).all()
    assert stats.kstest(draws, stats.loggamma(concentration).cdf).pvalue > LEVEL


def test_elements_of_a_large_array_have_their_own_laws() -> None:
    """Those that are proposed again stay in their places, and what is not a number does too."""
    concentration = np.array([0.2, 1.5, 40.0, np.nan, -1.0])
    with precision_scope():
        draws = np.asarray(log_gamma_variates(jax.random.PRNGKey(7), jnp.asarray(concentration), (7_001, 5)))
    for own, column in zip(concentration[:3], draws.T[:3], strict=True):
        assert stats.kstest(column, stats.loggamma(own).cdf).pvalue > LEVEL
    assert np.isnan(draws[:, 3:]).all()


CASES: dict[str, tuple[Any, Any]] = {
    "gamma": (Gamma(0.7, 2.0), stats.gamma(0.7, scale=0.5)),
    "inverse gamma": (InverseGamma(3.0, 2.0), stats.invgamma(3.0, scale=2.0)),
    "beta": (Beta(0.5, 3.0), stats.beta(0.5, 3.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_draws_one_by_one_and_all_at_once_follow_their_law(case: str) -> None:
    ours, law = CASES[case]
    keys = jax.random.split(jax.random.PRNGKey(2), 20_000)
    for draws in (ours.sample(jax.random.PRNGKey(3), (20_000,)), jax.vmap(ours.sample)(keys)):
        assert stats.kstest(np.asarray(draws, float), law.cdf).pvalue > LEVEL


def test_dirichlet_marginals_are_betas() -> None:
    draws = np.asarray(Dirichlet(jnp.array([0.5, 1.0, 4.0])).sample(jax.random.PRNGKey(4), (20_000,)), float)
    np.testing.assert_allclose(draws.sum(1), 1, rtol=1e-5)
    for k, a in enumerate([0.5, 1.0, 4.0]):
        assert stats.kstest(draws[:, k], stats.beta(a, 5.5 - a).cdf).pvalue > LEVEL


def test_wishart_draws_have_the_law_of_quadratic_forms() -> None:
    """c' X c / c' S c is chi-squared, and the inverse of an element of the inverse is too."""
    scale = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 0.7]])
    with precision_scope():
        draws = np.asarray(Wishart(5.0, scale_matrix=jnp.asarray(scale)).sample(jax.random.PRNGKey(5), (20_000,)))
        cholesky = WishartCholesky(5.0, scale_matrix=jnp.asarray(scale))
        factor = np.asarray(cholesky.sample(jax.random.PRNGKey(5), (20_000,)))
    c = np.array([1.0, -2.0, 0.5])
    assert stats.kstest(draws @ c @ c / (c @ scale @ c), stats.chi2(5).cdf).pvalue > LEVEL
    inverse = np.linalg.inv(draws)[:, 0, 0] / np.linalg.inv(scale)[0, 0]
    assert stats.kstest(1 / inverse, stats.chi2(3).cdf).pvalue > LEVEL
    np.testing.assert_allclose(factor @ factor.transpose(0, 2, 1), draws, rtol=1e-10, atol=1e-10)


def test_what_is_not_a_number_stays_so() -> None:
    draws = np.asarray(log_gamma_variates(jax.random.PRNGKey(0), jnp.array([1.0, jnp.nan, -1.0]), (3, 3)))
    assert np.isnan(draws).all(0).tolist() == [False, True, True]


@pytest.mark.parametrize("number", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_first_places_are_those_of_nonzero(number: int, share: float) -> None:
    flags = np.random.default_rng(number).random(number) < share
    for size in (1, 5, number // 16 + 1, number):
        expected = np.concatenate([np.flatnonzero(flags)[:size], np.full(max(size - flags.sum(), 0), number)])
        np.testing.assert_array_equal(first_set_indices(jnp.asarray(flags), size), expected)
