"""Replications of data where the values of some parameters are given."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import condition

import bayeslab as bl

X = np.linspace(-1.0, 1.0, 20)
GROUP = np.repeat(np.arange(4), 5)
DATA = {"x": X, "group": GROUP, "y": 0.5 * X + 0.1 * np.random.default_rng(0).normal(size=20)}


def regression(x: Any, group: Any) -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(5.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("groups", 4):
        offset = numpyro.sample("offset", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(slope * x + offset[group], scale))


GIVEN = {"scale": jnp.array(0.1), "offset": jnp.zeros(4)}


@pytest.mark.parametrize("as_data", [True, False], ids=["in the data", "by condition"])
def test_given_parameters_keep_their_values(as_data: bool) -> None:
    """Drawn from their priors, offsets and the scale would spread replications by 5, not by 0.1."""
    model = regression if as_data else condition(regression, GIVEN)
    data = DATA | GIVEN if as_data else DATA
    tree = bl.predict(1, model, data, bl.fit(0, model, data, bl.Exact(500), progress=False))
    assert set(tree["posterior_predictive"].data_vars) == {"y"}
    assert set(tree["log_likelihood"].data_vars) == {"y"}
    noise = tree["posterior_predictive"]["y"].values[0] - tree["posterior"]["slope"].values[0][:, None] * X
    assert abs(noise.std() - 0.1) < 5 * 0.1 / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 5 * 0.1 / np.sqrt(noise.size)


def columns(num_rows: int) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", num_rows):
        first = numpyro.sample("first", dist.Normal(0.0, 1.0))
        numpyro.sample("second", dist.Normal(slope * first, 0.1))


def test_columns_of_one_table_are_replicated_together() -> None:
    """A column is no parameter of another: the second follows the new values of the first."""
    data = {"num_rows": 20, "first": X, "second": 2 * X}
    tree = bl.predict(1, columns, data, bl.fit(0, columns, data, bl.Exact(500), progress=False))
    first, second = (tree["posterior_predictive"][name].values[0] for name in ("first", "second"))
    noise = second - tree["posterior"]["slope"].values[0][:, None] * first
    assert abs(noise.std() - 0.1) < 5 * 0.1 / np.sqrt(2 * noise.size)
    assert abs(first.std() - 1.0) < 5 / np.sqrt(2 * first.size)
