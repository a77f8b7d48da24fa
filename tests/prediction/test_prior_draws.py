"""What needs draws of a program refuses one whose density is not that of its draws."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask, scale

import bayeslab as bl

Y = np.array([1.0, 2.0, 0.5])
METHOD = bl.Gibbs(num_warmup=10, num_samples=20)


def rows(mu: Any, n: int) -> None:
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def tied(n: int) -> None:
    a, b = (numpyro.sample(name, dist.Normal(0.0, 2.0)) for name in "ab")
    numpyro.factor("close", -50 * (a - b) ** 2)
    rows(a + b, n)


def weighted_prior(n: int) -> None:
    with scale(scale=3.0):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    rows(mu, n)


def weighted_rows(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with scale(scale=jnp.full(n, 3.0)):
        rows(mu, n)


def masked_prior(n: int) -> None:
    with mask(mask=jnp.array(False)):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    rows(mu, n)


def harmless(n: int) -> None:
    """A factor of data, weights of one, a mask of data."""
    numpyro.factor("constant", -jnp.log(1.0 * n))
    with scale(scale=1.0), mask(mask=jnp.array(True)):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with mask(mask=jnp.arange(n) > 0):
        rows(mu, n)


REFUSED = {
    tied: "needs draws from the prior, but factor 'close' changes it",
    weighted_prior: "handlers.scale weights that of site 'mu'",
    weighted_rows: "draws data, but handlers.scale weights site 'y'",
    masked_prior: "that of site 'mu' is masked, hence improper",
}


@pytest.mark.parametrize("program", REFUSED)
def test_calibration_is_of_what_is_drawn(program: Any) -> None:
    data = {"n": 3, "y": Y}
    with pytest.raises(ValueError, match=REFUSED[program]):
        bl.sbc(1, program, data, METHOD, num_simulations=2, progress=False)
    with pytest.raises(ValueError, match=REFUSED[program]):
        bl.joint_distribution_test(1, program, data, METHOD)


def test_simulation_needs_a_prior_alone() -> None:
    for program in (tied, weighted_prior):
        with pytest.raises(ValueError, match=REFUSED[program]):
            bl.simulate(1, program, {"n": 3}, 2)
    drawn = bl.simulate(1, weighted_rows, {"n": 3, "y": Y}, 4000)["prior"]["mu"]
    assert abs(drawn.std() / 2 - 1) < 5 / np.sqrt(2 * 4000)


def test_what_changes_nothing_is_no_reason() -> None:
    found = bl.sbc(1, harmless, {"n": 3, "y": Y}, METHOD, num_simulations=10, progress=False)
    assert (bl.calibration_verdict(found).p_value >= 0).all()
