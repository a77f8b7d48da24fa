"""Distributions that users write often have a density and no sampler: their data have no replications."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.contrib.control_flow import scan
from scipy.stats import genpareto

import bayeslab as bl
from bayeslab import monte_carlo

EXCESSES = np.array([0.3, 1.2, 0.1, 4.0, 0.8])
METHOD = bl.NUTS(num_warmup=50, num_samples=20, num_chains=1)


class GeneralizedPareto(dist.Distribution):
    """The generalized Pareto distribution, with a density alone."""

    arg_constraints = {"shape_parameter": dist.constraints.positive, "scale": dist.constraints.positive}
    support = dist.constraints.positive

    def __init__(self, shape_parameter: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.shape_parameter, self.scale = jnp.broadcast_arrays(jnp.asarray(shape_parameter), jnp.asarray(scale))
        super().__init__(self.scale.shape, (), validate_args=validate_args)

    def log_prob(self, value: Any) -> Array:
        standardized = self.shape_parameter * value / self.scale
        return -jnp.log(self.scale) - (1 / self.shape_parameter + 1) * jnp.log1p(standardized)


def excesses(num_rows: int, y: Any = None, total: Any = None) -> None:
    """Rows of a distribution without a sampler, and a number that has one."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", GeneralizedPareto(0.5, scale), obs=y)
    numpyro.sample("total", dist.Normal(scale, 0.1), obs=total)


def latent_excess(y: Any) -> None:
    """A prior without a sampler."""
    scale = numpyro.sample("scale", GeneralizedPareto(0.5, 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Exponential(scale), obs=y)


def steps_of_counts(y: Any) -> None:
    """Observed steps of a scan, of a distribution with a sampler of two stages."""
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))

    def step(carry: Any, value: Any) -> tuple[Any, None]:
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(level + carry), 2.0), obs=value)
        return carry + 0.1, None

    scan(step, 0.0, y)


DATA = {"num_rows": 5, "y": EXCESSES, "total": 1.0}


def test_log_likelihoods_are_there_and_other_sites_are_replicated() -> None:
    tree = bl.fit(0, excesses, DATA, METHOD, progress=False)
    predicted = bl.predict(1, excesses, DATA, tree)
    scales = tree["posterior"]["scale"].values[..., None]
    expected = genpareto.logpdf(EXCESSES, 0.5, scale=scales)
    np.testing.assert_allclose(predicted["log_likelihood"]["y"], expected, rtol=1e-6)
    assert predicted["log_likelihood"].attrs["not_drawn"].startswith("site 'y' is not drawn, because its distribution")
    assert set(predicted["posterior_predictive"].data_vars) == {"total"}
    assert abs(predicted["posterior_predictive"]["total"] - scales[..., 0]).max() < 0.1 * 5

    new = bl.predict(1, excesses, {"num_rows": 2, "y": EXCESSES[:2], "total": 1.0}, tree)
    np.testing.assert_allclose(new["predictions_log_likelihood"]["y"], expected[..., :2], rtol=1e-6)
    assert set(new["predictions"].data_vars) == {"total"}
    with pytest.raises(ValueError, match="predict draws site 'y', but its distribution GeneralizedPareto has no"):
        bl.predict(1, excesses, {"num_rows": 2}, tree)


def test_what_draws_data_says_which_distribution_has_no_sampler() -> None:
    with pytest.raises(ValueError, match="simulate draws site 'y', but its distribution GeneralizedPareto has no"):
        bl.simulate(0, excesses, DATA)
    with pytest.raises(ValueError, match="sbc draws site 'y'"):
        bl.sbc(0, excesses, DATA, METHOD)


def test_a_prior_without_a_sampler_is_no_hindrance_to_a_fit() -> None:
    tree = bl.fit(0, latent_excess, {"y": EXCESSES}, METHOD, progress=False)
    assert bl.predict(1, latent_excess, {"y": EXCESSES}, tree)["posterior_predictive"]["y"].shape == (1, 20, 5)
    with pytest.raises(ValueError, match="SIR draws site 'scale', but its distribution GeneralizedPareto has no"):
        bl.fit(0, latent_excess, {"y": EXCESSES}, monte_carlo.SIR(), progress=False)


def test_steps_of_a_scan_have_the_sampler_of_their_distribution() -> None:
    tree = bl.fit(0, steps_of_counts, {"y": np.array([1, 0, 2])}, METHOD, progress=False)
    assert bl.predict(1, steps_of_counts, {"y": np.array([1, 0, 2])}, tree)["posterior_predictive"]["y"].shape == (
        1,
        20,
        3,
    )
