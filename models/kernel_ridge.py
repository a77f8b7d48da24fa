"""Kernel ridge regression as a posterior mean: a Gaussian process whose noise is the penalty.

    f         ~ GP(0, K)
    y_i | f   ~ Normal(f(x_i), penalty),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 6.2; Ke, slide 45; CS229, 5.3. The minimiser of the sum of squares plus
penalty |f|^2 is f(x) = sum_i c_i K(x, x_i), c = (K + penalty I)^-1 y, which is the mean of the process: `gp_regression`
with sigma^2 = penalty adds the intervals. Mukherjee divides the sum of squares by n, so his lambda is penalty / n; his
remarks have K + lambda I where K + lambda n I is meant.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess


def model(x: Array, kernel: Any, penalty: float = 1.0) -> None:
    """Draw f and y (row,) at inputs x (row,) or (row, input), with a kernel of `bayeslab.kernels`."""
    f = numpyro.sample("f", GaussianProcess(kernel, x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, jnp.sqrt(penalty)))


def example() -> dict[str, Any]:
    """Eight noisy values of a sine."""
    x = np.array([0.0, 0.4, 0.9, 1.6, 2.0, 2.7, 3.3, 4.0])
    noise = np.array([0.1, -0.2, 0.1, 0.0, 0.2, -0.1, 0.1, -0.1])
    return {"x": x, "y": np.sin(2.0 * x) + noise, "kernel": kernels.squared_exponential(0.7), "penalty": 0.1}


def data() -> dict[str, Any]:
    """Prices (100,000 $) of 47 houses in Portland, less their mean, by area (1000 square feet) and bedrooms."""
    from bayeslab.datasets import portland_inputs

    houses = portland_inputs()
    y = (houses["y"] - houses["y"].mean()) / 100.0
    return {"x": houses["x"], "y": y, "kernel": kernels.squared_exponential(1.0), "penalty": 0.3}
