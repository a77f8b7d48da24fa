"""Least squares as a posterior: linear regression under a flat prior.

    w          ~ flat on R^p
    log tau    ~ flat on R
    y_i | w    ~ Normal(w' x_i, 1 / tau),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 2.1 (w is beta there, Y has n rows and not p); CS229, 1.1 to 1.3; Whiteboard
notes, "Linear regression"; Ke, slides 10 to 21. The mean of w is the least-squares estimate (X'X)^-1 X'y, and its law a
Student t with n - p degrees of freedom about it, as in Gelman et al. (2013), Bayesian Data Analysis, 14.2. It is
improper, and no method fits it, where columns of x are linearly dependent or there are no more rows than features.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints


def model(x: Array) -> None:
    """Draw tau (), w (feature,) and y (row,) for a design matrix x (row, feature); the prior is improper."""
    rows, features = x.shape
    tau = numpyro.sample("tau", dist.ImproperUniform(constraints.positive, (), ()))
    numpyro.factor("flat_in_log_tau", -jnp.log(tau))
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.ImproperUniform(constraints.real, (), ()))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, 1 / jnp.sqrt(tau)))


def example() -> dict[str, Any]:
    """Ten noisy points on the line y = 1 - 2 x, with an intercept column."""
    slope = np.linspace(-1.0, 1.0, 10)
    noise = np.array([0.1, -0.3, 0.2, 0.0, -0.1, 0.3, -0.2, 0.1, 0.0, -0.1])
    return {"x": np.stack([np.ones(10), slope], axis=1), "y": 1.0 - 2.0 * slope + noise}


def data() -> dict[str, Any]:
    """Prices (1000 $) of 47 houses in Portland by area in square feet and bedrooms, the example of CS229."""
    from bayeslab.datasets import portland_houses, regression_data

    houses = regression_data(portland_houses(), "price", standardise=False)
    return {"x": houses["x"], "y": houses["y"]}
