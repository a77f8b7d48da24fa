"""A nonlinear state-space model: stochastic volatility.

    phi     ~ Beta(a, b)
    mu      ~ Normal(0, s^2)
    tau     ~ Gamma(alpha, beta)
    z_0     ~ Normal(mu, 1 / (tau (1 - phi^2)))
    z_t | z ~ Normal(mu + phi (z_{t-1} - mu), 1 / tau),    step t = 1..T
    y_t | z ~ Normal(0, exp(z_t))

z_t, the log of the variance of y_t, goes back to its mean mu as fast as phi says. Any other pair of a transition and an
observation is written the same way, as the body of a scan (Whiteboard notes, "Particle filter", where y is x). With
nonlinear observations no filter is exact, and expectations given y are sums over weighted particles; the summary of
the notes forgets the 1 / N of those whose weights do not sum to one (W31). Kim, Shephard and Chib (1998), Review of
Economic Studies 65.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.contrib.control_flow import scan


def model(
    num_steps: int, a: float = 20.0, b: float = 1.5, s: float = 2.0, alpha: float = 2.5, beta: float = 0.05
) -> None:
    """Draw phi, mu, tau, z0, log variances z (step,) and y (step,).

    The defaults suit standardised data whose volatility changes slowly.
    """
    phi = numpyro.sample("phi", dist.Beta(a, b))
    mu = numpyro.sample("mu", dist.Normal(0.0, s))
    tau = numpyro.sample("tau", dist.Gamma(alpha, beta))
    z0 = numpyro.sample("z0", dist.Normal(mu, 1 / jnp.sqrt(tau * (1 - phi**2))))

    def step(z: Array, _: None) -> tuple[Array, None]:
        z = numpyro.sample("z", dist.Normal(mu + phi * (z - mu), 1 / jnp.sqrt(tau)))
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(z / 2)))
        return z, None

    scan(step, z0, None, num_steps)


def example() -> dict[str, Any]:
    """Ten values, calm at first and then not."""
    y = np.array([0.3, -0.2, 0.5, 0.1, -0.4, 1.9, -2.2, 0.6, 2.8, -1.4])
    return {"num_steps": 10, "a": 8.0, "b": 2.0, "s": 1.0, "alpha": 3.0, "beta": 0.6, "y": y}


def data() -> dict[str, Any]:
    """Daily returns, simulated, whose volatility comes in clusters."""
    from bayeslab.datasets import simulated_returns

    return simulated_returns(200)
