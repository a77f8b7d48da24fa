"""Bayesian linear regression with known noise.

    w       ~ Normal(0, tau0^2 I)
    y_i | w ~ Normal(w' x_i, sigma^2),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 3.3 and 4.2 (w is beta there); Whiteboard notes, "Bayesian
linear regression"; CS229, 1.3 and 9.4. The arguments tau0 and sigma are standard deviations. The normaliser
of the prior is (2 pi)^(-p/2) tau0^(-p), which 4.2 misprints.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, tau0: float = 1.0, sigma: float = 1.0) -> None:
    """Draw w (feature,) and y (row,) for a design matrix x (row, feature)."""
    rows, features = x.shape
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, sigma))


def posterior(x: Array, y: Array, tau0: float, sigma: float) -> None:
    """Draw w from p(w | y)."""
    mean, precision = _moments(x, y, tau0, sigma)
    normal = dist.MultivariateNormal(mean, precision_matrix=precision)
    numpyro.sample("w", normal, infer={"event_dims": ["feature"]})


def evidence(x: Array, y: Array, tau0: float, sigma: float) -> Array:
    """log p(y), the density of Normal(0, sigma^2 I + tau0^2 x x') at y."""
    rows, features = x.shape
    mean, precision = _moments(x, y, tau0, sigma)
    squares = jnp.sum((y - x @ mean) ** 2) / sigma**2 + mean @ mean / tau0**2
    determinants = 2 * features * jnp.log(tau0) + jnp.linalg.slogdet(precision)[1]
    return -(rows * jnp.log(2 * jnp.pi * sigma**2) + determinants + squares) / 2


def example() -> dict[str, Any]:
    """Ten noisy points on the line y = 1 - 2 x, with an intercept column."""
    slope = np.linspace(-1.0, 1.0, 10)
    noise = np.array([0.1, -0.3, 0.2, 0.0, -0.1, 0.3, -0.2, 0.1, 0.0, -0.1])
    x = np.stack([np.ones(10), slope], axis=1)
    return {"x": x, "tau0": 1.5, "sigma": 0.4, "y": 1.0 - 2.0 * slope + noise}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, standardised, with a noise of 0.7 taken as known."""
    from bayeslab.datasets import diabetes, regression_data

    rows = regression_data(diabetes(), "progression")
    return {"x": rows["x"], "y": rows["y"], "tau0": 1.0, "sigma": 0.7}


def _moments(x: Array, y: Array, tau0: float, sigma: float) -> tuple[Array, Array]:
    """Posterior mean (feature,) and precision matrix of w."""
    precision = x.T @ x / sigma**2 + jnp.eye(x.shape[1]) / tau0**2
    return jnp.linalg.solve(precision, x.T @ y / sigma**2), precision
