"""Kernel logistic regression: classification by a Gaussian process.

    f       ~ GP(0, a^2 K):  K(x, z) = exp(-|x - z|^2 / (2 b^2))
    y_i | f ~ Bernoulli(1 / (1 + exp(-f(x_i)))),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 8 and 8.1, with labels 0 and 1 in place of -1 and 1; the sign in its
likelihood is misprinted. The minimiser of the lecture's penalised loss is the most probable f for lambda = 1 / (2 n).
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess


def model(x: Array, a: float = 2.0, b: float = 1.0) -> None:
    """Draw f and y (row,) at inputs x (row,) or (row, input). a: standard deviation of f. b: lengthscale."""
    kernel = a**2 * kernels.squared_exponential(b)
    f = numpyro.sample("f", GaussianProcess(kernel, x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=f))


def example() -> dict[str, Any]:
    """Six points on a line, two classes that overlap."""
    return {"x": np.array([-1.5, -1.0, -0.2, 0.1, 0.8, 1.4]), "y": np.array([0, 0, 1, 0, 1, 1])}


def data() -> dict[str, Any]:
    """Sixty points of two half-moons."""
    from bayeslab.datasets import half_moons

    moons = half_moons(60)
    return {"x": moons["x"], "y": moons["y"]}
