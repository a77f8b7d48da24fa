"""Poisson regression: counts whose log rate is linear.

    w       ~ Normal(0, tau0^2 I)
    y_i | w ~ Poisson(exposure_i exp(w' x_i)),    row i = 1..n

CS229, 3.1 and 3.2 (w is theta there), where every exposure is 1: customers in an hour, views of a page. Counts that
vary more than their means allow want a `glm` with a negative binomial distribution.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, tau0: Array | float = 1.0, exposure: Array | float = 1.0) -> None:
    """Draw w (feature,) and counts y (row,) for a design matrix x (row, feature).

    tau0: prior standard deviation, one or (feature,). exposure: how long or how many were watched, one or (row,).
    """
    rows, features = x.shape
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Poisson(exposure * jnp.exp(x @ w)))


def example() -> dict[str, Any]:
    """Eight counts that grow with one covariate, with an intercept column."""
    covariate = np.array([-1.5, -1.0, -0.5, 0.0, 0.2, 0.6, 1.1, 1.7])
    x = np.stack([np.ones(8), covariate], axis=1)
    return {"x": x, "tau0": 2.0, "y": np.array([0, 2, 1, 3, 2, 6, 7, 15])}


def data() -> dict[str, Any]:
    """Simulated visitors of a shop in 200 hours, by advertising, promotion, weather and weekend."""
    from bayeslab.datasets import shop_visitors

    visitors = shop_visitors(200)
    return {"x": visitors["x"], "tau0": 2.0, "y": visitors["y"]}
