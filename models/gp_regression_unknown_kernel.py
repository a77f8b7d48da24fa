"""Gaussian process regression whose kernel and noise have priors.

    amplitude     ~ HalfNormal(a)
    lengthscale_j ~ InverseGamma(3, 2 b),    input j
    sigma         ~ HalfNormal(c)
    f             ~ GP(0, amplitude^2 K):  K(x, z) = exp(-sum_j ((x_j - z_j) / lengthscale_j)^2 / 2)
    y_i | f       ~ Normal(f(x_i), sigma^2),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 9.1 and 9.2, where amplitude, lengthscale and sigma are given. They are
known up to a ridge only: more amplitude goes with longer lengthscales. So the prior of the lengthscale keeps away from
0 and from infinity; its mean is b. The posterior has no closed form; with f integrated out, `collapse(model, "f")`,
samplers see three parameters.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess


def model(x: Array, a: float = 1.0, b: float = 1.0, c: float = 1.0) -> None:
    """Draw amplitude, lengthscale (input,), sigma, and f and y (row,) at inputs x (row,) or (row, input).

    a, b, c: scales of the function, of the inputs, and of the noise.
    """
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(a))
    with numpyro.plate("input", x.shape[1] if x.ndim == 2 else 1):
        lengthscale = numpyro.sample("lengthscale", dist.InverseGamma(3.0, 2.0 * b))
    sigma = numpyro.sample("sigma", dist.HalfNormal(c))
    kernel = amplitude**2 * kernels.squared_exponential(lengthscale)
    f = numpyro.sample("f", GaussianProcess(kernel, x.reshape(len(x), -1)), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, sigma))


def example() -> dict[str, Any]:
    """Eight noisy values of a sine."""
    x = np.array([0.0, 0.4, 0.9, 1.6, 2.0, 2.7, 3.3, 4.0])
    noise = np.array([0.1, -0.2, 0.1, 0.0, 0.2, -0.1, 0.1, -0.1])
    return {"x": x, "y": np.sin(2.0 * x) + noise}


def data() -> dict[str, Any]:
    """Prices (1000 $) of 47 houses in Portland by area (1000 square feet) and bedrooms, less their mean."""
    from bayeslab.datasets import portland_inputs

    houses = portland_inputs()
    return {"x": houses["x"], "y": houses["y"] - houses["y"].mean(), "a": 100.0, "b": 2.0, "c": 100.0}
