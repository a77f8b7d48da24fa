"""One autoregression, written in several ways, is replicated in one way: run from its first values on."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import condition
from numpyro.infer import Predictive

import bayeslab as bl

FIRST = np.array([4.0, 3.0])
Y = np.array([3.1, 2.0, 1.9, 0.4, 0.2, -0.3, 0.5, 0.1])


def steps(first: Any, known: Any = None) -> None:
    """Values that follow from the last two. known: those that the body of the scan observes."""
    weight = numpyro.sample("weight", dist.Normal(0.0, 0.5).expand([2]).to_event(1))

    def step(last: Any, value: Any) -> Any:
        new = numpyro.sample("y", dist.Normal(weight @ jnp.stack(last), 0.5), obs=value)
        return (new, last[0]), None

    scan(step, (first[1], first[0]), known, length=len(Y))


def by_name(first: Any) -> None:
    steps(first)


def by_observation(first: Any, values: Any) -> None:
    steps(first, values)


def by_condition_inside(first: Any, values: Any) -> None:
    with condition(data={"y": values}):
        steps(first)


def first_values_as_sites(first: Any, values: Any) -> None:
    known = numpyro.sample("first", dist.Normal(0.0, 3.0).expand([2]).to_event(1), obs=first)
    steps(known, values)


def values_before_as_covariates(before: Any, values: Any) -> None:
    """Not the same program: what comes before is an argument, so every step is one ahead of what was observed."""
    weight = numpyro.sample("weight", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(before @ weight, 0.5), obs=values)


SPELLINGS: dict[str, tuple[Callable, dict]] = {
    "name": (by_name, {"first": FIRST, "y": Y}),
    "obs": (by_observation, {"first": FIRST, "values": Y}),
    "condition inside": (by_condition_inside, {"first": FIRST, "values": Y}),
    "condition around": (condition(by_name, data={"y": jnp.asarray(Y)}), {"first": FIRST}),
    "first values as sites": (first_values_as_sites, {"first": FIRST, "values": Y}),
}


def replications(model: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the weights, and the replication of each."""
    tree = bl.predict(1, model, data, bl.fit(0, model, data, bl.Exact(2000), progress=False))
    return tree.posterior["weight"].values[0], tree["posterior_predictive"]["y"].values[0]


def assert_same_means(drawn: np.ndarray, other: np.ndarray) -> None:
    error = np.sqrt((drawn.var(0) + other.var(0)) / len(drawn))
    assert (np.abs(drawn.mean(0) - other.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(drawn.std(0), other.std(0), rtol=0.12)


@pytest.mark.parametrize("name", SPELLINGS)
def test_replications_run_from_the_first_values_on(name: str) -> None:
    """As those of NumPyro's Predictive, where the program is given no value of the series."""
    weights, drawn = replications(*SPELLINGS[name])
    oracle = Predictive(by_name, {"weight": jnp.asarray(weights)})(jax.random.PRNGKey(2), jnp.asarray(FIRST))
    assert_same_means(drawn, np.asarray(oracle["y"]))


def test_values_before_that_are_arguments_stay_as_they_are() -> None:
    series = np.append(FIRST, Y)
    before = np.stack([series[1:-1], series[:-2]], axis=1)
    weights, drawn = replications(values_before_as_covariates, {"before": before, "values": Y})
    noise = 0.5 * np.random.default_rng(3).normal(size=drawn.shape)
    assert_same_means(drawn, weights @ before.T + noise)
