"""The mean and the precision matrix of multivariate normal observations, under a Normal-Wishart prior.

    precision           ~ Wishart(scale, n0),    scale (d, d), n0 > d - 1, mean n0 * scale
    mu | precision      ~ Normal(mu0, (kappa0 precision)^-1)
    y_i | mu, precision ~ Normal(mu, precision^-1),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 3.2.2 in the chapter on the normal distribution (there precision
is Lambda, scale is Lambda_0 and y is x). The posterior of the precision is Wishart(scale_n, n0 + n) with

    scale_n^-1 = scale^-1 + S + kappa0 n / (kappa0 + n) (mean(y) - mu0) (mean(y) - mu0)'

and S the scatter matrix about the average. The lecture prints n / 2 for n, halves the two terms, leaves n
out of the last one and adds them to the scale itself.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import multigammaln


def model(num_rows: int, mu0: Array, scale: Array, n0: float, kappa0: float = 1.0) -> None:
    """Draw precision (feature, feature_), mu (feature,) and y (row, feature).

    mu0 (feature,), scale (feature, feature_); n0 are the prior's degrees of freedom, more than the
    number of features minus one, and the prior of mu counts as much as kappa0 rows.
    """
    wishart = dist.Wishart(n0, scale_matrix=scale)
    precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
    centre = dist.MultivariateNormal(mu0, precision_matrix=kappa0 * precision)
    mu = numpyro.sample("mu", centre, infer={"event_dims": ["feature"]})
    with numpyro.plate("row", num_rows):
        normal = dist.MultivariateNormal(mu, precision_matrix=precision)
        numpyro.sample("y", normal, infer={"event_dims": ["feature"]})


def posterior(y: Array, mu0: Array, scale: Array, n0: float, kappa0: float) -> None:
    """Draw precision and mu from p(precision, mu | y)."""
    kappa_n = kappa0 + len(y)
    mu_n = (kappa0 * mu0 + jnp.sum(y, axis=0)) / kappa_n
    wishart = dist.Wishart(n0 + len(y), rate_matrix=_rate(y, mu0, scale, kappa0))
    precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
    centre = dist.MultivariateNormal(mu_n, precision_matrix=kappa_n * precision)
    numpyro.sample("mu", centre, infer={"event_dims": ["feature"]})


def evidence(y: Array, mu0: Array, scale: Array, n0: float, kappa0: float) -> Array:
    """log p(y)."""
    rows, features = y.shape
    n_n = n0 + rows
    gammas = multigammaln(n_n / 2, features) - multigammaln(n0 / 2, features)
    rate = _rate(y, mu0, scale, kappa0)
    scales = n_n * jnp.linalg.slogdet(rate)[1] + n0 * jnp.linalg.slogdet(scale)[1]
    counts = features * jnp.log1p(rows / kappa0) + rows * features * jnp.log(jnp.pi)
    return gammas - (scales + counts) / 2


def example() -> dict[str, Any]:
    """Seven observations of two features, correlated and away from the prior mean."""
    first = np.array([1.0, 1.9, 0.2, 1.4, 2.3, 0.7, 1.1])
    second = np.array([0.4, 1.5, -0.9, 0.3, 1.2, 0.1, 0.8])
    scale = np.array([[0.6, -0.1], [-0.1, 0.3]])
    y = np.stack([first, second], axis=1)
    return {"num_rows": 7, "mu0": np.array([0.0, 2.0]), "scale": scale, "n0": 3.5, "kappa0": 0.4, "y": y}


def data() -> dict[str, Any]:
    """Four lengths in cm of 50 flowers of Iris setosa."""
    from bayeslab.datasets import iris_setosa

    y = iris_setosa()
    mu0 = y.isel(row=0, drop=True).copy(data=np.full(4, 2.0))
    scale = (mu0 * mu0.rename(feature="feature_")).copy(data=np.eye(4))
    return {"num_rows": len(y), "mu0": mu0, "scale": scale, "n0": 6.0, "kappa0": 0.1, "y": y}


def _rate(y: Array, mu0: Array, scale: Array, kappa0: float) -> Array:
    """The inverse of scale_n, (feature, feature_)."""
    residual, distance = y - jnp.mean(y, axis=0), jnp.mean(y, axis=0) - mu0
    shrinkage = kappa0 * len(y) / (kappa0 + len(y))
    prior = jnp.linalg.solve(scale, jnp.eye(len(scale)))
    return prior + residual.T @ residual + shrinkage * jnp.outer(distance, distance)
