"""Probabilistic principal components: a few normal factors explain rows of many features, but for noise.

    tau               ~ Gamma(alpha, beta)
    mu_j              ~ Normal(0, location_scale^2),    feature j = 1..p
    w_jk              ~ Normal(0, loading_scale^2),     factor k = 1..q
    z_ik              ~ Normal(0, 1),                   row i = 1..n
    y_ij | z, w, mu   ~ Normal(w_j z_i + mu_j, 1 / tau)

Whiteboard notes, "p-PCA" (y is x there, and w, mu and tau are parameters without priors); CS229, 12. It is
`factor_analysis` with one noise for all features. Given w, mu and tau the factors are normal, `factors`, and rows are
Normal(mu, w w' + I / tau). `maximum_likelihood` is that of Tipping and Bishop (1999, Journal of the Royal Statistical
Society B 61, 611-622); without noise it is principal components. Rotations of the factors leave the density as it is:
compare w w', or `align(tree, SITE_DIMS, up_to="rotations")`.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.models import factor_analysis
from bayeslab.models.factor_analysis import factors as factors

SITE_DIMS = factor_analysis.SITE_DIMS


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

    The defaults suit standardised data. Raises ValueError for more factors than features.
    """
    factor_analysis.require_factors(num_features, num_factors)
    tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    sizes = num_rows, num_features, num_factors
    mean = factor_analysis.noiseless_rows(*sizes, loading_scale, location_scale)
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)))


def maximum_likelihood(y: Array, num_factors: int) -> tuple[Array, Array, Array]:
    """The w (feature, factor), mu (feature,) and tau () under which rows y (row, feature) are most likely.

    1 / tau is the mean of the eigenvalues of the covariance of the rows that are left out; column k of w is eigenvector
    k times the root of its eigenvalue less 1 / tau. Any rotation of w is as likely. Raises ValueError unless there are
    fewer factors than features: else nothing is left over for the noise.
    """
    if not 1 <= num_factors < y.shape[1]:
        raise ValueError(f"num_factors is {num_factors}; expected from 1 to less than the {y.shape[1]} features of y")
    mu = jnp.mean(y, axis=0)
    values, vectors = jnp.linalg.eigh((y - mu).T @ (y - mu) / len(y))
    values, vectors = values[::-1], vectors[:, ::-1]
    variance = jnp.mean(values[num_factors:])
    w = vectors[:, :num_factors] * jnp.sqrt(values[:num_factors] - variance)
    return w, mu, 1 / variance


def example() -> dict[str, Any]:
    """Eight rows of four features that one factor moves, the last two the other way."""
    return factor_analysis.example()


def data() -> dict[str, Any]:
    """Thirteen chemical measurements of 178 wines, standardised, by two factors."""
    return factor_analysis.data()
