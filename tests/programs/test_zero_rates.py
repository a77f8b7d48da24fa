"""Poisson counts whose rate is zero in some rows: no exposure, or a place where a species is not."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

import bayeslab as bl
from bayeslab.programs.handlers.zero_rates import Poisson, with_zero_rates
from bayeslab.programs.program import precision_scope

COUNTS = np.array([0, 0, 3, 0, 5, 1, 0, 2])


def exposures(y: Any, exposure: Any) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Poisson(exposure * rate), obs=y)


def presence(y: Any) -> None:
    absent = numpyro.sample("absent", dist.Beta(1.0, 2.0))
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("place", len(y)):
        there = numpyro.sample("there", dist.Bernoulli(1 - absent))
        numpyro.sample("y", dist.Poisson(there * rate), obs=y)


def marginal_density(absent: Any, rate: Any) -> Any:
    """That of the parameters and the counts, places summed over."""
    counts = COUNTS.reshape(-1, *[1] * np.ndim(rate))
    rows = absent * (counts == 0) + (1 - absent) * stats.poisson(rate).pmf(counts)
    return stats.beta(1, 2).pdf(absent) * stats.gamma(2).pdf(rate) * rows.prod(0)


def test_a_row_without_exposure_leaves_the_conjugate_evidence() -> None:
    exposure = np.where(COUNTS > 0, 1.3, 0.0)
    tree = bl.fit(0, exposures, {"y": COUNTS, "exposure": exposure}, progress=False)

    def density(rate: float) -> float:
        return float(stats.gamma(2).pdf(rate) * stats.poisson(exposure * rate).pmf(COUNTS).prod())

    assert tree.attrs["method"] == "Exact"
    np.testing.assert_allclose(tree.attrs["log_evidence"], np.log(quad(density, 0, 30, epsabs=0)[0]), rtol=1e-9)
    with pytest.raises(ValueError, match="impossible"):
        bl.fit(0, exposures, {"y": COUNTS + 1, "exposure": exposure}, progress=False)


@pytest.mark.parametrize("method", [bl.NUTS(num_warmup=500, num_samples=1000), bl.Gibbs(num_samples=2000)])
def test_a_place_may_have_no_rate(method: Any) -> None:
    tree = bl.fit(1, presence, {"y": COUNTS}, method, progress=False)
    absent, rate = np.meshgrid(np.linspace(0, 1, 401)[1:-1], np.linspace(0, 12, 601)[1:], indexing="ij")
    weights = marginal_density(absent, rate)
    weights /= weights.sum()
    for name, grid in (("absent", absent), ("rate", rate)):
        mean = (weights * grid).sum()
        deviation = np.sqrt((weights * (grid - mean) ** 2).sum())
        draws = tree["posterior"][name]
        error = deviation / np.sqrt(array_stats.ess(draws.values))
        assert abs(float(draws.mean()) - mean) < 4 * error


def test_the_mode_is_found() -> None:
    tree = bl.fit(0, presence, {"y": COUNTS}, bl.MAP(), progress=False)
    best = minimize(lambda at: -np.log(marginal_density(*at)), [0.4, 2.0], bounds=[(0.01, 0.99), (0.1, 10)])
    found = [float(tree["posterior"][name].mean()) for name in ("absent", "rate")]
    np.testing.assert_allclose(found, best.x, rtol=1e-3)


def test_densities_are_those_of_numpyro() -> None:
    with precision_scope():
        rates, counts = np.array([0.0, 0.0, 0.4, 7.0]), np.array([0, 2, 0, 9])
        plain = dist.Poisson(rates).mask(np.array([True, True, True, False])).expand((3, 4))
        ours = with_zero_rates(plain.to_event(1))
        np.testing.assert_array_equal(ours.log_prob(counts), plain.to_event(1).log_prob(counts))
        assert isinstance(ours.base_dist.base_dist.base_dist, Poisson)  # type: ignore[attr-defined]
        possible = np.array([0, 2, 3])
        slope = jax.grad(lambda rate: with_zero_rates(dist.Poisson(rate * rates)).log_prob(counts)[possible].sum())(2.0)
        np.testing.assert_allclose(slope, -7.4 + 9 / 2)
