"""Distributions that make a Normal of something else: laws of SciPy, series and quadrature, in far tails too."""

from decimal import Decimal, localcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from polyagamma import polyagamma_cdf, polyagamma_pdf, random_polyagamma
from scipy import integrate, special, stats

from bayeslab.distributions import BernoulliProbit, GeneralisedInverseGaussian, PolyaGamma, TruncatedNormal
from bayeslab.distributions.mixing.bessel import log_bessel_k
from bayeslab.distributions.mixing.polya_gamma_variates import polya_gamma_variates
from bayeslab.distributions.mixing.truncated_normal import ndtri_of_log
from bayeslab.programs.program import precision_scope

LEVEL = 1e-4
"""Of every Kolmogorov-Smirnov test; with 20,000 draws a shift by 0.05 standard deviations is all but surely seen."""
SIZE = 20_000


def draws_of(q: Any, seed: int = 0, size: int = SIZE) -> np.ndarray:
    return np.asarray(q.sample(jax.random.PRNGKey(seed), (size,)))


def alternating_series(x: float, b: float) -> float:
    """The log density of a Polya-Gamma variable without tilt, by its alternating series with 400 digits."""
    with localcontext() as context:
        context.prec = 400
        at, order, total, ratio, n = Decimal(x), Decimal(b), Decimal(0), Decimal(1), 0
        while True:
            power = 2 * n + order
            term = ratio * power * (-(power**2) / (8 * at)).exp() * (-1) ** n
            total += term
            if n > 5 and abs(term) < abs(total) * Decimal(10) ** -20:
                break
            ratio, n = ratio * (n + order) / (n + 1), n + 1
        log_sum = float((total * Decimal(2) ** (order - 1)).ln())
    return log_sum - 0.5 * np.log(2 * np.pi) - 1.5 * np.log(x)


@pytest.mark.parametrize("b", [0.3, 1.0, 3.7, 40.0])
def test_the_density_of_polya_gamma_is_its_series(b: float) -> None:
    """In both tails; for concentration 1 by two ways."""
    x = b / 4 * np.array([0.02, 0.2, 0.7, 1.0, 2.0, 5.0])
    truth = np.array([alternating_series(at, b) for at in x])
    with precision_scope():
        found = np.asarray(PolyaGamma(jnp.asarray(b), 0.0).log_prob(x))
        tilted = np.asarray(PolyaGamma(jnp.asarray(b), -1.7).log_prob(x))
        one = np.asarray(PolyaGamma(1.0, -1.7).log_prob(x))
    np.testing.assert_allclose(found, truth, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(tilted, truth + b * np.log(np.cosh(0.85)) - 1.7**2 * x / 2, rtol=1e-10, atol=1e-9)
    if b == 1:
        np.testing.assert_allclose(one, tilted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("b", "c"), [(1.0, 0.0), (1.0, 4.0), (3.0, 1.5), (0.7, 2.0), (20.0, -1.0)])
def test_polya_gamma_is_that_of_the_package(b: float, c: float) -> None:
    """Variates against its distribution function and its own sampler, the density against its density."""
    with precision_scope():
        q = PolyaGamma(b, c)
        found, mean = draws_of(q), float(q.mean)
        x = mean * np.array([0.3, 0.8, 1.0, 2.0])
        log_density = np.asarray(q.log_prob(x))
    assert stats.kstest(found, lambda at: polyagamma_cdf(at, b, c)).pvalue > LEVEL
    drawn = random_polyagamma(b, c, size=SIZE, random_state=np.random.default_rng(1))
    assert stats.ks_2samp(found, drawn).pvalue > LEVEL
    np.testing.assert_allclose(log_density, polyagamma_pdf(x, b, c, return_log=True), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("b", "c"),
    [
        (1.0, 1.2),
        (1.0, 40.0),
        (0.4, 1.0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(1.0, 0.0), (3, 2.0), (2.5, 0.0), (70.0, 6.0)]),
    ],
)
def test_polya_gamma_variates_have_their_moments_and_transform(b: float, c: float) -> None:
    with precision_scope():
        q = PolyaGamma(b, c)
        found, mean, variance = draws_of(q, size=5 * SIZE), float(q.mean), float(q.variance)
    mean_now = b / 4 if c == 0 else b * np.tanh(c / 2) / (2 * c)
    np.testing.assert_allclose(mean, mean_now, rtol=1e-12)
    assert abs(found.mean() - mean) < 5 * np.sqrt(variance / len(found))
    fourth = np.mean((found - found.mean()) ** 4) / variance**2
    assert abs(found.var() / variance - 1) < 5 * np.sqrt((fourth - 1) / len(found))
    for t in (0.5 / mean, 3 / mean):
        values = np.exp(-t * found)
        log_cosh = [np.logaddexp(z, -z) for z in (c / 2, np.sqrt(c**2 / 4 + t / 2))]
        error = 5 * values.std() / np.sqrt(len(found))
        assert abs(values.mean() - np.exp(b * (log_cosh[0] - log_cosh[1]))) < error


@pytest.mark.parametrize("c", [0.0, 2.0, 5.0])
def test_polya_gamma_variates_follow_the_density(c: float) -> None:
    """With the two proposals of small and of large tilts."""
    with precision_scope():
        q = PolyaGamma(1.0, c)
        grid = np.geomspace(1e-4, 6.0, 20_001)
        density = np.exp(np.asarray(q.log_prob(grid)))
        found = draws_of(q, 1)
    cdf = integrate.cumulative_simpson(density, x=grid, initial=0)
    np.testing.assert_allclose(cdf[-1], 1, rtol=1e-6)
    assert stats.kstest(found, lambda x: np.interp(x, grid, cdf)).pvalue > LEVEL


def test_polya_gamma_of_what_is_no_number_is_none() -> None:
    concentration, tilt = jnp.array([1.0, -1.0, 1.0, 2.0]), jnp.array([0.0, 0.0, jnp.nan, 1.0])
    found = np.asarray(polya_gamma_variates(jax.random.PRNGKey(0), concentration, tilt, (4,)))
    assert np.isnan(found).tolist() == [False, True, True, False]


@pytest.mark.parametrize("order", [0.0, 0.1, 0.5, -3.0, 10.0, 300.0])
def test_bessel_functions(order: float) -> None:
    z = np.array([1e-8, 1e-2, 0.3, 2.0, 40.0, 1e4])
    truth = np.log(special.kve(order, z)) - z
    with precision_scope():
        found = np.asarray(log_bessel_k(jnp.asarray(order), jnp.asarray(z)))
    known = np.isfinite(truth)
    assert known.sum() >= 2
    np.testing.assert_allclose(found[known], truth[known], rtol=1e-12, atol=1e-12)


GENERALISED = [
    (0.5, 1.0, 1.0),
    (0.5, 1e4, 1e-12),
    (-20.0, 1.0, 5.0),
    (0.0, 1.0, 1e-6),
    (100.0, 3.0, 2.0),
    (-0.5, 1e-6, 2.0),
]


@pytest.mark.parametrize(("order", "linear", "inverse"), [*GENERALISED, (0.1, 1.0, 1e-10), (2.0, 1.0, 0.0)])
def test_generalised_inverse_gaussian_variates_follow_their_law(order: float, linear: float, inverse: float) -> None:
    """On the log scale, where the density is log-concave: by quadrature, as SciPy's integrals fail at the ends."""
    with precision_scope():
        found = draws_of(GeneralisedInverseGaussian(order, linear, inverse))
    if inverse == 0:
        assert stats.kstest(found, stats.gamma(order, scale=2 / linear).cdf).pvalue > LEVEL
        return
    argument, t = np.sqrt(linear * inverse), np.linspace(-60, 60, 1_200_001)
    log_density = order * t - argument * np.cosh(t)
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    scaled = np.log(found) + 0.5 * np.log(linear / inverse)
    assert stats.kstest(scaled, lambda x: np.interp(x, t, cdf / cdf[-1])).pvalue > LEVEL


@pytest.mark.parametrize(("order", "linear", "inverse"), GENERALISED)
def test_the_density_of_generalised_inverse_gaussians(order: float, linear: float, inverse: float) -> None:
    law = stats.geninvgauss(order, np.sqrt(linear * inverse), scale=np.sqrt(inverse / linear))
    with precision_scope():
        q = GeneralisedInverseGaussian(order, linear, inverse)
        x = float(q.mean) * np.array([0.3, 1.0, 2.5])
        np.testing.assert_allclose(np.asarray(q.log_prob(x)), law.logpdf(x), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(float(q.mean), law.mean(), rtol=1e-8)
        np.testing.assert_allclose(float(q.variance), law.var(), rtol=1e-6)
        near = q.mode * np.array([0.99, 1.01])
        assert np.all(np.asarray(q.log_prob(q.mode)) >= np.asarray(q.log_prob(near)))


BOUNDS = [(0.0, None), (9.0, None), (40.0, None), (400.0, None), (None, -12.0), (8.0, 8.5), (8.0, 8.0001), (-1.0, 2.0)]
BOUNDS += [(-30.0, -29.5), (-9.0, 8.0), (3.5, 30.0), (2.0, 2.0 + 1e-9)]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_truncated_normals_are_those_of_scipy(low: float | None, high: float | None) -> None:
    """Draws; the density and the first two moments by quadrature from the bound that is nearer to the middle."""
    with precision_scope():
        q = TruncatedNormal(1.0, 2.0, low=low and 1 + 2 * low, high=high and 1 + 2 * high)
        if low == 0:
            q = TruncatedNormal(1.0, 2.0, low=1.0)
        found = (draws_of(q) - 1) / 2
        mean, variance = (float(q.mean) - 1) / 2, float(q.variance) / 4
        a, b = (-np.inf if low is None else low), (np.inf if high is None else high)
        assert np.all((found >= a - 1e-12 * abs(a)) & (found <= b + 1e-12 * abs(b)))
        assert stats.kstest(found, stats.truncnorm(a, b).cdf).pvalue > LEVEL
        start, sign = (a, 1.0) if a > 0 or (a > -9 and np.isinf(b)) or (a < 0 < b) else (b, -1.0)
        length = min(b - a, 60 / max(abs(start), 1.0) if a > 0 or b < 0 else 30.0)
        offset = length * (np.polynomial.legendre.leggauss(200)[0] + 1) / 2
        mass = np.polynomial.legendre.leggauss(200)[1] * length / 2
        log_kernel = -offset * (sign * start + offset / 2)
        log_z = special.logsumexp(log_kernel, b=mass)
        weights = mass * np.exp(log_kernel - log_z)
        middle = np.sum(weights * offset)
        spread = np.sum(weights * (offset - middle) ** 2)
        assert abs(mean - (start + sign * middle)) < 1e-9 * np.sqrt(spread) + 4e-15 * abs(start)
        np.testing.assert_allclose(variance, spread, rtol=1e-7)
        at = 1 + 2 * (start + sign * offset[50:150:20])
        truth = log_kernel[50:150:20] - log_z - np.log(2)
        np.testing.assert_allclose(np.asarray(q.log_prob(at)), truth, rtol=1e-8, atol=2e-8)


def test_quantiles_of_tiny_probabilities() -> None:
    z = np.array([-1e6, -300.0, -38.0, -10.0, -3.2, -3.0, -0.5, 1.0])
    with precision_scope():
        np.testing.assert_allclose(np.asarray(ndtri_of_log(jax.scipy.special.log_ndtr(z))), z, rtol=1e-12)


def test_probits() -> None:
    with precision_scope():
        predictor = jnp.array([-50.0, -1.0, 0.4, 9.0])
        q = BernoulliProbit(predictor)
        found = np.asarray(q.log_prob(jnp.array([[0], [1]])))
        np.testing.assert_allclose(found, stats.norm.logcdf(np.outer([-1, 1], predictor)), rtol=1e-8)
        share = draws_of(q).mean(0)
        np.testing.assert_allclose(share, stats.norm.cdf(predictor), atol=5 * 0.5 / np.sqrt(SIZE))
        assert q.enumerate_support().shape == (2, 4)
