"""Linear regression whose coefficients are in or out by groups.

    variance_g         ~ Gamma((m_g + 1) / 2, m_g rate^2 / 2),    group g = 1..G of m_g features
    w_j | variance     ~ Normal(0, variance of the group of j),    feature j = 1..p
    y_i | w            ~ Normal(w' x_i, sigma^2),    row i = 1..n

Ke, Lecture 2, slides 30 and 31. Integrating over the variances leaves a density of w that is proportional to
exp(-rate sum_g sqrt(m_g) |w_g|), |w_g| the length of the coefficients of group g, so that its mode is the group lasso
(Kyung, Gill, Ghosh and Casella 2010). The slide leaves out sqrt(m_g), which keeps large groups from being preferred.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, group: Array, num_groups: int, rate: float = 1.0, sigma: float = 1.0) -> None:
    """Draw variance (group,), w (feature,) and y (row,) for covariates x (row, feature).

    group: (feature,), the number of the group of every feature, from 0.
    """
    rows, features = x.shape
    size = jax.ops.segment_sum(jnp.ones(features), group, num_groups)
    with numpyro.plate("group", num_groups):
        variance = numpyro.sample("variance", dist.Gamma((size + 1) / 2, size * rate**2 / 2))
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, jnp.sqrt(variance[group])))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(x @ w, sigma))


def example() -> dict[str, Any]:
    """Eight rows of three covariates, two of them one group."""
    columns = [[-1.2, -0.8, -0.5, 0.0, 0.3, 0.7, 1.1, 1.6], [0.5, -1.0, 0.3, 1.2, -0.4, -0.9, 0.8, 0.1]]
    x = np.array([*columns, [0.2, 0.9, -1.1, 0.4, 1.3, -0.6, -0.2, 0.7]]).T
    noise = np.array([0.3, -0.2, 0.4, -0.5, 0.1, 0.1, -0.4, 0.3])
    y = x[:, 0] - 0.5 * x[:, 1] + noise
    return {"x": x, "group": np.array([0, 0, 1]), "num_groups": 2, "rate": 1.5, "sigma": 0.6, "y": y}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients by three groups of covariates: person, pressure, blood."""
    import pandas as pd

    from bayeslab.datasets import diabetes, regression_data

    rows = regression_data(diabetes(), "progression", intercept=False)
    names = [str(name) for name in rows["feature"].values]
    groups = {"age": "person", "sex": "person", "bmi": "person", "bp": "pressure"}
    group = pd.Series([groups.get(name, "blood") for name in names], pd.Index(names, name="feature"))
    return {"x": rows["x"], "y": rows["y"], "group": group, "num_groups": 3, "rate": 5.0, "sigma": 0.7}
