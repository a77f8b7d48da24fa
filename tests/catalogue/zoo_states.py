"""Programs of the zoo with linear Gaussian chains, and with labels by scores."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayeslab.distributions import LinearChainCRF, LinearGaussianChain

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


SCORES = np.array([[0.3, -1.2, 0.5], [1.0, 0.0, -0.4], [-0.7, 0.9, 0.2], [0.1, -0.3, 1.4]])
PAIR_SCORES = np.array([[1.0, -0.5, 0.3], [0.2, 0.8, -1.1], [-2.0, 0.4, 0.6]])


def labels_by_scores() -> None:
    """Two sequences of labels of a conditional random field, one shorter than the other, and noise beside them."""
    with plate("sequence", 2):
        field = LinearChainCRF(jnp.stack([jnp.asarray(SCORES), -jnp.asarray(SCORES)]), PAIR_SCORES, lengths=[4, 2])
        z = sample("z", field)
        seen = dist.Normal(jnp.array([-1.0, 0.5, 3.0])[z], 0.7).mask(jnp.arange(4) < jnp.array([[4], [2]]))
        sample("y", seen.to_event(1))


def coupled_scores() -> None:
    """What is seen depends on two labels at once."""
    z = sample("z", LinearChainCRF(SCORES, PAIR_SCORES))
    sample("y", dist.Normal(1.0 * z[1:] * z[:-1], 0.7).to_event(1))
