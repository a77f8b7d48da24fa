"""Locally weighted regression: a line through the rows near a place, and another one for every other place.

    weight_i = exp(-|x_i - query|^2 / (2 bandwidth^2))
    w        ~ Normal(0, tau0^2 I)
    y_i | w  ~ Normal(w' (1, x_i - query), sigma^2 / weight_i),    row i = 1..n

CS229, 1.4, where the bandwidth is tau and the weights are no density. The site `fitted` is the line at the query. With
a vague prior its mean is the lecture's weighted least squares. Every query has a posterior of its own: there is no
joint model of all of them, so neither evidences nor log likelihoods of different queries can be compared;
`gp_regression` is a model of the whole curve.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

MAX_EXPONENT = 300.0
"""A row whose weight is exp(-600) or less says nothing; its noise stays a number."""


def model(x: Array, query: Array, bandwidth: float = 1.0, sigma: float = 1.0, tau0: float = 10.0) -> None:
    """Draw w (1 + input,), level first, and y (row,) for x (row, input) about the place query (input,)."""
    rows, inputs = x.shape
    away = x - query
    with numpyro.plate("coefficient", 1 + inputs):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    numpyro.deterministic("fitted", w[0])
    exponent = jnp.minimum(jnp.sum(away**2, axis=1) / (4 * bandwidth**2), MAX_EXPONENT)
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Normal(w[0] + away @ w[1:], sigma * jnp.exp(exponent)))


def example() -> dict[str, Any]:
    """Eight noisy values of a sine, about 1.2."""
    x = np.array([0.0, 0.4, 0.9, 1.6, 2.0, 2.7, 3.3, 4.0])
    noise = np.array([0.1, -0.2, 0.1, 0.0, 0.2, -0.1, 0.1, -0.1])
    y = np.sin(2.0 * x) + noise
    return {"x": x[:, None], "query": np.array([1.2]), "bandwidth": 0.5, "sigma": 0.3, "y": y}


def data() -> dict[str, Any]:
    """Prices (1000 $) of 47 houses in Portland by area (1000 square feet), about 2000 square feet."""
    from bayeslab.datasets import portland_inputs

    houses = portland_inputs()
    prior = {"query": np.array([2.0]), "bandwidth": 0.5, "sigma": 60.0, "tau0": 1000.0}
    return {"x": houses["x"].sel(input=["area"]), **prior, "y": houses["y"]}
