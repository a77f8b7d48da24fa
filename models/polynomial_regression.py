"""Polynomial regression, a Gaussian process in weight space.

    w_j     ~ Normal(0, tau0^2 C(degree, j)),    power j = 0..degree
    y_i | w ~ Normal(sum_j w_j x_i^j, sigma^2),    row i = 1..n

CS229, 1.4, 5.1 and 8.1; Whiteboard notes, "GP regression", weight-space view: f = w' phi(x) is a Gaussian process with
kernel phi(x)' S phi(z), S the prior covariance of w. With binomial coefficients C in S that is tau0^2 (1 + x z)^degree,
so `gp_regression` with `kernels.polynomial(degree)` is the same model. Standardise x: its powers grow.
"""

from math import comb
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, degree: int = 2, tau0: float = 1.0, sigma: float = 1.0) -> None:
    """Draw w (power,) and y (row,) at inputs x (row,)."""
    prior = _prior(degree)
    with numpyro.plate("power", degree + 1):
        w = numpyro.sample("w", dist.Normal(0.0, tau0 * jnp.sqrt(prior)))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(_powers(x, degree) @ w, sigma))


def posterior(x: Array, y: Array, degree: int, tau0: float, sigma: float) -> None:
    """Draw w from p(w | y)."""
    phi = _powers(x, degree)
    precision = phi.T @ phi / sigma**2 + jnp.diag(1 / (tau0**2 * _prior(degree)))
    mean = jnp.linalg.solve(precision, phi.T @ y / sigma**2)
    normal = dist.MultivariateNormal(mean, precision_matrix=precision)
    numpyro.sample("w", normal, infer={"event_dims": ["power"]})


def evidence(x: Array, y: Array, degree: int, tau0: float, sigma: float) -> Array:
    """log p(y), the density of Normal(0, sigma^2 I + tau0^2 (1 + x x')^degree) at y, powers element by element."""
    covariance = tau0**2 * (1 + jnp.outer(x, x)) ** degree + sigma**2 * jnp.eye(len(x))
    return dist.MultivariateNormal(jnp.zeros(len(x)), covariance).log_prob(y)


def example() -> dict[str, Any]:
    """Seven noisy values of 1 - x + x^2 / 2."""
    x = np.linspace(-1.5, 1.5, 7)
    noise = np.array([0.2, -0.3, 0.1, 0.0, -0.2, 0.3, -0.1])
    return {"x": x, "y": 1.0 - x + x**2 / 2 + noise, "degree": 2, "tau0": 1.5, "sigma": 0.4}


def data() -> dict[str, Any]:
    """Prices of 47 houses in Portland by their living area, both standardised."""
    from bayeslab.datasets import portland_inputs

    houses = portland_inputs()
    x, y = ((one - one.mean()) / one.std() for one in (houses["x"].sel(input="area"), houses["y"]))
    return {"x": x, "y": y, "degree": 3, "tau0": 1.0, "sigma": 0.7}


def _powers(x: Array, degree: int) -> Array:
    return x[:, None] ** jnp.arange(degree + 1)


def _prior(degree: int) -> Array:
    return jnp.array([float(comb(degree, power)) for power in range(degree + 1)])
