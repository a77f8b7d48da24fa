"""Softmax regression: logistic regression with more than two classes.

    w_k     ~ Normal(0, tau0^2 I),    class k = 1..K
    y_i | w ~ Categorical(softmax(w_1' x_i, ..., w_K' x_i)),    row i = 1..n

CS229, 2.3 (w is theta there, and l the negative log likelihood). One vector added to all w_k changes no probability, so
the prior alone says where they lie together: report differences of classes.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(x: Array, num_classes: int, tau0: float = 1.0) -> None:
    """Draw w (class, feature) and y (row,), 0 to num_classes - 1, for a design matrix x (row, feature)."""
    rows, features = x.shape
    with numpyro.plate("class", num_classes, dim=-2), numpyro.plate("feature", features, dim=-1):
        w = numpyro.sample("w", dist.Normal(0.0, tau0))
    with numpyro.plate("row", rows):
        numpyro.sample("y", dist.Categorical(logits=x @ w.T))


def example() -> dict[str, Any]:
    """Nine rows of one covariate in three classes that overlap, with an intercept column."""
    covariate = np.array([-1.8, -1.2, -0.9, -0.3, 0.0, 0.4, 0.8, 1.3, 1.9])
    x = np.stack([np.ones(9), covariate], axis=1)
    return {"x": x, "num_classes": 3, "tau0": 1.5, "y": np.array([0, 0, 1, 1, 0, 1, 2, 1, 2])}


def data() -> dict[str, Any]:
    """150 irises of three species by four lengths, standardised, with an intercept (Fisher 1936)."""
    from bayeslab.datasets import classification_data, irises

    rows = classification_data(irises(), "species")
    return {"x": rows["x"], "num_classes": 3, "tau0": 2.0, "y": rows["y"]}
