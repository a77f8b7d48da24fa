"""Dirichlet-multinomial densities whose concentrations are far from their counts."""

from math import fsum

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma

from bayeslab.mixed_membership.dirichlet import dirichlet_multinomial_log_density, log_rising_factorial

BASES = [1e-300, 1e-20, 1e-3, 0.7, 50.0, 99.0, 101.0, 1e4, 1e10, 1e17, 1e30, 1e150, 1e300]


@pytest.mark.parametrize("count", [0, 1, 2, 40, 300_000])
def test_rising_factorials_have_all_digits(count: int) -> None:
    """Against the product base (base + 1) ... (base + count - 1)."""
    right = [fsum(np.log(base + np.arange(count))) for base in BASES]
    with jax.enable_x64():
        found = log_rising_factorial(jnp.array(BASES), jnp.full(len(BASES), float(count)))
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def test_their_slopes_are_those_of_digamma() -> None:
    bases = np.array([1e-3, 0.7, 99.0, 101.0, 1e4, 1e10, 1e30])
    with jax.enable_x64():
        slopes = jax.vmap(jax.grad(log_rising_factorial), (0, None))(jnp.array(bases), 5.0)
    near = bases < 1e6
    np.testing.assert_allclose(slopes[near], digamma(bases[near] + 5) - digamma(bases[near]), rtol=1e-9)
    np.testing.assert_allclose(slopes[~near], 5 / bases[~near], rtol=1e-8)


def test_the_density_of_large_concentrations_is_multinomial() -> None:
    shares, counts = np.array([0.2, 0.3, 0.5, 0.0]), np.array([3.0, 1.0, 6.0, 0.0])
    with jax.enable_x64():
        found = dirichlet_multinomial_log_density(jnp.array(1e60 * shares), jnp.array(counts), jnp.array(shares > 0))
    np.testing.assert_allclose(found, counts[:3] @ np.log(shares[:3]), rtol=1e-12)
