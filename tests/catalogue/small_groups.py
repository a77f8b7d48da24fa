"""Programs of groups whose sites have conditionals."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayeslab.distributions import MarkovChain
from zoo import GROUP

sample, plate = numpyro.sample, numpyro.plate


def mixture() -> None:
    weight = sample("weight", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0))
        tau = sample("tau", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        z = sample("z", dist.Categorical(weight))
        sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])))


def chain() -> None:
    with plate("state", 3):
        moves = sample("moves", dist.Dirichlet(jnp.ones(3)))
        mu = sample("mu", dist.Normal(jnp.array([-2.0, 0.0, 2.0]), 0.5))
    z = sample("z", MarkovChain(np.array([0.5, 0.3, 0.2]), moves, 5))
    with plate("step", 5):
        sample("y", dist.Normal(mu[z], 0.7))


def unknown_spread() -> None:
    """No family for the spread, hence a step of NUTS."""
    spread = sample("spread", dist.Gamma(3.0, 2.0))
    with plate("group", 3):
        a = sample("a", dist.Normal(1.0, spread))
    with plate("row", 5):
        sample("y", dist.Normal(a[GROUP], 0.5))
