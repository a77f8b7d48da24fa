"""Units with a label of their own, as sites that are occupied or not: new ones beside those of the fit."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

SEEN = np.array([[0, 0, 0], [1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]])
NEW = np.array([[0, 0, 0], [0, 1, 0]])


def occupancy(units: int, visits: int) -> None:
    occupied = numpyro.sample("occupied", dist.Beta(2.0, 2.0))
    detected = numpyro.sample("detected", dist.Beta(2.0, 2.0))
    with numpyro.plate("unit", units, dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(occupied))
        with numpyro.plate("visit", visits):
            numpyro.sample("y", dist.Bernoulli(z * detected))


@pytest.fixture(scope="module")
def fitted() -> Any:
    return bl.fit(0, occupancy, {"units": 6, "visits": 3, "y": SEEN}, bl.Gibbs(100, 1000, 2), progress=False)


def test_new_units_after_those_of_the_fit(fitted: Any) -> None:
    """The probability that a unit where nothing was seen is occupied, by Bayes' theorem for every draw."""
    data = {"units": 8, "visits": 3, "y": np.concatenate([SEEN, NEW])}
    tree = bl.predict(1, occupancy, data, fitted)
    occupied, detected = (fitted["posterior"][name].values.ravel() for name in ("occupied", "detected"))
    unseen = occupied * (1 - detected) ** 3
    right = unseen / (unseen + 1 - occupied)
    probabilities = tree["predictions_probabilities"]["z"].values[:, 0, 1]
    np.testing.assert_allclose(probabilities[-2:], [right.mean(), 1.0], rtol=1e-6)
    drawn = tree["predictions"]["z"].values.reshape(-1, 8)[:, -2:]
    assert (drawn[:, 1] == 1).all()
    assert abs(drawn[:, 0].mean() - right.mean()) < 4.5 * np.sqrt((right * (1 - right)).mean() / len(drawn))


def test_fewer_units_are_refused_with_the_way_out(fitted: Any) -> None:
    with pytest.raises(ValueError, match=r"site 'z' has shape \(6, 1\) .* give the groups of the fit with their data"):
        bl.predict(1, occupancy, {"units": 2, "visits": 3, "y": NEW}, fitted)
