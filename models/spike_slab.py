"""Which covariates matter: every coefficient is zero or not, with a prior for both.

    pi        ~ Beta(a, b)
    gamma_j   ~ Bernoulli(pi),    feature j = 1..p
    slab_j    ~ Normal(0, tau0^2)
    y_i       ~ Normal(sum_j gamma_j slab_j x_ij, sigma^2),    row i = 1..n

The probabilistic reading of the penalty on the number of coefficients that are not zero: Mukherjee, Probabilistic
Machine Learning, 10 (where the penalty counts those that are, by mistake); CS229, 9.1; the blog, "Feature selection"
(Mitchell and Beauchamp 1988; George and McCulloch 1993). The site w is gamma times slab.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, tau0: float = 1.0, sigma: float = 1.0, a: float = 1.0, b: float = 1.0) -> None:
    """Draw pi (), gamma and slab (feature,) and y (row,) for covariates x (row, feature)."""
    rows, features = x.shape
    pi = numpyro.sample("pi", dist.Beta(a, b))
    with numpyro.plate("feature", features):
        gamma = numpyro.sample("gamma", dist.Bernoulli(pi))
        slab = numpyro.sample("slab", dist.Normal(0.0, tau0))
        w = numpyro.deterministic("w", gamma * slab)
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, sigma))


def example() -> dict[str, Any]:
    """Eight rows of four covariates, two of which say something."""
    columns = [[-1.2, -0.8, -0.5, 0.0, 0.3, 0.7, 1.1, 1.6], [0.5, -1.0, 0.3, 1.2, -0.4, -0.9, 0.8, 0.1]]
    columns += [[0.2, 0.9, -1.1, 0.4, 1.3, -0.6, -0.2, 0.7], [-0.3, 0.6, 0.8, -1.4, 0.2, 0.5, -0.7, 1.0]]
    x = np.array(columns).T
    noise = np.array([0.3, -0.2, 0.4, -0.5, 0.1, 0.1, -0.4, 0.3])
    return {"x": x, "tau0": 1.0, "sigma": 0.6, "y": 1.2 * x[:, 0] - 0.5 * x[:, 2] + noise}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, with ten covariates, standardised, with a known noise of 0.7."""
    from bayeslab.datasets import diabetes, regression_data

    rows = regression_data(diabetes(), "progression", intercept=False)
    return {"x": rows["x"], "y": rows["y"], "tau0": 0.5, "sigma": 0.7}
