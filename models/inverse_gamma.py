"""The variance of normal observations whose mean is known.

    variance       ~ InverseGamma(alpha, beta)
    y_i | variance ~ Normal(mu, variance),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 3.2.1.2 in the chapter on the normal distribution (there the
variance is sigma^2 and y is x). It is `normal_known_mean` with variance = 1 / tau: posterior and evidence
are the same, the mode is not.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln


def model(num_rows: int, mu: float = 0.0, alpha: float = 2.0, beta: float = 2.0) -> None:
    """Draw variance () and y (row,)."""
    variance = numpyro.sample("variance", dist.InverseGamma(alpha, beta))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variance)))


def posterior(y: Array, mu: float, alpha: float, beta: float) -> None:
    """Draw the variance from p(variance | y)."""
    numpyro.sample("variance", dist.InverseGamma(alpha + len(y) / 2, beta + jnp.sum((y - mu) ** 2) / 2))


def evidence(y: Array, mu: float, alpha: float, beta: float) -> Array:
    """log p(y)."""
    alpha_n = alpha + len(y) / 2
    beta_n = beta + jnp.sum((y - mu) ** 2) / 2
    normalisers = gammaln(alpha_n) - alpha_n * jnp.log(beta_n) - gammaln(alpha) + alpha * jnp.log(beta)
    return normalisers - len(y) / 2 * jnp.log(2 * jnp.pi)


def example() -> dict[str, Any]:
    """Six observations about a mean of 1."""
    y = np.array([1.2, 0.3, 2.2, 1.9, 0.8, 1.1])
    return {"num_rows": 6, "mu": 1.0, "alpha": 3.0, "beta": 0.7, "y": y}


def data() -> dict[str, Any]:
    """Body mass index of 442 patients, with a mean of 26.4 taken as known."""
    from bayeslab.datasets import diabetes

    y = diabetes()["bmi"].rename_axis("row").to_xarray()
    return {"num_rows": len(y), "mu": 26.4, "alpha": 2.0, "beta": 20.0, "y": y}
