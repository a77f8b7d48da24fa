"""Forecasts of observed chains of states, and of panels of series with effects of their own."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.contrib.control_flow import scan
from scipy.stats import multivariate_normal

import bayeslab as bl

STATES = np.array([0, 0, 0, 1, 1, 1, 1])
AHEAD = np.append(STATES, [np.nan, np.nan])
GAP = np.array([0, 0, 0, 1, np.nan, 1, 1])


def moves(stay: Array) -> Array:
    """The transition matrix of two states that are left with the same probability."""
    return jnp.stack([jnp.stack([stay, 1 - stay]), jnp.stack([1 - stay, stay])])


def chain(num_steps: int) -> None:
    stay = numpyro.sample("stay", dist.Beta(50.0, 2.0))
    numpyro.sample("z", bl.MarkovChain(np.full(2, 0.5), moves(stay), num_steps))


def scanned(z: Any) -> None:
    stay = numpyro.sample("stay", dist.Beta(50.0, 2.0))

    def step(last: Array, value: Any) -> tuple[Array, None]:
        return numpyro.sample("z", dist.Categorical(moves(stay)[last]), obs=value), None

    scan(step, 0, z)


def test_states_to_come_of_a_chain_follow_from_the_last_known_one() -> None:
    tree = bl.fit(0, chain, {"num_steps": 7, "z": STATES}, bl.Exact(num_samples=2000), progress=False)
    gap_in_fit = bl.fit(0, chain, {"num_steps": 9, "z": AHEAD}, bl.Exact(num_samples=2000), progress=False)
    for result, group in ((tree, "predictions"), (gap_in_fit, "posterior_predictive")):
        stay = result.posterior["stay"].values
        drawn = bl.predict(1, chain, {"num_steps": 9, "z": AHEAD}, result)[group]["z"].values.reshape(-1, 9)
        right = [stay.mean(), (stay**2 + (1 - stay) ** 2).mean()]
        assert np.abs(drawn[:, 7:].mean(0) - right).max() < 5 * np.sqrt(0.25 / len(drawn))
        assert abs(drawn[:, 0].mean() - 0.5) < 5 * np.sqrt(0.25 / len(drawn))  # known steps are replicated


def test_a_state_between_known_ones_is_given_both() -> None:
    tree = bl.fit(0, chain, {"num_steps": 7, "z": STATES}, bl.Exact(num_samples=2000), progress=False)
    stay = tree.posterior["stay"].values
    drawn = bl.predict(1, chain, {"num_steps": 7, "z": GAP}, tree)["predictions"]["z"].values[..., 4]
    right = (stay**2 / (stay**2 + (1 - stay) ** 2)).mean()
    assert abs(drawn.mean() - right) < 5 * np.sqrt(right * (1 - right) / drawn.size)


def test_states_of_a_scan_follow_from_the_last_known_one_and_are_no_responses() -> None:
    tree = bl.fit(0, scanned, {"z": STATES}, bl.Exact(num_samples=2000), progress=False)
    stay = tree.posterior["stay"].values
    result = bl.predict(1, scanned, {"z": AHEAD}, tree)
    drawn = result["predictions"]["z"].values.reshape(-1, 9)
    right = [stay.mean(), (stay**2 + (1 - stay) ** 2).mean()]
    assert np.abs(drawn[:, 7:].mean(0) - right).max() < 5 * np.sqrt(0.25 / len(drawn))
    assert "predictions_probabilities" not in result.children


def panel(y: Any) -> None:
    num_series = y.shape[1]
    with numpyro.plate("series", num_series):
        level = numpyro.sample("level", dist.Normal(0, 1))

    def step(last: Array, value: Any) -> tuple[Array, None]:
        with numpyro.plate("series", num_series):
            return numpyro.sample("y", dist.Normal(0.5 * last + level, 0.7), obs=value), None

    scan(step, jnp.zeros(num_series), y)


def log_density(series: np.ndarray) -> float:
    """The marginal log density of the known first steps of one series."""
    known = series[~np.isnan(series)]
    surprise = known - 0.5 * np.append(0.0, known[:-1])
    return float(multivariate_normal(np.zeros(len(known)), 0.49 * np.eye(len(known)) + 1).logpdf(surprise))


@pytest.mark.parametrize("num_series", [3, 6])  # as many as steps, and fewer
def test_series_of_a_panel_have_one_log_likelihood_each_whatever_steps_are_to_come(num_series: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=(6, num_series))
    tree = bl.fit(0, panel, {"y": y}, bl.Exact(num_samples=50), progress=False)
    new = np.where(np.arange(6)[:, None] < 4, rng.normal(size=(6, num_series)), np.nan)
    likelihood = bl.predict(1, panel, {"y": new}, tree)["predictions_log_likelihood"]["y"]
    assert likelihood.dims == ("chain", "draw", "series")
    np.testing.assert_allclose(likelihood.values.reshape(-1, num_series)[0], [*map(log_density, new.T)], rtol=1e-9)
