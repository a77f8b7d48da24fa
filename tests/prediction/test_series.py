"""Forecasts of series in a scan whose steps follow from their own: missing steps are drawn given the known ones."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy.stats import norm

import bayeslab as bl

Y = np.array([0.5, 1.4, 0.7, 1.9, 2.6, 2.1, 3.0, 2.4])
AHEAD = np.append(Y, [np.nan] * 3)


def autoregression(y: Any) -> None:
    """Values that follow from the last one."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))

    def step(last: Any, value: Any) -> Any:
        new = numpyro.sample("y", dist.Normal(slope * last, 0.5), obs=value)
        return new, None

    scan(step, 1.0, y)


def counts(y: Any) -> None:
    """The same of counts, whose missing values no elimination draws."""
    rate = numpyro.sample("rate", dist.Gamma(5.0, 5.0))

    def step(last: Any, value: Any) -> Any:
        new = numpyro.sample("y", dist.Poisson(rate * (1.0 + 0.5 * last)), obs=value)
        return new.astype(float), None

    scan(step, 1.0, y)


def repetitions(y: Any) -> None:
    """Values that follow from nothing but the mean."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))

    def step(last: Any, value: Any) -> Any:
        numpyro.sample("y", dist.Normal(mean, 0.5), obs=value)
        return last, None

    scan(step, 0.0, y)


def expected(slope: Any) -> tuple[Any, Any]:
    """Means and standard deviations of the three steps to come, over draws of the slope."""
    powers = np.stack([slope**k for k in (1, 2, 3)])
    variances = 0.25 * np.cumsum(np.stack([slope ** (2 * k) for k in range(3)]), axis=0)
    means = powers * Y[-1]
    return means.mean(1), np.sqrt(variances.mean(1) + means.var(1))


@pytest.mark.parametrize("fitted", [Y, AHEAD])
def test_steps_to_come_follow_from_the_last_known_one(fitted: Any) -> None:
    """Whether they are missing in the fit, too, or only in what is predicted."""
    tree = bl.fit(0, autoregression, {"y": fitted}, bl.Exact(4000), progress=False)
    result = bl.predict(1, autoregression, {"y": AHEAD}, tree)
    group = "posterior_predictive" if fitted is AHEAD else "predictions"
    drawn = result[group]["y"].values[0]
    means, deviations = expected(tree.posterior["slope"].values.ravel())
    assert (np.abs(drawn[:, -3:].mean(0) - means) < 5 * deviations / np.sqrt(4000)).all()
    np.testing.assert_allclose(drawn[:, -3:].std(0), deviations, rtol=0.08)
    is_replicated = drawn[:, :-3].std(0) > 0.1
    assert is_replicated.all() if fitted is AHEAD else not is_replicated.any()


def test_counts_to_come_follow_from_the_last_known_one() -> None:
    y = np.array([1.0, 2.0, 0.0, 3.0, 8.0, np.nan])
    tree = bl.fit(0, counts, {"y": y[:-1]}, bl.NUTS(num_samples=500, num_chains=2), progress=False)
    drawn = bl.predict(1, counts, {"y": y}, tree)["predictions"]["y"].values[..., -1]
    rates = tree.posterior["rate"].values * 5.0
    error = np.sqrt((rates.mean() + rates.var()) / drawn.size)
    assert drawn.mean() == pytest.approx(rates.mean(), abs=5 * error)


def test_values_that_follow_from_nothing_are_drawn_anew() -> None:
    tree = bl.fit(0, repetitions, {"y": Y}, bl.Exact(1000), progress=False)
    drawn = bl.predict(1, repetitions, {"y": AHEAD}, tree)["predictions"]["y"].values
    np.testing.assert_allclose(drawn.std((0, 1)), 0.53, atol=0.08)


def test_values_of_a_part_of_the_steps_name_the_way_to_forecast() -> None:
    def ahead(y: Any, more: int = 0) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))

        def step(last: Any, _: Any) -> Any:
            new = numpyro.sample("y", dist.Normal(slope * last, 0.5))
            return new, None

        with numpyro.handlers.condition(data={"y": y}):
            scan(step, 1.0, jnp.arange(len(y) + more))

    tree = bl.fit(0, ahead, {"y": Y}, bl.Exact(200), progress=False)
    with pytest.raises(ValueError, match="to forecast give predict NaN for the steps to come"):
        bl.predict(1, ahead, {"y": Y, "more": 3}, tree)
    drawn = bl.predict(1, ahead, {"y": AHEAD}, tree)["predictions"]["y"].values[0]
    means, deviations = expected(tree.posterior["slope"].values.ravel())
    assert (np.abs(drawn[:, -3:].mean(0) - means) < 5 * deviations / np.sqrt(200)).all()


def test_rows_are_given_the_states_of_a_scan_and_the_result_says_so() -> None:
    def walk(y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))

        def step(last: Any, value: Any) -> Any:
            state = numpyro.sample("state", dist.Normal(last, scale))
            numpyro.sample("y", dist.Normal(state, 0.5), obs=value)
            return state, None

        scan(step, 0.0, y)

    tree = bl.fit(0, walk, {"y": Y}, bl.NUTS(num_warmup=50, num_samples=20, num_chains=1), progress=False)
    likelihood = bl.predict(1, walk, {"y": Y}, tree)["log_likelihood"]
    np.testing.assert_allclose(
        likelihood["y"].values, norm.logpdf(Y, tree["posterior"]["state"].values, 0.5), rtol=1e-6
    )
    assert "given the steps of site 'state'" in likelihood.attrs["not_integrated_out"]
