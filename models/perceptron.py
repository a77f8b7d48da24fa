"""The perceptron as a posterior: a direction that separates two classes, with a temperature.

    w       ~ Normal(0, I)
    y_i | w = 1 if w' x_i + temperature noise_i > 0, and else 0,  noise_i ~ Normal(0, 1),    row i = 1..n

CS229, 2.2; Mukherjee, Probabilistic Machine Learning, 7.2; Whiteboard notes, "Perceptron", with labels 0 and 1 in place
of -1 and 1. The loss of the lecture, the sum of max(0, -y w' x), is that of no model: it is least at w = 0 and has no
scale. As the temperature goes to 0 the direction of w gets uniform on the version space, the directions without a
mistake, whose mean is the Bayes point (Herbrich, Graepel and Campbell 2001). The version space is empty, and all
is decided by the temperature, where no line separates the classes.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import BernoulliProbit


def model(x: Array, temperature: float = 0.1) -> None:
    """Draw w (feature,) and y (row,), 0 or 1, for a design matrix x (row, feature)."""
    rows, features = x.shape
    with numpyro.plate("feature", features):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", BernoulliProbit(x @ w, temperature))


def example() -> dict[str, Any]:
    """Eight points of a plane in two classes that a line through the origin separates."""
    x = [[1.0, 0.3], [0.4, 0.9], [1.5, -0.4], [0.2, 0.5], [-0.8, -0.5], [-1.1, 0.4], [-0.3, -0.9], [0.1, -0.6]]
    return {"x": np.array(x), "temperature": 0.2, "y": np.array([1, 1, 1, 1, 0, 0, 0, 0])}


def data() -> dict[str, Any]:
    """100 irises of two species by four lengths, standardised, with an intercept: setosa and not (Fisher 1936)."""
    from bayeslab.datasets import classification_data, irises

    table = irises().iloc[:100].astype({"species": str})
    rows = classification_data(table, "species")
    return {"x": rows["x"], "temperature": 0.1, "y": rows["y"]}
