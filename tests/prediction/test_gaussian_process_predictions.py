"""Predictions of Gaussian processes: measurements that are more than f and noise, and kernels that are sums.

Oracles: the formulas of dense algebra, with kernels of scikit-learn.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from sklearn.gaussian_process import kernels as theirs

import bayeslab as bl
from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.models import gp_regression
from lines import LINE, NEW, Y
from quick_cases import quick_ones


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


SUMS = [
    kernels.matern32(1.3) + kernels.matern12(5.0),
    kernels.matern52(1.3) + 0.3 * kernels.matern12(5.0),
    kernels.squared_exponential(1.3) + 0.3 * kernels.matern32(5.0),
]


@pytest.mark.parametrize("kernel", quick_ones(SUMS, SUMS[2]), ids=["matern32", "matern52", "squared exponential"])
@pytest.mark.parametrize("new", [pytest.param(NEW[:3], marks=pytest.mark.slow), NEW], ids=["few", "more"])
def test_draws_with_a_sum_of_kernels_have_the_posterior_moments(kernel: Any, new: Any) -> None:
    """XLA compiled them to NaN, and to wrong numbers."""
    data = {"x": LINE, "y": Y, "kernel": kernel, "sigma": 0.3}
    tree = bl.fit(1, gp_regression.model, data, bl.Exact(num_samples=500), progress=False)
    found = bl.process_at(gp_regression.model, data, tree, {"x": new})
    drawn = bl.process_draws(2, gp_regression.model, data, tree, {"x": new})["f"].values[0]
    assert (np.abs(drawn.mean(0) - found["f"].values) < 5 * found["f_sd"].values / np.sqrt(500)).all()
    assert (np.abs(drawn.std(0) / found["f_sd"].values - 1) < 5 / np.sqrt(2 * 500)).all()


@pytest.mark.parametrize("kernel", SUMS, ids=["matern32", "matern52", "squared exponential"])
def test_compiled_densities_of_a_sum_of_kernels_are_those_of_the_matrix(kernel: Any) -> None:
    density = jax.jit(lambda x, value: GaussianProcess(kernel, x).log_prob(value))(LINE, Y)
    expected = stats.multivariate_normal(cov=np.asarray(kernel(LINE, LINE))).logpdf(Y)
    np.testing.assert_allclose(density, expected, rtol=1e-5)


def offset(x: Any) -> None:
    f = numpyro.sample("f", GaussianProcess(kernels.matern32(), x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(10.0 + 2 * f, 0.3))


def test_measurements_have_the_location_and_the_slope_of_the_program() -> None:
    data = {"x": LINE, "y": 10 + 2 * Y}
    tree = bl.fit(0, offset, data, bl.Exact(num_samples=2), progress=False)
    found = bl.process_at(offset, data, tree, {"x": NEW})
    matern = theirs.Matern(1.0, nu=1.5)
    inner, across = 4 * matern(LINE[:, None]) + 0.09 * np.eye(12), 4 * matern(NEW[:, None], LINE[:, None])
    variance = 4 + 0.09 - np.diag(across @ np.linalg.solve(inner, across.T))
    np.testing.assert_allclose(found["y"], 10 + across @ np.linalg.solve(inner, 2 * Y), rtol=1e-8)
    np.testing.assert_allclose(found["y_sd"] ** 2, variance, rtol=1e-8)


def shifted(x: Any) -> None:
    b = numpyro.sample("b", dist.Normal(0.0, 10.0))
    f = numpyro.sample("f", GaussianProcess(kernels.matern32(), x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(b + f, 0.3))


def test_measurements_with_a_latent_offset_average_over_it() -> None:
    """Given every draw of b, y - b is a process; b and f move against each other."""
    data = {"x": LINE, "y": 100 + Y}
    tree = bl.fit(0, shifted, data, bl.Gibbs(num_warmup=100, num_samples=100), progress=False)
    found = bl.process_at(shifted, data, tree, {"x": NEW})
    matern = theirs.Matern(1.0, nu=1.5)
    b = tree["posterior"]["b"].values.reshape(-1)
    across = matern(NEW[:, None], LINE[:, None])
    weights = across @ np.linalg.inv(matern(LINE[:, None]) + 0.09 * np.eye(12))
    each = b + weights @ (data["y"][:, None] - b)
    variance = 1.09 - (weights * across).sum(1)
    np.testing.assert_allclose(found["y"], each.mean(1), rtol=1e-10)
    np.testing.assert_allclose(found["y_sd"] ** 2, variance + each.var(1), rtol=1e-6)


def bent(x: Any, new: bool = False) -> None:
    f = numpyro.sample("f", GaussianProcess(kernels.matern32(), x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(jnp.where(new, f**2, f), 0.3))


def test_measurements_are_left_out_where_the_location_is_not_affine() -> None:
    data = {"x": LINE, "y": Y}
    tree = bl.fit(0, bent, data, bl.Exact(num_samples=2), progress=False)
    assert {"f", "y", "y_sd"} <= set(bl.process_at(bent, data, tree, {"x": NEW}))
    assert set(bl.process_at(bent, data, tree, {"x": NEW, "new": True})) == {"f", "f_sd"}
