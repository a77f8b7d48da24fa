"""A mixture of multivariate normal distributions, each with a mean and a precision matrix of its own.

    weights                  ~ Dirichlet(concentration, ..., concentration)
    precision_k              ~ Wishart(scale, n0),    scale (d, d), n0 > d - 1, mean n0 * scale
    mu_k | precision         ~ Normal(mu0, (kappa0 precision_k)^-1),    component k = 1..K
    z_i | weights            ~ Categorical(weights)
    y_i | z_i, mu, precision ~ Normal(mu_{z_i}, precision_{z_i}^-1),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 13.1 and 13.2; CS229, 11.1 and 11.4. Given the labels z this
is one `normal_wishart` a component; with one feature it is `gaussian_mixture` with alpha = n0 / 2 and
beta = 1 / (2 scale). `align(tree, SITE_DIMS, LABELS)` gives the components of all draws one order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

SITE_DIMS = {"weights": "component", "precision": "component", "mu": "component"}
LABELS = ("z",)


def model(
    num_rows: int,
    num_components: int,
    mu0: Array,
    scale: Array,
    n0: float,
    kappa0: float = 0.1,
    concentration: float = 1.0,
) -> None:
    """Draw weights (component,), precision (component, feature, feature_), mu (component, feature),
    labels z (row,) and y (row, feature).

    mu0 (feature,), scale (feature, feature_) and n0 are those of `normal_wishart`. For standardised
    data zeros, the identity and three more than the number of features do: like the defaults of
    `gaussian_mixture`, they give a component a third to all of the spread of the data.
    """
    dirichlet = dist.Dirichlet(jnp.full(num_components, concentration))
    weights = numpyro.sample("weights", dirichlet, infer={"event_dims": ["component"]})
    with numpyro.plate("component", num_components):
        wishart = dist.Wishart(n0, scale_matrix=scale)
        precision = numpyro.sample("precision", wishart, infer={"event_dims": ["feature", "feature_"]})
        centre = dist.MultivariateNormal(mu0, precision_matrix=kappa0 * precision)
        mu = numpyro.sample("mu", centre, infer={"event_dims": ["feature"]})
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(weights))
        normal = dist.MultivariateNormal(mu[z], precision_matrix=precision[z])
        numpyro.sample("y", normal, infer={"event_dims": ["feature"]})


def example() -> dict[str, Any]:
    """Nine observations of two features in two groups, whose features correlate in opposite ways."""
    first = np.array([1.0, 1.9, 0.2, 1.4, 2.3, -2.1, -3.0, -2.6, -1.5])
    second = np.array([0.4, 1.5, -0.9, 0.3, 1.2, 2.2, 3.1, 2.4, 1.8])
    prior = {"mu0": np.array([0.0, 1.0]), "scale": np.array([[0.6, -0.1], [-0.1, 0.3]]), "n0": 4.5}
    y = np.stack([first, second], axis=1)
    return {"num_rows": 9, "num_components": 2, **prior, "kappa0": 0.2, "concentration": 2.0, "y": y}


def data() -> dict[str, Any]:
    """Four lengths in cm of 150 irises: Iris setosa and, overlapping, two other species (Fisher 1936)."""
    import xarray as xr
    from sklearn.datasets import load_iris

    iris = load_iris()
    features = [name.removesuffix(" (cm)") for name in iris.feature_names]
    y = xr.DataArray(iris.data, {"row": np.arange(150), "feature": features})
    mu0 = y.mean("row").copy(data=np.array([6.0, 3.0, 4.0, 1.0]))
    scale = (mu0 * mu0.rename(feature="feature_")).copy(data=np.eye(4))
    return {"num_rows": 150, "num_components": 2, "mu0": mu0, "scale": scale, "n0": 7.0, "y": y}
