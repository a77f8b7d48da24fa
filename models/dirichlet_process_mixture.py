"""A mixture of normal distributions with an unknown number of components: a Dirichlet process, truncated.

    alpha               ~ Gamma(shape, rate)
    left_k | alpha      ~ Beta(alpha, 1),                    stick k = 1..K - 1, and left_K = 0
    weights_k           = left_1 ... left_{k-1} (1 - left_k)
    tau_k               ~ Gamma(a, b)
    mu_k | tau          ~ Normal(mu0, 1 / (kappa0 tau_k)),   component k = 1..K
    z_i | weights       ~ Categorical(weights)
    y_i | z_i, mu, tau  ~ Normal(mu_{z_i}, 1 / tau_{z_i}),   row i = 1..n

No lecture has it; Mukherjee, Probabilistic Machine Learning, 13, asks how many components a mixture has. Sethuraman
(1994), Statistica Sinica 4:639; truncated as by Ishwaran and James (2001), Journal of the American Statistical
Association 96:161, which changes next to nothing where K is a few times the number of components that rows are in. That
number is `occupied`, and its posterior the answer. Where others write v_k ~ Beta(1, alpha), left_k is 1 - v_k.
Components come with falling weights in the prior, so their order means a little, but only what does not depend on it
should be compared.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

LABELS = ("z",)


def model(
    num_rows: int,
    num_components: int = 10,
    mu0: float = 0.0,
    kappa0: float = 0.1,
    a: float = 2.0,
    b: float = 0.5,
    shape: float = 2.0,
    rate: float = 2.0,
) -> None:
    """Draw alpha (), left (stick,), tau (component,), mu (component,), labels z (row,) and y (row,).

    num_components: the truncation K, two or more. The defaults suit standardised data. Deterministic: weights
    (component,), and occupied (), the number of components that rows are in.
    """
    if num_components < 2:
        raise ValueError(f"num_components is {num_components}, but a stick is broken into 2 or more")
    alpha = numpyro.sample("alpha", dist.Gamma(shape, rate))
    with numpyro.plate("stick", num_components - 1):
        left = numpyro.sample("left", dist.Beta(alpha, 1.0))
    weights = stick_breaking(left)
    with numpyro.plate("component", num_components):
        numpyro.deterministic("weights", weights)
        tau = numpyro.sample("tau", dist.Gamma(a, b))
        mu = numpyro.sample("mu", dist.Normal(mu0, 1 / jnp.sqrt(kappa0 * tau)))
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])))
    numpyro.deterministic("occupied", jnp.zeros(num_components).at[z].set(1.0).sum())


def stick_breaking(left: Array) -> Array:
    """The lengths (component,) of the parts of a stick that is broken again and again, from what is left each time.

    left: the shares (stick,) of what is there; near zero they keep their digits.
    """
    broken = jnp.concatenate([1 - left, jnp.ones(1)])
    return broken * jnp.concatenate([jnp.ones(1), jnp.cumprod(left)])


def example() -> dict[str, Any]:
    """Nine observations about three places, with up to four components."""
    y = np.array([-2.1, -1.8, -2.3, 0.1, 0.3, -0.2, 2.4, 2.0, 2.2])
    return {"num_rows": 9, "num_components": 4, "mu0": 0.2, "kappa0": 0.2, "a": 3.0, "b": 0.4, "y": y}


def data() -> dict[str, Any]:
    """Lengths in cm of the petals of 150 irises, whose three species nobody told the model of (Fisher 1936)."""
    from sklearn.datasets import load_iris

    y = load_iris(as_frame=True).data["petal length (cm)"].rename_axis("row").to_xarray()
    return {"num_rows": len(y), "mu0": 4.0, "b": 0.2, "y": y}
