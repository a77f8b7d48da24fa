"""Arguments with the name of a plate, as NumPyro's users call sizes and columns, are kept and known again."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

Y = np.array([0.1, 1.2, 1.9])


def of_size(N: int, y: Any = None) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", N):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def of_years(year: Any, y: Any = None) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("year", len(year)):
        numpyro.sample("y", dist.Normal(slope * year, 1.0), obs=y)


@pytest.mark.parametrize(("model", "given"), [(of_size, {"N": 3}), (of_years, {"year": np.array([5.0, 6.0, 8.0])})])
def test_data_of_the_fit_are_known_again(model: Any, given: dict[str, Any]) -> None:
    """Predictions for them are replications with log likelihoods, and the result holds the argument itself."""
    tree = bl.fit(0, model, given | {"y": Y}, bl.Exact(num_samples=5), progress=False)
    (name,) = given
    np.testing.assert_array_equal(tree["constant_data"].data_vars[name], given[name])
    predicted = bl.predict(0, model, given | {"y": Y}, tree)
    assert {"posterior_predictive", "log_likelihood"} <= set(predicted.children)
    location = tree.posterior[next(iter(tree.posterior.data_vars))].values[..., None] * given.get("year", np.ones(3))
    expected = -((Y - location) ** 2) / 2 - np.log(2 * np.pi) / 2
    np.testing.assert_allclose(predicted["log_likelihood"]["y"], expected, rtol=1e-6)


def test_other_rows_are_predicted() -> None:
    """Fewer of them, and as many with another covariate."""
    given = {"year": np.array([5.0, 6.0, 8.0]), "y": Y}
    tree = bl.fit(0, of_years, given, bl.Exact(num_samples=5), progress=False)
    for year in (np.array([5.0, 6.0, 9.0]), np.array([9.0])):
        assert bl.predict(0, of_years, {"year": year}, tree)["predictions"]["y"].shape == (1, 5, len(year))
