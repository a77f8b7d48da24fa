"""Simulation-based calibration of NUTS on collapsed programs together with the draws of what it left out.

The test and its level are those of `ranks.py`. Labels and states have priors of their own means, so that they are not
exchanged; effects have a spread without a conditional in closed form, or are integrated out on request.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.programs.program import Program
from ranks import LEVEL, smallest_p
from small_groups import chain, mixture, unknown_spread
from zoo import CASES, COUNTS, Y

SIMULATIONS, DRAWS = 300, 39
sample, plate = numpyro.sample, numpyro.plate


def counts_of_two_kinds(n: int) -> None:
    """A mixture of Poisson distributions, whose labels have a probability to learn."""
    share = sample("share", dist.Beta(2.0, 2.0))
    with plate("kind", 2):
        rate = sample("rate", dist.Gamma(jnp.array([2.0, 30.0]), jnp.array([2.0, 3.0])))
    with plate("row", n):
        z = sample("z", dist.Bernoulli(share))
        sample("y", dist.Poisson(rate[z]))


def effects_of_kinds(n: int) -> None:
    """Every row has a label and, given it, an effect."""
    mu = sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with plate("row", n):
        z = sample("z", dist.Bernoulli(0.3))
        effect = sample("effect", dist.Normal(mu[z], 1.0))
        sample("y", dist.Normal(effect, 0.5))


CASES_AND_COLLAPSED: dict[str, tuple[Program, dict[str, Any], tuple[str, ...]]] = {
    "mixture": (mixture, {"y": Y}, ()),
    "counts_of_two_kinds": (counts_of_two_kinds, {"n": len(COUNTS), "y": COUNTS}, ()),
    "chain": (chain, {"y": Y}, ()),
    "hierarchical": (unknown_spread, {"y": Y}, ("a",)),
    "effects_of_kinds": (effects_of_kinds, {"n": 5, "y": np.zeros(5)}, ("effect",)),
    "change_point": (*CASES["change_point"][:2], ()),
}
SLOW_CASES = ("mixture", "chain", "effects_of_kinds", "change_point", "counts_of_two_kinds")


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_CASES)) for name in CASES_AND_COLLAPSED],
)
def test_nuts_and_what_it_draws_back_are_calibrated(case: str) -> None:
    model, data, collapse = CASES_AND_COLLAPSED[case]
    nuts = bl.NUTS(num_warmup=200, num_samples=DRAWS, num_chains=1, thinning=3, collapse=collapse)
    checks = bl.sbc(4, model, data, nuts, SIMULATIONS, progress=False)
    sites = set(bl.simulate(0, model, data, 1)["prior"].data_vars)
    assert set(checks["prior_sbc"].data_vars) == sites | {"log_joint", "log_likelihood"}
    assert smallest_p(checks) > LEVEL
