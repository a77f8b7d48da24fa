"""Derivatives of factors, by products, are those of automatic differentiation."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayeslab.gaussian_processes.cholesky import factor, normal_log_density, whitener

RANDOM = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def test_derivatives_through_factors_are_those_of_jax() -> None:
    matrix = jnp.asarray(np.cov(RANDOM.normal(size=(6, 20)))) + jnp.eye(6)
    move, vector = jnp.asarray(RANDOM.normal(size=(6, 6))), jnp.asarray(RANDOM.normal(size=6))

    def plain(t: Any) -> Any:
        changed = matrix + t * (move + move.T) / 10
        lower = jnp.linalg.cholesky(changed)
        return (
            lower,
            jnp.linalg.inv(lower),
            -vector @ jnp.linalg.solve(changed, vector) / 2 - jnp.linalg.slogdet(changed)[1] / 2,
        )

    def ours(t: Any) -> Any:
        changed = matrix + t * (move + move.T) / 10
        return factor(changed), whitener(changed), normal_log_density(changed, vector)

    for derivative in (lambda f: f, jax.jacfwd, lambda f: jax.jacfwd(jax.jacfwd(f)), jax.jacrev):
        for one, other in zip(jax.jit(derivative(ours))(0.3), jax.jit(derivative(plain))(0.3), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)
