"""Bayesian linear regression with unknown noise precision.

    tau          ~ Gamma(a, b)
    w | tau      ~ Normal(0, (tau * shrinkage * I)^-1)
    y_i | w, tau ~ Normal(w' x_i, 1 / (tau * weight_i)),    row i = 1..n

The conjugate extension of the lecture's regression (Mukherjee, Probabilistic Machine Learning, 3.3 and 4.2)
to unknown noise: the posterior is again Normal-Gamma, see Bishop (2006), section 3.3. All weights are 1
unless rows are given more or less; a row of weight k counts as the mean of k rows.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln


def model(x: Array, shrinkage: float = 0.1, a: float = 2.0, b: float = 1.0, weights: Array | float = 1.0) -> None:
    """Draw tau (), w (feature,) and y (row,) for a design matrix x (row, feature) and weights (row,)."""
    rows, features = x.shape
    tau = numpyro.sample("tau", dist.Gamma(a, b))
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, 1 / jnp.sqrt(tau * shrinkage)))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, 1 / jnp.sqrt(tau * weights)))


def posterior(x: Array, y: Array, shrinkage: float, a: float, b: float, weights: Array | float) -> None:
    """Draw tau and w from p(tau, w | y)."""
    mean, precision, residual = _fitted(x, y, shrinkage, weights)
    tau = numpyro.sample("tau", dist.Gamma(a + len(y) / 2, b + residual / 2))
    normal = dist.MultivariateNormal(mean, precision_matrix=tau * precision)
    numpyro.sample("w", normal, infer={"event_dims": ["feature"]})


def evidence(x: Array, y: Array, shrinkage: float, a: float, b: float, weights: Array | float) -> Array:
    """log p(y)."""
    rows, features = x.shape
    _, precision, residual = _fitted(x, y, shrinkage, weights)
    a_n, b_n = a + rows / 2, b + residual / 2
    normalisers = gammaln(a_n) - a_n * jnp.log(b_n) - gammaln(a) + a * jnp.log(b)
    determinants = features * jnp.log(shrinkage) - jnp.linalg.slogdet(precision)[1]
    row_weights = jnp.sum(jnp.log(jnp.broadcast_to(weights, rows)))
    return normalisers + (determinants + row_weights - rows * jnp.log(2 * jnp.pi)) / 2


def example() -> dict[str, Any]:
    """Ten noisy points on the line y = 1 - 2 x, with an intercept column."""
    slope = np.linspace(-1.0, 1.0, 10)
    noise = np.array([0.1, -0.3, 0.2, 0.0, -0.1, 0.3, -0.2, 0.1, 0.0, -0.1])
    return {"x": np.stack([np.ones(10), slope], axis=1), "y": 1.0 - 2.0 * slope + noise}


def data() -> Mapping[Any, Any]:
    """Progression of diabetes in 442 patients, with ten covariates, all standardised."""
    from bayeslab.datasets import diabetes, regression_data

    return regression_data(diabetes(), "progression")


def _fitted(x: Array, y: Array, shrinkage: float, weights: Array | float) -> tuple[Array, Array, Array]:
    """Posterior mean of w (feature,), its precision over tau, and the penalised sum of squares."""
    weighted = jnp.broadcast_to(weights, len(y))[:, None] * x
    precision = weighted.T @ x + shrinkage * jnp.eye(x.shape[1])
    mean = jnp.linalg.solve(precision, weighted.T @ y)
    return mean, precision, jnp.sum(weights * (y - x @ mean) ** 2) + shrinkage * mean @ mean
