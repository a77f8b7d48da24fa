"""A sparse additive model: a sum of smooth functions of one covariate each, most of which are zero.

    f_j(x)        = sum_k w_jk phi_k(x),    covariate j = 1..p, function k = 1..m
    variance_j    ~ Gamma((m + 1) / 2, m rate^2 / 2)
    w_jk          ~ Normal(0, variance_j)
    y_i | w       ~ Normal(intercept + sum_j f_j(x_ij), sigma^2),    row i = 1..n
    intercept     ~ Normal(0, tau0^2)

Ke, Lecture 2, slides 32 and 33: the prior of `group_lasso`, a group being one function. Here phi_k are the Legendre
polynomials of degree 1 to m on the range of the covariate, less their means over the rows: without that the levels of
the functions could be traded for each other and the intercept.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, num_functions: int = 4, rate: float = 1.0, sigma: float = 1.0, tau0: float = 10.0) -> None:
    """Draw intercept (), variance (input,), w (input, function) and y (row,) for covariates x (row, input).

    The site `component` (row, input) holds the values of the functions.
    """
    rows, inputs = x.shape
    phi = basis(x, num_functions)
    intercept = numpyro.sample("intercept", dist.Normal(0.0, tau0))
    with numpyro.plate("input", inputs, dim=-2):
        variance = numpyro.sample("variance", dist.Gamma((num_functions + 1) / 2, num_functions * rate**2 / 2))
        with numpyro.plate("function", num_functions, dim=-1):
            w = numpyro.sample("w", dist.Normal(0.0, jnp.sqrt(variance)))
    component = jnp.einsum("nik,ik->ni", phi, w)
    component = numpyro.deterministic("component", component)
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(intercept + component.sum(1), sigma))


def basis(x: Array, num_functions: int) -> Array:
    """The functions at the covariates, phi (row, input, function), with mean 0 over the rows."""
    low, high = x.min(0), x.max(0)
    scaled = 2 * (x - low) / jnp.where(high > low, high - low, 1.0) - 1
    values = [jnp.ones_like(scaled), scaled]
    for degree in range(1, num_functions):
        values.append(((2 * degree + 1) * scaled * values[degree] - degree * values[degree - 1]) / (degree + 1))
    phi = jnp.stack(values[1 : num_functions + 1], axis=-1)
    return phi - phi.mean(0)


def example() -> dict[str, Any]:
    """Ten rows of two covariates, one of which matters, and not along a line."""
    x = np.stack([np.linspace(-1.0, 1.0, 10), np.array([0.3, -0.9, 0.5, 1.0, -0.4, 0.1, -0.7, 0.8, -0.2, 0.6])], axis=1)
    noise = np.array([0.1, -0.1, 0.2, 0.0, -0.2, 0.1, 0.0, -0.1, 0.1, -0.1])
    return {"x": x, "num_functions": 2, "sigma": 0.2, "y": 1.5 * x[:, 0] ** 2 + noise}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, standardised, by body mass, blood pressure and two blood values."""
    from bayeslab.datasets import diabetes, regression_data

    rows = regression_data(diabetes()[["bmi", "bp", "s3", "s5", "progression"]], "progression", intercept=False)
    x = rows["x"].drop_vars([name for name in rows["x"].coords if name not in rows["x"].dims]).rename(feature="input")
    return {"x": x, "num_functions": 4, "rate": 2.0, "sigma": 0.7, "y": rows["y"]}
