"""The precision of normal observations whose mean is known.

    tau       ~ Gamma(alpha, beta)
    y_i | tau ~ Normal(mu, 1 / tau),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 3.2.1.2 in the chapter on the normal distribution (y is x
there); beta is a rate. `inverse_gamma` is the same model, written with the variance.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln


def model(num_rows: int, mu: float = 0.0, alpha: float = 2.0, beta: float = 2.0) -> None:
    """Draw tau () and y (row,)."""
    tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))


def posterior(y: Array, mu: float, alpha: float, beta: float) -> None:
    """Draw tau from p(tau | y)."""
    numpyro.sample("tau", dist.Gamma(alpha + len(y) / 2, beta + jnp.sum((y - mu) ** 2) / 2))


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
