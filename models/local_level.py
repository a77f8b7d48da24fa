"""A level that moves in steps of unknown size, measured with noise of unknown size.

    tau_level ~ Gamma(alpha, beta_level)
    tau_noise ~ Gamma(alpha, beta_noise)
    z_1       ~ Normal(mu1, sigma1^2)
    z_t | z   ~ Normal(z_{t-1}, 1 / tau_level),    step t = 2..T
    y_t | z   ~ Normal(z_t, 1 / tau_noise),        step t = 1..T

The smallest `linear_dynamical_system` (Whiteboard notes, "LDS") with parameters to learn; Durbin and Koopman (2012),
Time Series Analysis by State Space Methods, chapter 2. Missing y, at the end as well, are predicted.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayeslab.distributions import LinearGaussianChain


def model(
    num_steps: int,
    mu1: float = 0.0,
    sigma1: float = 3.0,
    alpha: float = 2.0,
    beta_level: float = 0.1,
    beta_noise: float = 1.0,
) -> None:
    """Draw tau_level, tau_noise, levels z (step, component) with one component, and y (step,).

    The defaults suit standardised data; beta / alpha is about the variance that is expected.
    """
    tau_level = numpyro.sample("tau_level", dist.Gamma(alpha, beta_level))
    tau_noise = numpyro.sample("tau_noise", dist.Gamma(alpha, beta_noise))
    one = jnp.eye(1)
    chain = LinearGaussianChain(mu1 * jnp.ones(1), sigma1**2 * one, one, one / tau_level, num_steps=num_steps)
    z = numpyro.sample("z", chain, infer={"event_dims": ["step", "component"]})
    with numpyro.plate("step", num_steps):
        numpyro.sample("y", dist.Normal(z[:, 0], 1 / jnp.sqrt(tau_noise)))


def example() -> dict[str, Any]:
    """Ten measurements of a level that rises, two of them missing."""
    y = np.array([0.3, -0.2, 0.5, np.nan, 0.9, 0.4, 1.3, 1.6, np.nan, 1.5])
    return {"num_steps": 10, "mu1": 0.5, "sigma1": 2.0, "alpha": 3.0, "beta_level": 0.3, "beta_noise": 0.5, "y": y}


def data() -> dict[str, Any]:
    """Annual flow of the Nile at Aswan, 1871 to 1970, in 10^8 cubic metres."""
    from bayeslab.datasets import nile

    y = nile().rename(year="step")
    prior = {"mu1": 1000.0, "sigma1": 1000.0, "alpha": 1.0, "beta_level": 1000.0, "beta_noise": 10_000.0}
    return {"num_steps": y.sizes["step"], **prior, "y": y}
