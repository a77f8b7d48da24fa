"""A normal vector that is seen through a linear map, with normal noise.

    x     ~ Normal(mu, precision^-1)
    y | x ~ Normal(a x + b, noise_precision^-1)

Whiteboard notes, "MathBasics" (there the precisions are Lambda and L, and the line that says what y is has "~" for
"="); Mukherjee, Probabilistic Machine Learning, 3.1 in the chapter on the normal distribution. x given y is normal with
precision P = precision + a' noise_precision a and mean P^-1 (precision mu + a' noise_precision (y - b)). Regression,
factors, Kalman's update and Gaussian processes are this step in their notations.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.stats import multivariate_normal


def model(mu: Array, precision: Array, a: Array, noise_precision: Array, b: Array | float = 0.0) -> None:
    """Draw x (component,) and y (direction,).

    mu (component,), precision (component, component_), a (direction, component), b (direction,), noise_precision
    (direction, direction_).
    """
    normal = dist.MultivariateNormal(mu, precision_matrix=precision)
    x = numpyro.sample("x", normal, infer={"event_dims": ["component"]})
    seen = dist.MultivariateNormal(a @ x + b, precision_matrix=noise_precision)
    numpyro.sample("y", seen, infer={"event_dims": ["direction"]})


def posterior(y: Array, mu: Array, precision: Array, a: Array, noise_precision: Array, b: Array | float) -> None:
    """Draw x from p(x | y)."""
    updated = precision + a.T @ noise_precision @ a
    mean = jnp.linalg.solve(updated, precision @ mu + a.T @ noise_precision @ (y - b))
    normal = dist.MultivariateNormal(mean, precision_matrix=updated)
    numpyro.sample("x", normal, infer={"event_dims": ["component"]})


def evidence(y: Array, mu: Array, precision: Array, a: Array, noise_precision: Array, b: Array | float) -> Array:
    """log p(y): y is normal with covariance noise_precision^-1 + a precision^-1 a'."""
    noise = jnp.linalg.solve(noise_precision, jnp.eye(len(y)))
    covariance = noise + a @ jnp.linalg.solve(precision, a.T)
    return jnp.asarray(multivariate_normal.logpdf(y, a @ mu + b, covariance))


def example() -> dict[str, Any]:
    """Three numbers seen by two sums, with correlations in the prior and in the noise."""
    return {
        "mu": np.array([0.5, -1.0, 0.2]),
        "precision": np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 1.5]]),
        "a": np.array([[1.0, 1.0, 0.0], [0.0, 1.0, -2.0]]),
        "noise_precision": np.array([[4.0, 1.0], [1.0, 2.0]]),
        "b": np.array([0.1, -0.2]),
        "y": np.array([0.7, -2.1]),
    }


def data() -> dict[str, Any]:
    """An image of 25 pixels, simulated, of which only sums along rows, columns and diagonals were measured."""
    from bayeslab.datasets import simulated_tomogram

    return simulated_tomogram()
