"""Prior and data in conflict: the tails of priors, held against those of SciPy, and what a fit says."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayeslab as bl
from bayeslab.diagnostics.prior_conflict import LOG_TAILS, log_tails

CASES = {
    "Beta": (dist.Beta(2.5, 0.7), stats.beta(2.5, 0.7)),
    "Cauchy": (dist.Cauchy(-1.0, 2.0), stats.cauchy(-1.0, 2.0)),
    "Exponential": (dist.Exponential(3.0), stats.expon(0.0, 1 / 3.0)),
    "Gamma": (dist.Gamma(0.5, 3.0), stats.gamma(0.5, 0.0, 1 / 3.0)),
    "HalfCauchy": (dist.HalfCauchy(2.0), stats.halfcauchy(0.0, 2.0)),
    "HalfNormal": (dist.HalfNormal(2.0), stats.halfnorm(0.0, 2.0)),
    "InverseGamma": (dist.InverseGamma(3.0, 2.0), stats.invgamma(3.0, 0.0, 2.0)),
    "Laplace": (dist.Laplace(1.0, 2.0), stats.laplace(1.0, 2.0)),
    "LogNormal": (dist.LogNormal(1.0, 0.5), stats.lognorm(0.5, 0.0, np.exp(1.0))),
    "Logistic": (dist.Logistic(1.0, 2.0), stats.logistic(1.0, 2.0)),
    "Normal": (dist.Normal(1.0, 2.0), stats.norm(1.0, 2.0)),
    "StudentT": (dist.StudentT(4.0, 1.0, 2.0), stats.t(4.0, 1.0, 2.0)),
}


@pytest.mark.parametrize("family", LOG_TAILS)
def test_tails_are_those_of_scipy(family: str) -> None:
    ours, theirs = CASES[family]
    x = theirs.ppf([1e-12, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-6])
    below, above = log_tails(ours, x)
    np.testing.assert_allclose(below, theirs.logcdf(x), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(above, theirs.logsf(x), rtol=1e-10, atol=1e-14)


def incomes(n: int) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([n]))


@pytest.mark.parametrize(("centre", "told"), [(30_000.0, "mean is near 2"), (20.0, "")])
def test_data_in_other_units_than_the_prior_are_told(centre: float, told: str) -> None:
    y = centre + np.linspace(-1.0, 1.0, 5)
    tree = bl.fit(0, incomes, {"n": 5, "y": y}, bl.Exact(num_samples=50), progress=False)
    conflict: Any = tree.attrs.get("prior_conflict", "")
    assert conflict.startswith(told)
    assert bool(conflict) == bool(told)
