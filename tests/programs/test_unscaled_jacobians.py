"""Jacobians of sites whose density `handlers.scale` weights, against closed forms."""

from typing import Any

import arviz as az
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import scale, seed
from numpyro.infer.util import potential_energy
from scipy.stats import gamma, norm

import bayeslab as bl
from bayeslab.programs.binding import bind
from bayeslab.programs.handlers.subsampling import UnscaledJacobians
from bayeslab.programs.program import precision_scope
from bayeslab.programs.unconstrained import log_posterior

Y = np.array([0.3, -1.2, 0.8, 2.0, -0.4])


def power_prior(size: int) -> None:
    """A prior with half of its weight, and data that count twice."""
    with scale(scale=0.5):
        tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    with numpyro.plate("row", size), scale(scale=2.0):
        numpyro.sample("y", dist.Normal(0.0, 1 / jnp.sqrt(tau)))


POSTERIOR = gamma(0.5 * 2.0 + 1 + 5.0, scale=1 / (0.5 * 2.0 + (Y**2).sum()))
"""Gamma(3, 2) to the power of one half is tau exp(-tau), and ten halves of a row are five."""


def gaps(model: Any, data: dict[str, Any]) -> np.ndarray:
    """The log posterior less the closed form at some unconstrained positions."""
    positions = np.array([-2.0, -0.5, 0.0, 1.0, 2.5])
    with precision_scope():
        bound = bind(model, data)
        ours = [float(log_posterior(bound, {"tau": jnp.asarray(each)})) for each in positions]
    return np.array(ours) - POSTERIOR.logpdf(np.exp(positions)) - positions


def test_the_log_posterior_counts_a_jacobian_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"size": 5, "y": Y}
    assert np.ptp(gaps(power_prior, data)) < 1e-10
    monkeypatch.setattr(UnscaledJacobians, "process_message", lambda self, msg: None)
    assert np.ptp(gaps(power_prior, data)) > 1


def test_nuts_draws_what_exact_draws() -> None:
    data = {"size": 5, "y": Y}
    for method in (bl.NUTS(), bl.Exact(4000)):
        draws = bl.fit(1, power_prior, data, method, progress=False)["posterior"]["tau"]
        assert abs(float(draws.mean()) - POSTERIOR.mean()) < 4 * float(az.mcse(draws))


def test_jacobians_of_rows_in_a_batch_stand_for_those_of_all() -> None:
    rows, position = np.array([0.5, -1.0]), np.array([0.4, -0.3])

    def model() -> None:
        with numpyro.plate("row", 6, subsample_size=2):
            with scale(scale=0.5):
                tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
            numpyro.sample("y", dist.Normal(0.0, 1 / jnp.sqrt(tau)), obs=rows)

    tau = np.exp(position)
    each = 0.5 * gamma(3, scale=0.5).logpdf(tau) + position + norm(0, tau**-0.5).logpdf(rows)
    with precision_scope():
        ours = -potential_energy(seed(UnscaledJacobians(model), 0), (), {}, {"tau": jnp.asarray(position)})
    np.testing.assert_allclose(ours, 3 * each.sum(), rtol=1e-12)
