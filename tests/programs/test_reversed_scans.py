"""Scans that run backwards: values of sites are in the order of the elements, whichever way they are given."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.contrib.control_flow import scan

import bayeslab as bl
from bayeslab.programs.program import precision_scope
from bayeslab.programs.unconstrained import log_posterior
from quick_cases import quick_ones

U, Y = np.array([0.0, 1.0, 5.0, 20.0]), np.array([0.3, 1.5, -2.0, 4.0])
SCALE, UP = jnp.array([0.5, 1.0, 2.0, 4.0]), np.array([0, 1, 1, 0])


def growth(u: Any, seen: Any, reverse: bool, given: bool) -> None:
    """A positive state, its direction, and what is seen of both. given: whether the scan has the observed values."""

    def step(last: Array, now: Any) -> tuple[Array, Array]:
        shift, value = now
        scale = numpyro.sample("scale", dist.LogNormal(jnp.log(last), 1.0))
        up = numpyro.sample("up", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(shift + up, scale), obs=value if given else None)
        return scale, scale

    _, scales = scan(step, jnp.ones(()), (u, seen), reverse=reverse)
    numpyro.sample("first", dist.Normal(scales[-1 if reverse else 0], 1.0), obs=0.0)


@pytest.mark.parametrize(
    ("given", "missing"), quick_ones(product([True, False], repeat=2), (True, True), (False, False))
)
def test_the_density_is_that_of_the_scan_the_other_way_round(given: bool, missing: bool) -> None:
    """Of values in the space of the sites, and of unconstrained ones with their Jacobian."""
    densities, y = [], np.where(missing & (Y < 0), np.nan, Y)
    with precision_scope():
        for reverse in (False, True):
            turn = slice(None, None, -1 if reverse else 1)
            data = {"u": U[turn], "seen": U, "reverse": reverse, "given": given, "up": UP[turn]}
            bound = bl.bind(growth, data | {"seen" if given else "y": y[turn]})
            density = bound.log_joint({"scale": SCALE[turn]})
            moved = log_posterior(bound, {"scale": jnp.log(SCALE[turn])})
            assert float(moved) == pytest.approx(float(density + jnp.log(SCALE).sum()))
            densities.append(float(density))
    assert densities[0] == pytest.approx(densities[1], rel=1e-12)
