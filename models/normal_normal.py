"""One normal observation whose mean has a normal prior: the smallest model of all.

    theta     ~ Normal(theta0, tau0^2)
    y | theta ~ Normal(theta, sigma^2)

Mukherjee, Probabilistic Machine Learning, 4.1 (y is x there). The arguments tau0 and sigma are standard deviations.
Precisions add up: the posterior has precision 1 / tau0^2 + 1 / sigma^2, and its mean weighs theta0 and y by theirs. It
is `normal_known_variance` with one row, and `linear_gaussian` in one dimension.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.stats import norm


def model(theta0: float = 0.0, tau0: float = 1.0, sigma: float = 1.0) -> None:
    """Draw theta () and y ()."""
    theta = numpyro.sample("theta", dist.Normal(theta0, tau0))
    numpyro.sample("y", dist.Normal(theta, sigma))


def posterior(y: Array, theta0: float, tau0: float, sigma: float) -> None:
    """Draw theta from p(theta | y)."""
    precision = 1 / tau0**2 + 1 / sigma**2
    mean = (theta0 / tau0**2 + y / sigma**2) / precision
    numpyro.sample("theta", dist.Normal(mean, 1 / jnp.sqrt(precision)))


def evidence(y: Array, theta0: float, tau0: float, sigma: float) -> Array:
    """log p(y)."""
    return norm.logpdf(y, theta0, jnp.sqrt(tau0**2 + sigma**2))


def example() -> dict[str, Any]:
    """A measurement of 2.3 where 0.5 was expected."""
    return {"theta0": 0.5, "tau0": 0.8, "sigma": 1.2, "y": 2.3}


def data() -> dict[str, Any]:
    """How often Clemente hit in his first 45 at bats of 1970, where players of baseball differ by about 0.03."""
    from bayeslab.datasets import batting_averages

    first = batting_averages()["first"]
    average = float(first.mean())
    sigma = (average * (1 - average) / 45) ** 0.5
    return {"theta0": average, "tau0": 0.03, "sigma": sigma, "y": float(first["Clemente"])}
