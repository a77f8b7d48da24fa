"""A factor that forbids what disagrees with data, and the observed site that says the same and can be drawn from."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import log_ndtr

import bayeslab as bl
from bayeslab.diagnostics.impossible_data import _raise_impossible_sites

X = np.column_stack([np.ones(12), np.linspace(-1.0, 1.0, 12)])
Y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1])


def utilities(x: Any) -> Any:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("row", len(x)):
        return numpyro.sample("utility", dist.Normal(x @ w, 1.0))


def by_factor(x: Any, y: Any) -> None:
    utility = utilities(x)
    numpyro.factor("agrees", jnp.where((utility > 0) == (y == 1), 0.0, -jnp.inf))


def by_site(x: Any) -> None:
    utility = utilities(x)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(probs=jnp.where(utility > 0, 1.0, 0.0)))


def test_the_factor_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"factor 'agrees' is minus infinity .* write it as a site that the data obs"):
        _raise_impossible_sites(bl.bind(by_factor, {"x": X, "y": Y}))
    with pytest.raises(ValueError, match=r"factor 'agrees' is minus infinity .* at most points tried"):
        _raise_impossible_sites(bl.bind(by_factor, {"x": X[:4], "y": Y[:4]}))


@pytest.mark.slow
def test_the_site_is_the_probit_regression() -> None:
    """Means and standard deviations by sums over a grid of coefficients, with the utilities integrated out."""
    w = np.stack(np.meshgrid(*2 * [np.linspace(-5, 5, 201)], indexing="ij"), -1).reshape(-1, 2)
    log_joint = log_ndtr((2 * Y - 1) * (w @ X.T)).sum(1) - 0.5 * (w**2).sum(1)
    weights = np.exp(log_joint - log_joint.max())
    weights /= weights.sum()
    mean = weights @ w
    draws = bl.fit(0, by_site, {"x": X, "y": Y}, bl.Gibbs(200, 4000, 4), progress=False)["posterior"]["w"].values
    z = (draws - mean) / np.sqrt(weights @ (w - mean) ** 2)
    for statistic, expected in ((z, 0.0), (z**2, 1.0)):
        batches = statistic.reshape(40, 400, 2).mean(1)
        np.testing.assert_array_less(abs(batches.mean(0) - expected), 4 * batches.std(0, ddof=1) / np.sqrt(40))
