"""A generalised linear model: a distribution about a mean that is a function of a linear predictor.

    w             ~ Normal(0, tau0^2 I)
    dispersion    ~ Gamma(2, 1)
    y_i | w       ~ family(mean_i, dispersion),    mean_i = inverse_link(w' x_i),    row i = 1..n

CS229, 3; Whiteboard notes, "Exponential family" (McCullagh and Nelder 1989). The natural parameter of a gamma
distribution is negative, which no prior of w ensures: the log link is used instead. `logistic_regression`,
`poisson_regression` and `softmax_regression` are such models without a dispersion, `ordered_regression` is one for
classes in an order.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution


def gamma(mean: Array, dispersion: Array) -> Distribution:
    """Positive numbers with variance mean^2 / dispersion."""
    return dist.Gamma(dispersion, dispersion / mean)


def negative_binomial(mean: Array, dispersion: Array) -> Distribution:
    """Counts with variance mean + mean^2 / dispersion."""
    return dist.NegativeBinomial2(mean, dispersion)


def log_link(predictor: Array) -> Array:
    """The mean whose log is the predictor."""
    return jnp.exp(predictor)


def model(
    x: Array,
    family: Callable[[Array, Array], Distribution] = gamma,
    inverse_link: Callable[[Array], Array] = log_link,
    tau0: Array | float = 1.0,
) -> None:
    """Draw dispersion (), w (feature,) and y (row,) for a design matrix x (row, feature).

    family: from means (row,) and the dispersion to the distribution of y: `gamma`, `negative_binomial` or another.
    inverse_link: from the linear predictor to the mean, such as `log_link`.
    """
    rows, features = x.shape
    dispersion = numpyro.sample("dispersion", dist.Gamma(2.0, 1.0))
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", family(inverse_link(x @ w), dispersion))


def example() -> dict[str, Any]:
    """Eight counts that grow with one covariate and vary widely, with an intercept column."""
    covariate = np.array([-1.5, -1.0, -0.5, 0.0, 0.2, 0.6, 1.1, 1.7])
    x = np.stack([np.ones(8), covariate], axis=1)
    return {"x": x, "family": negative_binomial, "tau0": 2.0, "y": np.array([0, 4, 1, 0, 7, 3, 2, 24])}


def data() -> dict[str, Any]:
    """Progression of diabetes in 442 patients, above zero, by ten covariates, standardised: a gamma, log link."""
    from bayeslab.datasets import diabetes, regression_data

    table = diabetes()
    rows = regression_data(table, "progression")
    y = rows["y"].copy(data=table["progression"].to_numpy(float) / 100.0)
    return {"x": rows["x"], "family": gamma, "y": y}
