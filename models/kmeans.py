"""k-means as the limit of a mixture: equal weights, one spread for all, and that spread goes to zero.

    mu_k        ~ Normal(0, scale^2 I),              component k = 1..K
    z_i         ~ Uniform{1, ..., K},                row i = 1..n
    y_i | z, mu ~ Normal(mu_{z_i}, temperature I)

Mukherjee, Probabilistic Machine Learning, 13.3 (the assignment is an argmin over components, and what is found is a
minimum of the sum of squares); CS229, 10. Called no probability model there, it is the limit of this one: minus
2 temperature times its log joint is the sum of squared distances to the centres, but for a constant, and as the
temperature falls labels are drawn from the nearest centre alone. EM is then `hard_em`, Lloyd's algorithm. At a higher
temperature rows between centres belong to several.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

SITE_DIMS = {"mu": "component"}
LABELS = ("z",)
MAX_ROUNDS = 1000
"""Rounds of Lloyd's algorithm, at most; it ends by itself after finitely many."""


def model(num_rows: int, num_features: int, num_components: int, temperature: float = 0.1, scale: float = 10.0) -> None:
    """Draw centres mu (component, feature), labels z (row,) and y (row, feature).

    temperature: the variance of every feature within a component.
    """
    with numpyro.plate("component", num_components, dim=-2), numpyro.plate("feature", num_features, dim=-1):
        mu = numpyro.sample("mu", dist.Normal(0.0, scale))
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(jnp.full(num_components, 1 / num_components)))
        normal = dist.Normal(mu[z], jnp.sqrt(temperature)).to_event(1)
        numpyro.sample("y", normal, infer={"event_dims": ["feature"]})


def hard_em(y: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Centres (component, feature), labels (row,) and sum of squares where Lloyd's algorithm ends.

    Every row goes to its nearest centre, every centre to the mean of its rows, until no row moves; the sum of squares
    never grows. A centre without rows stays where it is. y (row, feature); centres: the first ones. Raises ValueError
    for other shapes, for none of either, and for what is not finite.
    """
    for name, array in (("y", y), ("centres", centres)):
        if np.ndim(array) != 2 or not np.size(array) or not np.isfinite(array).all():
            raise ValueError(f"{name} must be a table of finite numbers with rows, but has shape {np.shape(array)}")
    if np.shape(y)[1] != np.shape(centres)[1]:
        raise ValueError(f"centres have {np.shape(centres)[1]} features, but rows of y {np.shape(y)[1]}")
    centres, labels = np.array(centres, float), np.full(len(y), -1)
    for _ in range(MAX_ROUNDS):
        squares = ((y[:, None] - centres) ** 2).sum(2)
        previous, labels = labels, squares.argmin(1)
        if np.array_equal(previous, labels):
            break
        for component in np.unique(labels):
            centres[component] = y[labels == component].mean(0)
    return centres, labels, float(((y - centres[labels]) ** 2).sum())


def example() -> dict[str, Any]:
    """Seven points of the plane, in two heaps."""
    y = np.array([[-1.2, 0.1], [-0.8, -0.3], [-1.0, 0.4], [-1.3, -0.2], [1.1, 0.9], [0.9, 1.3], [1.4, 1.0]])
    return {"num_rows": 7, "num_features": 2, "num_components": 2, "temperature": 0.2, "scale": 3.0, "y": y}


def data() -> dict[str, Any]:
    """Four lengths in cm of 150 irises of three species (Fisher 1936)."""
    from bayeslab.datasets import irises

    table = irises().drop(columns="species")
    y = table.rename_axis(index="row", columns="feature").stack().to_xarray()
    return {"num_rows": len(table), "num_features": 4, "num_components": 3, "temperature": 0.2, "y": y}
