"""Gaussian discriminant analysis: normal distributions of the covariates in every class, with one covariance for all.

    share           ~ Dirichlet(concentration, ..., concentration)
    precision       ~ Wishart(scale, n0)
    mu_k            ~ Normal(mu0, (kappa0 precision)^-1),    class k = 1..K
    y_i | share     ~ Categorical(share)
    x_i | y_i = k   ~ Normal(mu_k, precision^-1),    row i = 1..n

CS229, 4.1, for two classes, where share is phi; Whiteboard notes, "GDA", which call the maximum of the joint likelihood
a posteriori: it has no prior. With one covariance the probability of a class is that of a softmax regression,
here with weights from the law of the covariates. `quadratic_discriminant` has a covariance for every class.
Without y the program is a mixture.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(
    num_rows: int,
    num_classes: int,
    mu0: Array,
    scale: Array,
    n0: float = 5.0,
    kappa0: float = 0.1,
    concentration: float = 1.0,
) -> None:
    """Draw share (class,), precision (feature, feature), mu (class, feature), y (row,) and x (row, feature).

    mu0: (feature,), scale: (feature, feature), of the Wishart prior, whose mean is n0 scale.
    """
    share = dist.Dirichlet(jnp.full(num_classes, concentration))
    share = numpyro.sample("share", share, infer={"event_dims": ["class"]})
    wishart = dist.Wishart(n0, scale_matrix=scale)
    precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
    with numpyro.plate("class", num_classes):
        normal = dist.MultivariateNormal(mu0, precision_matrix=kappa0 * precision)
        mu = numpyro.sample("mu", normal, infer={"event_dims": ["feature"]})
    with numpyro.plate("row", num_rows):
        y = numpyro.sample("y", dist.Categorical(share))
        normal = dist.MultivariateNormal(mu[y], precision_matrix=precision)
        numpyro.sample("x", normal, infer={"event_dims": ["feature"]})


def example() -> dict[str, Any]:
    """Eight rows of two features in two classes that overlap."""
    x = [[-1.1, 0.3], [-0.4, -0.6], [-1.6, 0.9], [0.2, 0.1], [1.3, 0.8], [0.5, 1.9], [1.9, 0.4], [0.7, -0.2]]
    prior = {"mu0": np.array([0.2, 0.1]), "scale": np.array([[0.5, 0.1], [0.1, 0.4]]), "n0": 4.0, "kappa0": 0.5}
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    return {"num_rows": 8, "num_classes": 2, **prior, "x": np.array(x), "y": y}


def data() -> dict[str, Any]:
    """150 irises of three species by four lengths, standardised (Fisher 1936)."""
    from bayeslab.datasets import classification_data, irises

    rows = classification_data(irises(), "species", intercept=False)
    mu0 = rows["x"].mean("row")
    scale = (mu0 * mu0.rename(feature="feature_")).copy(data=np.eye(4))
    return {"num_rows": 150, "num_classes": 3, "mu0": mu0, "scale": scale, "n0": 7.0, "x": rows["x"], "y": rows["y"]}
