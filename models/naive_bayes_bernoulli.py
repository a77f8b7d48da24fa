"""Naive Bayes with features that are there or not: words of a mail, each on its own given the class.

    share            ~ Dirichlet(concentration, ..., concentration)
    p_kj             ~ Beta(a, b),    class k = 1..K, feature j = 1..p
    y_i | share      ~ Categorical(share)
    x_ij | y_i = k   ~ Bernoulli(p_kj),    row i = 1..n

CS229, 4.2 and 4.2.1, for two classes, where share is phi; Whiteboard notes, "Naive Bayes", whose parameters lack the
class. Laplace's smoothing, (1 + number of rows of the class that have the feature) / (2 + number of rows of the class),
is the mean of the posterior for a = b = 1. Without y the program is a mixture.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def model(
    num_rows: int, num_features: int, num_classes: int, a: float = 1.0, b: float = 1.0, concentration: float = 1.0
) -> None:
    """Draw share (class,), p (class, feature), y (row,) and x (row, feature), 0 or 1."""
    share = dist.Dirichlet(jnp.full(num_classes, concentration))
    share = numpyro.sample("share", share, infer={"event_dims": ["class"]})
    with numpyro.plate("class", num_classes, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        p = numpyro.sample("p", dist.Beta(a, b))
    with numpyro.plate("row", num_rows):
        y = numpyro.sample("y", dist.Categorical(share))
        numpyro.sample("x", dist.Bernoulli(p[y]).to_event(1), infer={"event_dims": ["feature"]})


def example() -> dict[str, Any]:
    """Six mails and four words; a word is in no mail of the first class."""
    x = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 0]])
    y = np.array([0, 0, 0, 1, 1, 1])
    return {"num_rows": 6, "num_features": 4, "num_classes": 2, "x": x, "y": y}


def data() -> dict[str, Any]:
    """300 simulated mails, spam, personal and work, by which of twelve words they have."""
    from bayeslab.datasets import simulated_mails

    mails = simulated_mails(300)
    x = (mails["x"] > 0).astype(int).rename(word="feature")
    return {"num_rows": 300, "num_features": 12, "num_classes": 3, "x": x, "y": mails["y"]}
