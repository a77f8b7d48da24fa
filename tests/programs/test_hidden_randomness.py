"""Random numbers that no site holds are refused: they would be the same in every draw."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import block

import bayeslab as bl

Y = np.array([1.0, 2.0, 0.5])


def two(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, tau**-0.5))


def noisy(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0)) + jax.random.normal(numpyro.prng_key())
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def weighted(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    numpyro.factor("y", -n * (mu - jax.random.normal(numpyro.prng_key())) ** 2)


def walk(n: int, noise: float) -> None:
    def step(at: Any, _: Any) -> Any:
        move = noise * jax.random.normal(numpyro.prng_key()) if noise else 0.0
        return (at := numpyro.sample("y", dist.Normal(0.5 * at + move, 1.0))), None

    scan(step, numpyro.sample("start", dist.Normal(0.0, 1.0)), None, length=n)


def steps(n: int) -> None:
    walk(n, 1.0)


@pytest.mark.parametrize("program", [block(two, hide=["tau"]), noisy, weighted, steps])
def test_it_is_refused(program: Any) -> None:
    data = {"n": 3} if program is weighted else {"n": 3, "y": Y}
    with pytest.raises(ValueError, match="site 'y' depends on random numbers that no site of"):
        bl.fit(1, program, data)


def test_keys_that_reach_no_density_are_no_matter() -> None:
    """A scan carries its key from step to step."""
    assert bl.bind(walk, {"n": 3, "noise": 0.0, "y": Y}).latent == ("start",)
