"""A Bayesian network of normal nodes: each is a linear regression on its parents.

    tau_j                    ~ Gamma(shape, rate)
    intercept_j | tau_j      ~ Normal(0, 1 / (shrinkage tau_j))
    w_jk | tau_j             ~ Normal(0, 1 / (shrinkage tau_j)),    parent k of node j
    x_ij | its parents       ~ Normal(intercept_j + sum over k of w_jk x_ik, 1 / tau_j),    row i = 1..n

Whiteboard notes, "Gaussian networks". With x - mu = W (x - mu) + S e, where S holds the standard deviations
1 / sqrt(tau_j), the intercepts are (I - W) mu: `mean` is mu, and `covariance` is (I - W)^-1 S^2 (I - W)^-T. The notes
also print Normal(mu_j + sum of w_jk x_k, ...), in which mu_j is no mean. Parents come before their children, and nets
with the same independences fit equally well. Given complete data every node has a Normal-Gamma posterior of its own.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

Parents = tuple[tuple[str, tuple[str, ...]], ...]
"""Every node of a net, with those that it depends on, each after its own."""


def model(num_rows: int, parents: Parents, shrinkage: float = 0.1, shape: float = 2.0, rate: float = 1.0) -> None:
    """Draw tau_j (), intercept_j (), w_jk () and x_j (row,) for every node j and parent k: "tau_b", "w_b_a" and "b".

    Deterministic: mean (node,) and covariance (node, node_) of the nodes.
    """
    places = {name: place for place, name in enumerate(dict(parents))}
    weights = jnp.zeros((len(parents), len(parents)))
    intercepts, precisions, nodes = [], [], dict[str, Array]()
    for name, own in parents:
        tau = numpyro.sample(f"tau_{name}", dist.Gamma(shape, rate))
        scale = 1 / jnp.sqrt(shrinkage * tau)
        intercept = numpyro.sample(f"intercept_{name}", dist.Normal(0.0, scale))
        centre = intercept
        for parent in own:
            w = numpyro.sample(f"w_{name}_{parent}", dist.Normal(0.0, scale))
            weights = weights.at[places[name], places[parent]].set(w)
            centre = centre + w * nodes[parent]
        with numpyro.plate("row", num_rows):
            nodes[name] = numpyro.sample(name, dist.Normal(centre, 1 / jnp.sqrt(tau)))
        intercepts.append(intercept)
        precisions.append(tau)
    mean, covariance = moments(weights, jnp.stack(intercepts), jnp.stack(precisions))
    with numpyro.plate("node", len(parents)):
        numpyro.deterministic("mean", mean)
    with numpyro.plate("node", len(parents), dim=-2), numpyro.plate("node_", len(parents), dim=-1):
        numpyro.deterministic("covariance", covariance)


def moments(weights: Array, intercepts: Array, precisions: Array) -> tuple[Array, Array]:
    """Mean (node,) and covariance (node, node_) of all nodes. weights: of a node (row) on its parents (column)."""
    rest = jnp.eye(len(weights)) - weights
    factor = jnp.linalg.solve(rest, jnp.diag(1 / jnp.sqrt(precisions)))
    return jnp.linalg.solve(rest, intercepts), factor @ factor.T


def example() -> dict[str, Any]:
    """Eight rows of a collider: c depends on a and b."""
    a = np.array([0.3, -1.2, 0.8, 1.5, -0.4, 0.1, -0.9, 1.1])
    b = np.array([-0.2, 0.9, 0.4, -1.1, 0.1, 1.4, 0.6, -0.3])
    c = np.array([0.4, 0.2, 1.1, 0.9, 0.3, 1.5, 0.0, 1.2])
    parents = (("a", ()), ("b", ()), ("c", ("a", "b")))
    prior = {"shrinkage": 0.3, "shape": 2.5, "rate": 0.7}
    return {"num_rows": 8, "parents": parents} | prior | {"a": a, "b": b, "c": c}


def data() -> dict[str, Any]:
    """Three lengths in cm of 50 flowers of Iris setosa, as a chain (Anderson 1935)."""
    from bayeslab.datasets import iris_setosa

    flowers = iris_setosa()
    parents = (("sepal_length", ()), ("petal_length", ("sepal_length",)), ("petal_width", ("petal_length",)))
    nodes = {name: flowers.isel(feature=place, drop=True) for name, place in zip(dict(parents), (0, 2, 3), strict=True)}
    return {"num_rows": len(flowers), "parents": parents, "rate": 0.2} | nodes
