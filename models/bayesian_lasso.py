"""Linear regression with sparse coefficients: the lasso is the mode of this posterior.

    w_j     ~ Laplace(0, b),    feature j = 1..p
    y_i | w ~ Normal(w' x_i, sigma^2),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 10.1; Ke, slides 23 to 29; CS229, 9.1; Whiteboard notes, "L1 Lasso", whose
summary swaps the priors of L1 and L2. The mode minimises |y - X w|^2 / (2 n) + penalty |w|_1, Ke's and scikit-learn's
objective, for b = sigma^2 / (n penalty); Mukherjee's lambda, without the 2, is twice that penalty. Zeros belong to
the mode: no draw of the posterior has any, and neither has its mean. `bayesian_lasso_scale_mixture` is the same model
with a variance for every coefficient.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, b: float = 1.0, sigma: float = 1.0) -> None:
    """Draw w (feature,) and y (row,) for covariates x (row, feature); b is the mean of |w_j|."""
    rows, features = x.shape
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Laplace(0.0, b))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, sigma))


def example() -> dict[str, Any]:
    """Eight rows of two covariates, one of which says nothing."""
    x = np.array([[-1.2, 0.5], [-0.8, -1.0], [-0.5, 0.3], [0.0, 1.2], [0.3, -0.4], [0.7, -0.9], [1.1, 0.8], [1.6, 0.1]])
    noise = np.array([0.3, -0.2, 0.4, -0.5, 0.1, 0.1, -0.4, 0.3])
    return {"x": x, "b": 0.3, "sigma": 0.6, "y": x[:, 0] + noise}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, with ten covariates, standardised, with a known noise of 0.7."""
    from bayeslab.datasets import diabetes, regression_data

    rows = regression_data(diabetes(), "progression", intercept=False)
    return {"x": rows["x"], "y": rows["y"], "b": 0.1, "sigma": 0.7}
