"""Quadratic discriminant analysis: normal distributions of the covariates, with a covariance for every class.

    share           ~ Dirichlet(concentration, ..., concentration)
    precision_k     ~ Wishart(scale, n0),    class k = 1..K
    mu_k            ~ Normal(mu0, (kappa0 precision_k)^-1)
    y_i | share     ~ Categorical(share)
    x_i | y_i = k   ~ Normal(mu_k, precision_k^-1),    row i = 1..n

`gaussian_discriminant` (CS229, 4.1; Whiteboard notes, "GDA") without the assumption that all classes have one
covariance, so that the boundaries between them are quadratic, not linear.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.models import gaussian_discriminant


def model(
    num_rows: int,
    num_classes: int,
    mu0: Array,
    scale: Array,
    n0: float = 5.0,
    kappa0: float = 0.1,
    concentration: float = 1.0,
) -> None:
    """Draw share (class,), precision (class, feature, feature), mu (class, feature), y (row,) and x (row, feature).

    mu0: (feature,), scale: (feature, feature), of the Wishart priors, whose mean is n0 scale.
    """
    share = dist.Dirichlet(jnp.full(num_classes, concentration))
    share = numpyro.sample("share", share, infer={"event_dims": ["class"]})
    with numpyro.plate("class", num_classes):
        wishart = dist.Wishart(n0, scale_matrix=scale)
        precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
        normal = dist.MultivariateNormal(mu0, precision_matrix=kappa0 * precision)
        mu = numpyro.sample("mu", normal, infer={"event_dims": ["feature"]})
    with numpyro.plate("row", num_rows):
        y = numpyro.sample("y", dist.Categorical(share))
        normal = dist.MultivariateNormal(mu[y], precision_matrix=precision[y])
        numpyro.sample("x", normal, infer={"event_dims": ["feature"]})


def example() -> dict[str, Any]:
    """The rows of `gaussian_discriminant`."""
    return gaussian_discriminant.example()


def data() -> dict[str, Any]:
    """The irises of `gaussian_discriminant`."""
    return gaussian_discriminant.data()
