"""Gaussian processes and linear Gaussian chains with unknown parameters are integrated out by default."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import halfnorm, multivariate_normal

import bayeslab as bl
from bayeslab import kernels
from bayeslab.planning import default_method
from bayeslab.programs.binding import bind
from bayeslab.transforms.analysis import Analysis

RANDOM = np.random.default_rng(0)
X = np.sort(RANDOM.uniform(0, 10, 20))
Y = np.sin(X) + 0.3 * RANDOM.normal(size=20)


def process(x: Any, y: Any = None) -> None:
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.0))
    f = numpyro.sample("f", bl.GaussianProcess(amplitude**2 * kernels.squared_exponential(1.0), x))
    numpyro.sample("y", dist.Normal(f, 0.3), obs=y)


def counted_process(x: Any, y: Any = None) -> None:
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(1.0))
    f = numpyro.sample("f", bl.GaussianProcess(amplitude**2 * kernels.squared_exponential(1.0), x))
    numpyro.sample("y", dist.Poisson(jnp.exp(f)), obs=y)


def chain(y: Any = None) -> None:
    drift = numpyro.sample("drift", dist.HalfNormal(1.0))
    noise = jnp.eye(1) * drift**2
    z = numpyro.sample("z", bl.LinearGaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), noise, num_steps=20))
    numpyro.sample("y", dist.Normal(z[:, 0], 0.3), obs=y)


def conjugate_chain(y: Any = None) -> None:
    z = numpyro.sample("z", bl.LinearGaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), jnp.eye(1), num_steps=20))
    numpyro.sample("y", dist.Normal(z[:, 0], 1 / jnp.sqrt(numpyro.sample("tau", dist.Gamma(2.0, 1.0)))), obs=y)


@pytest.mark.parametrize(
    ("program", "data", "method"),
    [
        (process, {"x": X, "y": Y}, "NUTS(collapse=('f',))"),
        (chain, {"y": Y}, "NUTS(collapse=('z',))"),
        (counted_process, {"x": X, "y": np.round(np.exp(Y))}, "NUTS()"),
        (conjugate_chain, {"y": Y}, "Gibbs()"),
    ],
)
def test_the_default(program: Any, data: dict[str, Any], method: str) -> None:
    chosen = default_method(Analysis(bind(program, data))).method
    collapse = getattr(chosen, "collapse", ())
    assert f"{type(chosen).__name__}({f'{collapse=}' if collapse else ''})" == method


def test_an_unknown_amplitude_is_that_of_quadrature() -> None:
    tree = bl.fit(0, process, {"x": X, "y": Y}, progress=False)
    grid = np.linspace(0.005, 4, 800)
    kernel = np.exp(-0.5 * (X[:, None] - X) ** 2)
    noise = 0.09 * np.eye(len(X))
    joints = [multivariate_normal(np.zeros(len(X)), a**2 * kernel + noise).logpdf(Y) for a in grid]
    logs = halfnorm.logpdf(grid) + np.array(joints)
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert abs(float(tree.posterior["amplitude"].mean()) - mean) < 5 * sd / np.sqrt(1000)
    assert float(tree.posterior["amplitude"].std()) == pytest.approx(sd, rel=0.15)
    assert str(bl.diagnose(tree)) == ""
