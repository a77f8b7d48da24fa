"""A mixture of normal distributions: rows come from components that nobody labelled.

    weights             ~ Dirichlet(concentration, ..., concentration)
    tau_k               ~ Gamma(alpha, beta)
    mu_k | tau          ~ Normal(mu0, 1 / (kappa0 tau_k)),    component k = 1..K
    z_i | weights       ~ Categorical(weights)
    y_i | z_i, mu, tau  ~ Normal(mu_{z_i}, 1 / tau_{z_i}),    row i = 1..n

Mukherjee, Probabilistic Machine Learning, 13.1 and 13.2; CS229, 11.1. Given the labels z this is one
`normal_gamma` a component, so every site has a conditional in closed form and the posterior none. A
proper prior of tau keeps the density bounded where a component holds a single row. Components that
change places leave the density as it is: `align(tree, SITE_DIMS, LABELS)` gives all draws one order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

SITE_DIMS = {"weights": "component", "tau": "component", "mu": "component"}
LABELS = ("z",)


def model(
    num_rows: int,
    num_components: int,
    mu0: float = 0.0,
    kappa0: float = 0.1,
    alpha: float = 2.0,
    beta: float = 0.5,
    concentration: float = 1.0,
) -> None:
    """Draw weights (component,), tau (component,), mu (component,), labels z (row,) and y (row,).

    The prior of each mu counts as much as kappa0 rows, that of the weights as concentration rows a
    component. The defaults suit standardised data: a component has a third to all of their spread;
    `datasets.scaled_prior(y)` is for others.
    """
    dirichlet = dist.Dirichlet(jnp.full(num_components, concentration))
    weights = numpyro.sample("weights", dirichlet, infer={"event_dims": ["component"]})
    with numpyro.plate("component", num_components):
        tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
        mu = numpyro.sample("mu", dist.Normal(mu0, 1 / jnp.sqrt(kappa0 * tau)))
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])))


def example() -> dict[str, Any]:
    """Eight observations, five about -1 and three about 2, under a prior that is not the default."""
    y = np.array([-1.1, -0.7, -1.4, -0.9, -1.0, 2.3, 1.8, 2.1])
    prior = {"mu0": 0.5, "kappa0": 0.2, "alpha": 3.0, "beta": 0.6, "concentration": 2.0}
    return {"num_rows": 8, "num_components": 2, **prior, "y": y}


def data() -> dict[str, Any]:
    """Lengths in cm of the petals of 150 irises of three species, two of which overlap (Fisher 1936)."""
    from sklearn.datasets import load_iris

    y = load_iris(as_frame=True).data["petal length (cm)"].rename_axis("row").to_xarray()
    return {"num_rows": len(y), "num_components": 2, "mu0": 4.0, "y": y}
