"""Factor analysis: a few normal factors explain rows of many features, each with a noise of its own.

    tau_j             ~ Gamma(alpha, beta),             feature j = 1..p
    mu_j              ~ Normal(0, location_scale^2)
    w_jk              ~ Normal(0, loading_scale^2),     factor k = 1..q
    z_ik              ~ Normal(0, 1),                   row i = 1..n
    y_ij | z, w, mu   ~ Normal(w_j z_i + mu_j, 1 / tau_j)

Named in the Whiteboard notes, "MathBasics", and CS229, 16.4. It is the noise that is diagonal, not the covariance of
the rows (a line of the notes says "assume Sigma diagonal"): that is w w' + Psi, Psi = diag(1 / tau). With one noise for
all features it is `ppca`. The likelihood may grow as a noise goes to zero (Heywood's case), which the prior of tau
prevents. Rotations of the factors leave the density as it is: compare w w', or `align(tree, SITE_DIMS,
up_to="rotations")`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

SITE_DIMS = {"w": "factor", "z": "factor"}


def model(
    num_rows: int,
    num_features: int,
    num_factors: int,
    loading_scale: float = 1.0,
    location_scale: float = 10.0,
    alpha: float = 2.0,
    beta: float = 0.5,
) -> None:
    """Draw tau (feature,), mu (feature,), loadings w (feature, factor), factors z (row, factor) and y (row, feature).

    The defaults suit standardised data. Raises ValueError for more factors than features.
    """
    require_factors(num_features, num_factors)
    with numpyro.plate("feature", num_features):
        tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    mean = noiseless_rows(num_rows, num_features, num_factors, loading_scale, location_scale)
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)))


def noiseless_rows(
    num_rows: int, num_features: int, num_factors: int, loading_scale: float, location_scale: float
) -> Array:
    """Draw mu (feature,), w (feature, factor) and z (row, factor): what rows are without noise, (row, feature)."""
    with numpyro.plate("feature", num_features, dim=-1):
        mu = numpyro.sample("mu", dist.Normal(0.0, location_scale))
    with numpyro.plate("feature", num_features, dim=-2), numpyro.plate("factor", num_factors, dim=-1):
        w = numpyro.sample("w", dist.Normal(0.0, loading_scale))
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("factor", num_factors, dim=-1):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    return z @ w.T + mu


def require_factors(num_features: int, num_factors: int, name: str = "num_factors") -> None:
    """Raise ValueError unless there are features, and from one factor to as many. name: of the number of factors."""
    if num_features < 1:
        raise ValueError(f"num_features is {num_features}, but at least 1 is needed")
    if not 1 <= num_factors <= num_features:
        raise ValueError(f"{name} is {num_factors}, but 1 to {num_features}, the number of features, are possible")


def factors(y: Array, w: Array, mu: Array, tau: Array) -> tuple[Array, Array]:
    """Mean (row, factor) and covariance (factor, factor_) of the factors z given rows, loadings, means and precisions.

    The covariance is M^-1 with M = I + w' diag(tau) w, the means are M^-1 w' diag(tau) (y - mu).
    """
    weighted = w * jnp.broadcast_to(tau, len(mu))[:, None]
    precision = jnp.eye(w.shape[1]) + weighted.T @ w
    return jnp.linalg.solve(precision, weighted.T @ (y - mu).T).T, jnp.linalg.solve(precision, jnp.eye(w.shape[1]))


def example() -> dict[str, Any]:
    """Eight rows of four features that one factor moves, the last two the other way."""
    return {"num_rows": 8, "num_features": 4, "num_factors": 1, "y": _ROWS}


def data() -> dict[str, Any]:
    """Thirteen chemical measurements of 178 wines, standardised, by two factors."""
    from bayeslab.datasets import standardised_wines

    y = standardised_wines()
    return {"num_rows": len(y), "num_features": y.shape[1], "num_factors": 2, "y": y}


_ROWS = np.array(
    [
        [1.2, 0.9, -1.4, -0.3], [-0.4, -0.1, 0.2, 0.5], [0.3, 0.8, -0.5, -0.9], [-1.5, -1.0, 1.1, 0.8],
        [0.8, 0.2, -0.9, 0.1], [-0.9, -1.3, 1.3, 0.2], [0.1, -0.3, 0.4, -0.6], [0.5, 0.7, -0.2, 0.3],
    ]
)  # fmt: skip
