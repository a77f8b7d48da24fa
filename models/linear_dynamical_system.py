"""A linear dynamical system with known parameters.

    z_1       ~ Normal(mu1, sigma1)
    z_t | z   ~ Normal(a z_{t-1} + b, q),    step t = 2..T
    y_t | z   ~ Normal(c z_t + d, r),        step t = 1..T

CS229, 16.4; Whiteboard notes, "LDS", where y is x, parameters are capitals, and the update step of the filter is left
to the reader. The second parameters are covariance matrices. `LinearGaussianChain.filtered` and `smoothed` are filter
and smoother; `local_level` has unknown noise.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import LinearGaussianChain


def model(
    num_steps: int,
    mu1: Array,
    sigma1: Array,
    a: Array,
    q: Array,
    c: Array,
    r: Array,
    b: Array | float = 0.0,
    d: Array | float = 0.0,
) -> None:
    """Draw states z (step, component) and y (step, direction).

    mu1 (component,), sigma1, a, q (component, component), c (direction, component), r (direction, direction),
    b (component,), d (direction,).
    """
    chain = LinearGaussianChain(mu1, sigma1, a, q, b * jnp.ones(len(mu1)), num_steps)
    z = numpyro.sample("z", chain, infer={"event_dims": ["step", "component"]})
    with numpyro.plate("step", num_steps):
        normal = dist.MultivariateNormal(z @ c.T + d, covariance_matrix=r)
        numpyro.sample("y", normal, infer={"event_dims": ["direction"]})


def example() -> dict[str, Any]:
    """Six noisy positions of something that swings, one of them missing."""
    y = np.array([[1.1, 0.4], [0.5, 1.0], [-0.4, 1.2], [np.nan, np.nan], [-1.2, -0.1], [-0.6, -0.9]])
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    return {
        "num_steps": 6,
        "mu1": np.array([1.0, 0.0]),
        "sigma1": np.array([[0.5, 0.1], [0.1, 0.4]]),
        "a": turn,
        "q": np.array([[0.05, 0.01], [0.01, 0.08]]),
        "c": np.array([[1.0, 0.2], [0.0, 1.0]]),
        "r": np.array([[0.1, 0.02], [0.02, 0.2]]),
        "b": np.array([0.05, -0.1]),
        "d": np.array([0.0, 0.1]),
        "y": y,
    }


def data() -> dict[str, Any]:
    """A ship, simulated, whose radar is silent for a while: states are positions and velocities."""
    from bayeslab.datasets import simulated_track

    return simulated_track(80)
