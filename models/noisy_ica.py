"""Independent components in noise: factor analysis whose factors are not normal, so that no rotation is left.

    tau         ~ Gamma(alpha, beta)
    a_kj        ~ Normal(0, loading_scale^2),    feature k = 1..p, source j = 1..q
    s_ij        ~ Logistic(0, sqrt(3) / pi),     row i = 1..n: with standard deviation one
    y_ik | s, a ~ Normal(a_k s_i, 1 / tau)

CS229, 13, has `ica`, which is this one without noise, with as many sources as features, and w = a^-1. With noise there
may be fewer sources. Normal ones in their place are those of `ppca`. Rows should be centred. Signs and places of
sources leave the density as it is: `align(tree, SITE_DIMS, up_to="signed permutations")`.
"""

from math import pi, sqrt
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayeslab.models import ica
from bayeslab.models.factor_analysis import require_factors

SITE_DIMS = {"a": "source", "s": "source"}


def model(
    num_rows: int,
    num_features: int,
    num_sources: int,
    loading_scale: float = 1.0,
    alpha: float = 2.0,
    beta: float = 0.1,
) -> None:
    """Draw tau (), the mixing matrix a (feature, source), sources s (row, source) and y (row, feature).

    The defaults suit standardised data. Raises ValueError for more sources than features.
    """
    require_factors(num_features, num_sources, "num_sources")
    tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    with numpyro.plate("feature", num_features, dim=-2), numpyro.plate("source", num_sources, dim=-1):
        a = numpyro.sample("a", dist.Normal(0.0, loading_scale))
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("source", num_sources, dim=-1):
        s = numpyro.sample("s", dist.Logistic(0.0, sqrt(3) / pi))
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        numpyro.sample("y", dist.Normal(s @ a.T, 1 / jnp.sqrt(tau)))


def example() -> dict[str, Any]:
    """Ten rows of three features, by one source."""
    third = np.array([0.3, 1.2, -1.5, 0.4, -0.6, 1.9, -0.2, -1.4, 0.5, -0.1])
    y = np.column_stack([ica.example()["y"], third])
    return {"num_rows": 10, "num_features": 3, "num_sources": 1, "y": y}


def data() -> dict[str, Any]:
    """The cocktail party, simulated: two speakers recorded by three microphones that hiss, at 100 times."""
    from bayeslab.datasets import simulated_cocktail_party

    y = simulated_cocktail_party(num_times=100, num_microphones=3, noise=0.1)["y"]
    return {"num_rows": len(y), "num_features": y.shape[1], "num_sources": 2, "y": y}
