"""The support vector machine as a pseudo-posterior: the exponential of a loss that is no likelihood.

    w, intercept ~ Normal(0, I), flat
    weight       = exp(-C sum_i max(0, 1 - y_i (intercept + w' x_i))),    row i = 1..n, y_i = -1 or 1

Mukherjee, Probabilistic Machine Learning, 7; CS229, 6; Whiteboard notes, "SVM". The mode is the machine: it minimises
|w|^2 / 2 + C sum of the slacks, and Mukherjee's lambda is 1 / (2 C n). The weights of y = 1 and y = -1 do not add up to
a constant, so y is an argument and no site: there are no probabilities of classes, no evidence, no replicated data and
no log likelihoods, and none should be made up. What the draws of w show is how far the loss pins the line down.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from bayeslab.distributions import hinge_factor


def model(x: Array, y: Array, C: float = 1.0) -> None:
    """Draw intercept () and w (feature,) for covariates x (row, feature) and labels y (row,), -1 or 1."""
    intercept = numpyro.sample("intercept", dist.ImproperUniform(constraints.real, (), ()))
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", x.shape[0]):
        hinge_factor("hinge", y * (intercept + x @ w), C, label=y)


def example() -> dict[str, Any]:
    """Eight points of a plane in two classes that overlap."""
    x = [[1.0, 0.3], [0.4, 0.9], [1.5, -0.4], [-0.3, 0.2], [-0.8, -0.5], [-1.1, 0.4], [-0.3, -0.9], [0.6, -0.2]]
    return {"x": np.array(x), "C": 1.0, "y": np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0])}


def data() -> dict[str, Any]:
    """100 irises of two species that overlap, versicolor and virginica, by four lengths, standardised (Fisher 1936)."""
    from bayeslab.datasets import classification_data, irises

    rows = classification_data(irises().iloc[50:].astype({"species": str}), "species", intercept=False)
    return {"x": rows["x"], "C": 1.0, "y": 2.0 * rows["y"] - 1.0}
