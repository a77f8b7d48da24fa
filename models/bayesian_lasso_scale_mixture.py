"""The Bayesian lasso with a variance for every coefficient: a Laplace is a mixture of Normals.

    variance_j      ~ Exponential(1 / (2 b^2)),    feature j = 1..p
    w_j | variance  ~ Normal(0, variance_j)
    y_i | w         ~ Normal(w' x_i, sigma^2),    row i = 1..n

Integrating over the variances gives `bayesian_lasso` (Andrews and Mallows 1974; Park and Casella 2008). Given w the
reciprocal of a variance is inverse Gaussian with mean 1 / (b |w_j|) and shape 1 / b^2, and the variance itself
generalised inverse Gaussian.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.models import bayesian_lasso


def model(x: Array, b: float = 1.0, sigma: float = 1.0) -> None:
    """Draw variance, w (feature,) and y (row,) for covariates x (row, feature); b is the mean of |w_j|."""
    rows, features = x.shape
    with numpyro.plate("feature", features):
        variance = numpyro.sample("variance", dist.Exponential(1 / (2 * b**2)))
        w = numpyro.sample("w", dist.Normal(0.0, jnp.sqrt(variance)))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, sigma))


def example() -> dict[str, Any]:
    """The rows of `bayesian_lasso`."""
    return bayesian_lasso.example()


def data() -> dict[str, Any]:
    """The patients of `bayesian_lasso`."""
    return bayesian_lasso.data()
