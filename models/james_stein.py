"""Many means that are shrunk together: the model behind the estimator of James and Stein.

    variance            ~ flat on (0, inf)
    theta_j | variance  ~ Normal(0, variance),    coordinate j = 1..p
    y_ij | theta        ~ Normal(theta_j, sigma^2),    row i = 1..n, sigma known

Mukherjee, Probabilistic Machine Learning, 2.2. Given the variance the mean of theta is (1 - B) times that of the rows,
B = v / (v + variance) with v = sigma^2 / n. The estimator has (p - 2) v / |mean of y|^2 in place of B. That is the
posterior mean of B under this prior, but for the knowledge that B is below 1, which makes the factor 1 - B positive
(Strawderman 1971). The posterior is proper for three coordinates or more.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints


def model(num_rows: int, num_coordinates: int, sigma: Array | float = 1.0) -> None:
    """Draw variance (), theta (coordinate,) and y (row, coordinate); the prior of the variance is improper."""
    variance = numpyro.sample("variance", dist.ImproperUniform(constraints.positive, (), ()))
    with numpyro.plate("coordinate", num_coordinates, dim=-1):
        theta = numpyro.sample("theta", dist.Normal(0.0, jnp.sqrt(variance)))
        with numpyro.plate("row", num_rows, dim=-2):
            numpyro.sample("y", dist.Normal(theta, sigma))


def example() -> dict[str, Any]:
    """Three measurements of each of five quantities."""
    y = np.array([[0.3, 1.4, -0.9, 0.2, 2.1], [-0.5, 1.9, -1.3, 1.0, 0.9], [0.4, 0.6, -0.2, 0.1, 1.7]])
    return {"num_rows": 3, "num_coordinates": 5, "sigma": 0.8, "y": y}


def data() -> dict[str, Any]:
    """Batting averages of 18 players in their first 45 at bats of 1970, less their mean (Efron and Morris 1975)."""
    import xarray as xr

    from bayeslab.datasets import batting_averages

    first = batting_averages()["first"]
    average = float(first.mean())
    y = xr.DataArray(first.to_numpy()[None] - average, {"row": ["first 45"], "coordinate": list(first.index)})
    return {"num_rows": 1, "num_coordinates": 18, "sigma": float(np.sqrt(average * (1 - average) / 45)), "y": y}
