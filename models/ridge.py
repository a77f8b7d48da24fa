"""Ridge regression as a posterior: an intercept that is free, and slopes under a Normal prior in units of the noise.

    log tau       ~ flat on R
    intercept     ~ flat on R
    w_j | tau     ~ Normal(0, 1 / (tau penalty)),    feature j = 1..p
    y_i | w, tau  ~ Normal(intercept + w' x_i, 1 / tau),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 2.4 and 3.3 (w is beta there); Whiteboard notes, "L2 Ridge"; CS229, 9.1.
Whatever tau is, the mean of w minimises |y - intercept - X w|^2 + penalty |w|^2. Mukherjee's lambda is penalty / n:
(X'X + lambda n I)^-1 X'y, which is right, while n is misplaced in the line before it. Unlike `linear_regression`, a
column of ones is no feature here, so that shifting y shifts the intercept and nothing else.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints


def model(x: Array, penalty: float = 1.0) -> None:
    """Draw tau (), intercept (), w (feature,) and y (row,) for covariates x (row, feature); the prior is improper."""
    rows, features = x.shape
    tau = numpyro.sample("tau", dist.ImproperUniform(constraints.positive, (), ()))
    numpyro.factor("flat_in_log_tau", -jnp.log(tau))
    intercept = numpyro.sample("intercept", dist.ImproperUniform(constraints.real, (), ()))
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, 1 / jnp.sqrt(tau * penalty)))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(intercept + x @ w, 1 / jnp.sqrt(tau)))


def example() -> dict[str, Any]:
    """Eight rows of three covariates, two of which are nearly the same."""
    first = np.array([-1.2, -0.8, -0.5, 0.0, 0.3, 0.7, 1.1, 1.6])
    second = first + np.array([0.05, -0.1, 0.0, 0.1, -0.05, 0.0, 0.1, -0.1])
    third = np.array([0.5, -1.0, 0.3, 1.2, -0.4, -0.9, 0.8, 0.1])
    noise = np.array([0.2, -0.1, 0.3, -0.4, 0.1, 0.0, -0.3, 0.2])
    y = 2.0 + first + 0.5 * second - 0.7 * third + noise
    return {"x": np.stack([first, second, third], axis=1), "penalty": 0.5, "y": y}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, with ten covariates, standardised; some blood values are correlated."""
    from bayeslab.datasets import diabetes, regression_data

    rows = regression_data(diabetes(), "progression", intercept=False)
    return {"x": rows["x"], "y": rows["y"], "penalty": 10.0}
