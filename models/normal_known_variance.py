"""The mean of normal observations whose variance is known.

    mu       ~ Normal(mu0, sigma0^2)
    y_i | mu ~ Normal(mu, sigma^2),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 3.2.1.1 in the chapter on the normal distribution (y is x
there). The arguments sigma0 and sigma are standard deviations. The posterior mean is a weighted mean of
the average of y, with weight sigma0^2, and mu0, with weight sigma^2 / n (the lecture prints sigma^2).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(num_rows: int, mu0: float = 0.0, sigma0: float = 10.0, sigma: float = 1.0) -> None:
    """Draw mu () and y (row,)."""
    mu = numpyro.sample("mu", dist.Normal(mu0, sigma0))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, sigma))


def posterior(y: Array, mu0: float, sigma0: float, sigma: float) -> None:
    """Draw mu from p(mu | y)."""
    noise = sigma**2 / len(y)
    mean = (sigma0**2 * jnp.mean(y) + noise * mu0) / (sigma0**2 + noise)
    precision = 1 / sigma0**2 + 1 / noise
    numpyro.sample("mu", dist.Normal(mean, 1 / jnp.sqrt(precision)))


def evidence(y: Array, mu0: float, sigma0: float, sigma: float) -> Array:
    """log p(y)."""
    noise = sigma**2 / len(y)
    squares = jnp.sum((y - jnp.mean(y)) ** 2) / sigma**2 + (jnp.mean(y) - mu0) ** 2 / (sigma0**2 + noise)
    return -(len(y) * jnp.log(2 * jnp.pi * sigma**2) + jnp.log1p(sigma0**2 / noise) + squares) / 2


def example() -> dict[str, Any]:
    """Six observations about 1.2, far from the prior mean."""
    y = np.array([1.2, 0.3, 2.2, 1.9, 0.8, 1.1])
    return {"num_rows": 6, "mu0": -2.0, "sigma0": 0.8, "sigma": 1.5, "y": y}


def data() -> dict[str, Any]:
    """Body mass index of 442 patients, with a standard deviation of 4.4 taken as known."""
    from bayeslab.datasets import diabetes

    y = diabetes()["bmi"].rename_axis("row").to_xarray()
    return {"num_rows": len(y), "mu0": 25.0, "sigma0": 10.0, "sigma": 4.4, "y": y}
