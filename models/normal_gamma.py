"""The mean and the precision of normal observations, under a Normal-Gamma prior.

    tau           ~ Gamma(alpha, beta)
    mu | tau      ~ Normal(mu0, 1 / (kappa0 tau))
    y_i | mu, tau ~ Normal(mu, 1 / tau),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 3.2.1.3 in the chapter on the normal distribution (y is x
there). The distance of the average from mu0 enters the rate of tau with the factor
kappa0 n / (kappa0 + n); the lecture prints n / (1 + n), which is right for kappa0 = 1 only.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln


def model(num_rows: int, mu0: float = 0.0, kappa0: float = 1.0, alpha: float = 2.0, beta: float = 2.0) -> None:
    """Draw tau (), mu () and y (row,); the prior of mu counts as much as kappa0 rows."""
    tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    mu = numpyro.sample("mu", dist.Normal(mu0, 1 / jnp.sqrt(kappa0 * tau)))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))


def posterior(y: Array, mu0: float, kappa0: float, alpha: float, beta: float) -> None:
    """Draw tau and mu from p(tau, mu | y)."""
    kappa_n = kappa0 + len(y)
    mu_n = (kappa0 * mu0 + jnp.sum(y)) / kappa_n
    tau = numpyro.sample("tau", dist.Gamma(alpha + len(y) / 2, _rate(y, mu0, kappa0, beta)))
    numpyro.sample("mu", dist.Normal(mu_n, 1 / jnp.sqrt(kappa_n * tau)))


def evidence(y: Array, mu0: float, kappa0: float, alpha: float, beta: float) -> Array:
    """log p(y)."""
    alpha_n, beta_n = alpha + len(y) / 2, _rate(y, mu0, kappa0, beta)
    normalisers = gammaln(alpha_n) - alpha_n * jnp.log(beta_n) - gammaln(alpha) + alpha * jnp.log(beta)
    return normalisers - jnp.log1p(len(y) / kappa0) / 2 - len(y) / 2 * jnp.log(2 * jnp.pi)


def example() -> dict[str, Any]:
    """Six observations about 1.2, away from the prior mean, whose weight is not that of one row."""
    y = np.array([1.2, 0.3, 2.2, 1.9, 0.8, 1.1])
    return {"num_rows": 6, "mu0": -0.5, "kappa0": 0.3, "alpha": 3.0, "beta": 2.5, "y": y}


def data() -> dict[str, Any]:
    """Body mass index of 442 patients, and a prior about 25 that weighs as much as one patient in ten."""
    from bayeslab.datasets import diabetes

    y = diabetes()["bmi"].rename_axis("row").to_xarray()
    return {"num_rows": len(y), "mu0": 25.0, "kappa0": 0.1, "alpha": 2.0, "beta": 20.0, "y": y}


def _rate(y: Array, mu0: float, kappa0: float, beta: float) -> Array:
    """The lecture's beta_n, corrected."""
    mean, shrinkage = jnp.mean(y), kappa0 * len(y) / (kappa0 + len(y))
    return beta + (jnp.sum((y - mean) ** 2) + shrinkage * (mean - mu0) ** 2) / 2
