"""Programs of the zoo with linear Gaussian chains."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayeslab.distributions import LinearGaussianChain

sample, plate = numpyro.sample, numpyro.plate
TURN, ROUGH = np.array([[0.9, 0.3], [-0.2, 0.8]]), np.array([[0.5, 0.1], [0.1, 0.3]])
SEEN = np.array([[1.0, 0.5], [0.0, 1.0], [0.3, -1.0]])
LEVELS = np.array([0.4, np.nan, 1.1, 0.7, 2.0, 1.6])
PAIRS = np.random.default_rng(0).normal(size=(2, 5, 3))


def learned_states() -> None:
    """A level that returns to zero, everything about it unknown."""
    pull = sample("pull", dist.Normal(0.7, 0.3))
    moves = sample("moves", dist.Gamma(3.0, 1.0))
    one = jnp.eye(1)
    z = sample("z", LinearGaussianChain(jnp.ones(1), 2.0 * one, pull * one, one / moves, num_steps=6))
    noise = sample("noise", dist.Gamma(4.0, 2.0))
    with plate("step", 6):
        sample("y", dist.Normal(z[:, 0], 1 / jnp.sqrt(noise)))


def many_states() -> None:
    """Two series of three measurements of two numbers."""
    chain = LinearGaussianChain(jnp.zeros(2), jnp.eye(2), TURN, ROUGH, jnp.array([0.1, 0.0]), 5)
    with plate("series", 2):
        z = sample("z", chain)
        sample("y", dist.Normal(z @ SEEN.T, 0.7).to_event(2))


def coupled_states() -> None:
    """A measurement of differences: its Hessian has blocks between steps."""
    z = sample("z", LinearGaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), jnp.eye(1), num_steps=6))
    sample("y", dist.Normal(jnp.diff(z[:, 0], prepend=0.0), 0.7).to_event(1))


def robust_level() -> None:
    z = sample("z", LinearGaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), jnp.eye(1), num_steps=6))
    with plate("step", 6):
        sample("y", dist.StudentT(200.0, z[:, 0], 0.7))
