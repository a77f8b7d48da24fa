"""Censored sites: times are replicated without censoring, and calibration refuses data that are not drawn censored."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import IntervalCensoredDistribution, LeftCensoredDistribution, RightCensoredDistribution

import bayeslab as bl

LATE = np.array([False, False, True, False, True])
EARLY = np.array([True, False, False, False, False])
BOUNDS = np.array([[0.5, 0.5], [1.0, 2.0], [3.0, np.inf], [0.7, 0.7], [2.0, np.inf]])


def intervals(late: Any, early: Any, time: Any = None) -> None:
    """Times of a known law but for a rate: known, between two bounds, before or after one."""
    rate = numpyro.sample("rate", dist.Gamma(4.0, 4.0))
    with numpyro.plate("row", len(late)):
        numpyro.sample("time", IntervalCensoredDistribution(dist.Exponential(rate), early, late), obs=time)


def one_sided(wrapper: Callable) -> Callable:
    def program(censored: Any, time: Any = None) -> None:
        rate = numpyro.sample("rate", dist.Gamma(4.0, 4.0))
        with numpyro.plate("row", len(censored)):
            numpyro.sample("time", wrapper(dist.Exponential(rate), censored=censored), obs=time)

    return program


@pytest.fixture(scope="module")
def fitted() -> Any:
    data = {"late": LATE, "early": EARLY, "time": BOUNDS}
    tree = bl.fit(0, intervals, data, bl.NUTS(num_samples=500, num_chains=2), progress=False)
    return bl.predict(1, intervals, data, tree)


def test_times_known_as_intervals_are_replicated_as_times(fitted: Any) -> None:
    drawn, rate = fitted["posterior_predictive"]["time"], fitted.posterior["rate"].values
    assert drawn.dims == ("chain", "draw", "row")
    assert set(drawn.coords) >= {"chain", "draw", "row"}
    assert fitted["observed_data"]["time"].dims == ("row", "time_dim_1")
    error = np.sqrt((2 / rate**2).mean() / drawn.size)
    assert drawn.values.mean() == pytest.approx((1 / rate).mean(), abs=5 * error)


def test_log_likelihoods_of_intervals_are_those_of_their_bounds(fitted: Any) -> None:
    rate = fitted.posterior["rate"].values
    expected = [np.log1p(-np.exp(-0.5 * rate)), np.log(np.exp(-rate) - np.exp(-2 * rate)), -3 * rate]
    expected += [np.log(rate) - 0.7 * rate, -2 * rate]
    np.testing.assert_allclose(fitted["log_likelihood"]["time"].values, np.stack(expected, axis=-1), rtol=1e-8)


def test_new_intervals_are_predicted_as_times(fitted: Any) -> None:
    new = {"late": LATE[:2], "early": EARLY[:2]}
    assert bl.predict(2, intervals, new, fitted)["predictions"]["time"].dims == ("chain", "draw", "row")


@pytest.mark.parametrize("wrapper", [RightCensoredDistribution, LeftCensoredDistribution])
def test_calibration_takes_no_censored_rows(wrapper: Callable) -> None:
    """NumPyro draws whole times, so ranks would be those of another program."""
    program, method = one_sided(wrapper), bl.NUTS(num_warmup=50, num_samples=20, num_chains=1)
    censored = {"censored": np.array([0, 0, 1]), "time": np.array([0.2, 0.4, 1.0])}
    with pytest.raises(ValueError, match=r"'time' are drawn without the censoring.*no row is censored"):
        bl.sbc(0, program, censored, method, num_simulations=4)
    whole = censored | {"censored": np.zeros(3, int)}
    assert bl.sbc(0, program, whole, method, num_simulations=4)["prior_sbc"]["rate"].size == 4


def test_calibration_takes_no_intervals() -> None:
    with pytest.raises(ValueError, match="'time' are drawn without the censoring"):
        bl.sbc(0, intervals, {"late": LATE, "early": EARLY, "time": BOUNDS}, bl.NUTS(), num_simulations=4)
