"""What is small stays on the CPU, whatever JAX's default device is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.distributions.processor import as_on_accelerator, on_accelerator, on_cpu

TRACED: list[bool] = []
"""Whether the program was traced for an accelerator, every time."""


def mean_of_rows(num_rows: int) -> None:
    TRACED.append(on_accelerator())
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def fitted(number: int, method: Any) -> bool:
    """Whether the draws of a fit on a machine with an accelerator are compiled for it."""
    TRACED.clear()
    data = {"num_rows": number, "y": np.linspace(-1.0, 1.0, number)}
    with as_on_accelerator():
        bl.fit(0, mean_of_rows, data, method, progress=False)
    return TRACED[-1]


@pytest.mark.parametrize(
    ("number", "method", "accelerated"),
    [
        (30, bl.Exact(20), False),
        (20_000, bl.Exact(20), True),
        (30, bl.NUTS(num_warmup=2, num_samples=2, num_chains=2), True),
    ],
    ids=["little in closed form", "much in closed form", "chains"],
)
def test_draws_in_closed_form_of_little_data_stay_on_the_cpu(number: int, method: Any, accelerated: bool) -> None:
    assert fitted(number, method) is accelerated


def test_programs_follow_the_default_device() -> None:
    """One that is traced for a CPU is another one than that for an accelerator; both are kept."""
    which = jax.jit(lambda x: x + on_accelerator())
    with as_on_accelerator():
        assert which(jnp.zeros(())) == 1
        with on_cpu(True):
            assert which(jnp.zeros(())) == 0
        with on_cpu(False):
            assert which(jnp.zeros(())) == 1
    with on_cpu(True):
        assert which(jnp.zeros(())) == 0
    with jax.default_device("cpu"):
        assert not on_accelerator()
