"""Logistic regression.

    w       ~ Normal(0, tau0^2 I)
    y_i | w ~ Bernoulli(1 / (1 + exp(-w' x_i))),    row i = 1..n

CS229, 2.1, 2.4 and 9.4 (w is theta there); Whiteboard notes, "Logistic regression". The prior keeps coefficients finite
where a line separates the classes, for which the most likely ones are infinite. Newton's method, the iteratively
reweighted least squares of the lecture, goes to the mode of the posterior once -w / tau0^2 is added to the gradient.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, tau0: Array | float = 1.0) -> None:
    """Draw w (feature,) and y (row,), 0 or 1, for a design matrix x (row, feature); tau0: one or (feature,)."""
    rows, features = x.shape
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w))


def example() -> dict[str, Any]:
    """Ten rows of one covariate, with an intercept column; the classes overlap."""
    covariate = np.array([-2.0, -1.5, -1.1, -0.6, -0.2, 0.1, 0.5, 1.0, 1.4, 2.1])
    x = np.stack([np.ones(10), covariate], axis=1)
    return {"x": x, "tau0": 1.5, "y": np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 1])}


def data() -> dict[str, Any]:
    """569 tumours of the breast by 30 measurements of cells: 1 is benign (Wolberg, Street and Mangasarian 1995)."""
    from bayeslab.datasets import breast_cancer, classification_data

    rows = classification_data(breast_cancer(), "diagnosis")
    return {"x": rows["x"], "y": rows["y"]}
