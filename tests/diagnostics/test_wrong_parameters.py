"""Parameters that depend on latent sites and are wrong wherever these are are named, with their argument."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm

import bayeslab as bl
from bayeslab.diagnostics.impossible_data import _raise_impossible_sites
from bayeslab.models import gaussian_discriminant, normal_gamma

Y = jnp.array([0.3, -1.0, 2.0])


def scaled(shape: float, y: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(0.0, tau / shape), obs=y)


def far_away(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Uniform(5.0, 6.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Uniform(mu, mu + 1.0), obs=y)


@pytest.mark.parametrize("kappa0", [0.0, -1.0])
def test_an_argument_that_makes_a_scale_of_no_number(kappa0: float) -> None:
    message = "'scale' of the Normal at site 'mu' must be finite and positive, but is not at any point .* 'kappa0'"
    with pytest.raises(ValueError, match=message):
        bl.fit(0, normal_gamma.model, normal_gamma.example() | {"kappa0": kappa0}, progress=False)


def test_the_observed_site() -> None:
    with pytest.raises(ValueError, match=r"'scale' of the Normal at site 'y' must be finite and positive.*'shape'"):
        _raise_impossible_sites(bl.bind(scaled, {"shape": -1.0, "y": Y}))


def test_parameters_that_are_right_are_not_blamed() -> None:
    """The data are impossible, and no parameter is why."""
    with pytest.raises(ValueError, match="the density of site 'y' is zero or not a number at every point tried"):
        _raise_impossible_sites(bl.bind(far_away, {"y": Y}))


def ordinal(y: Any) -> None:
    """Thresholds whose differences are probabilities, most often: Kruschke, Doing Bayesian Data Analysis, 23."""
    mu, sigma = numpyro.sample("mu", dist.Normal(3.0, 5.0)), numpyro.sample("sigma", dist.Uniform(0.005, 10.0))
    inner = numpyro.sample("inner", dist.Normal(jnp.array([2.5, 3.5]), 0.5).to_event(1))
    below = norm.cdf((jnp.concatenate([jnp.array([1.5]), inner, jnp.array([4.5])]) - mu) / sigma)
    probs = jnp.concatenate([below[:1], jnp.maximum(0.0, jnp.diff(below)), 1 - below[-1:]])
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Categorical(probs), obs=y)


def test_parameters_that_are_right_where_the_prior_is_are_not_blamed() -> None:
    """No point near the middle of supports has thresholds in their order; chains start nevertheless, for every key."""
    y = np.array([0, 1, 1, 3, 4, 2])
    with pytest.raises(ValueError, match=r"of site .y. is zero or not a number at most points tried"):
        _raise_impossible_sites(bl.bind(ordinal, {"y": y}))
    for key in range(3):
        tree = bl.fit(key, ordinal, {"y": y}, bl.NUTS(num_warmup=100, num_samples=20, num_chains=4), progress=False)
        assert np.isfinite(tree.sample_stats["lp"]).all()


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_of_classes_below_one(number: int) -> None:
    with pytest.raises(ValueError, match=f"does not run where 'num_classes' is {number} "):
        bl.bind(gaussian_discriminant.model, gaussian_discriminant.example() | {"num_classes": number})
