"""A mixture of four Normals with independent features as NumPyro programs, with labels and without.

weights    ~ Dirichlet(1, 1, 1, 1)
tau_kf     ~ Gamma(2, 1)
mu_kf | tau ~ Normal(0, 1 / (0.1 tau_kf)),    component k, feature f
y_i        ~ sum_k weights_k prod_f Normal(y_if; mu_kf, 1 / tau_kf)
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array


def with_labels(num_rows: int) -> None:
    """Draw weights (component,), tau and mu (component, feature), z (row,) and y (row, feature)."""
    weights, tau, mu = parameters()
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1))


def without_labels(num_rows: int) -> None:
    """The same without z."""
    weights, tau, mu = parameters()
    components = dist.Normal(mu, 1 / jnp.sqrt(tau)).to_event(1)
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), components))


def parameters() -> tuple[Array, Array, Array]:
    """What both programs share."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(4)))
    with numpyro.plate("component", 4):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * tau)).to_event(1))
    return weights, tau, mu
