"""Probabilistic principal components: a few normal factors explain rows of many features, but for noise.

    tau               ~ Gamma(alpha, beta)
    mu_j              ~ Normal(0, location_scale^2),    feature j = 1..p
    w_jk              ~ Normal(0, loading_scale^2),     factor k = 1..q
    z_ik              ~ Normal(0, 1),                   row i = 1..n
    y_ij | z, w, mu   ~ Normal(w_j z_i + mu_j, 1 / tau)

Whiteboard notes, "p-PCA" (y is x there, and has no priors of w, mu and tau); CS229, 12. Given w, mu and tau the factors
are normal, `factors`, and the rows are Normal(mu, w w' + I / tau). Rotations of the factors and of the loadings
leave that as it is: compare w w', or `align(tree, rotate=...)`. The maximum likelihood is `maximum_likelihood`; principal
components are its limit without noise. `factor_analysis` has a noise for each feature.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(
    num_rows: int,
    num_features: int,
    num_factors: int,
    loading_scale: float = 1.0,
    location_scale: float = 10.0,
    alpha: float = 1.0,
    beta: float = 0.1,
) -> None:
    """Draw tau (), mu (feature,), loadings w (feature, factor), factors z (row, factor) and y (row, feature).

    The defaults suit standardised data.
    """
    tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    features, factors = numpyro.plate("feature", num_features, dim=-1), numpyro.plate("factor", num_factors, dim=-1)
    with features:
        mu = numpyro.sample("mu", dist.Normal(0.0, location_scale))
    with numpyro.plate("feature", num_features, dim=-2), factors:
        w = numpyro.sample("w", dist.Normal(0.0, loading_scale))
    rows = numpyro.plate("row", num_rows, dim=-2)
    with rows, factors:
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    with rows, features:
        numpyro.sample("y", dist.Normal(z @ w.T + mu, 1 / jnp.sqrt(tau)))
