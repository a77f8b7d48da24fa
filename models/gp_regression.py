"""Gaussian process regression with a known kernel and known noise.

    f         ~ GP(mu, K):  (f(x_1), ..., f(x_n)) ~ Normal(mu, K(x, x))
    y_i | f   ~ Normal(f(x_i), sigma^2),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 9.1 and 9.2; Whiteboard notes, "GP regression", whose predictive covariance
lacks the exponent -1: it is K** - K*' (K + sigma^2 I)^-1 K*. With sigma^2 = lambda n its mean is the kernel ridge
regression of Mukherjee, 6.2. `gp_regression_unknown_kernel` has priors for the parameters of the kernel.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess


def model(x: Array, kernel: Any, sigma: Array | float = 0.1, mu: Array | float = 0.0) -> None:
    """Draw f and y (row,) at inputs x (row,) or (row, input).

    kernel: of `bayeslab.kernels`. sigma: standard deviation of the noise, one or (row,). mu: prior mean, one or (row,).
    """
    f = numpyro.sample("f", GaussianProcess(kernel, x, mu), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, sigma))


def posterior(x: Array, y: Array, kernel: Any, sigma: Array | float, mu: Array | float) -> None:
    """Draw f from p(f | y)."""
    prior = kernel(x, x)
    total = prior + jnp.diag(sigma**2 * jnp.ones(len(x)))
    mean = mu + prior @ jnp.linalg.solve(total, y - mu)
    covariance = prior - prior @ jnp.linalg.solve(total, prior)
    normal = dist.MultivariateNormal(mean, (covariance + covariance.T) / 2)
    numpyro.sample("f", normal, infer={"event_dims": ["row"]})


def evidence(x: Array, y: Array, kernel: Any, sigma: Array | float, mu: Array | float) -> Array:
    """log p(y), the density of Normal(mu, K + sigma^2 I) at y."""
    total = kernel(x, x) + jnp.diag(sigma**2 * jnp.ones(len(x)))
    return dist.MultivariateNormal(mu * jnp.ones(len(x)), total).log_prob(y)


def example() -> dict[str, Any]:
    """Eight noisy values of a sine."""
    x = np.array([0.0, 0.4, 0.9, 1.6, 2.0, 2.7, 3.3, 4.0])
    noise = np.array([0.1, -0.2, 0.1, 0.0, 0.2, -0.1, 0.1, -0.1])
    return {"x": x, "y": np.sin(2.0 * x) + noise, "kernel": kernels.matern32(1.0), "sigma": 0.3, "mu": 0.1}


def data() -> dict[str, Any]:
    """Prices (1000 $) of 47 houses in Portland by their living area (1000 square feet)."""
    from bayeslab.datasets import portland_inputs

    houses = portland_inputs()
    kernel = 100.0**2 * kernels.squared_exponential(1.0)
    return {"x": houses["x"].sel(input="area"), "y": houses["y"], "kernel": kernel, "sigma": 60.0, "mu": 340.0}
