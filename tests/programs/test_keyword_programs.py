"""Programs that take their data by **kwargs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

X = np.array([[1.0, 0.5], [0.0, -1.0], [2.0, 1.0]])
Y = np.array([0.4, -1.2, 2.0])


def observing(scale: float = 2.0, **data: Any) -> None:
    """A regression whose covariates and values are both keywords."""
    slope = numpyro.sample("slope", dist.Normal(0.0, scale).expand([2]).to_event(1))
    with numpyro.plate("row", data["x"].shape[0]):
        numpyro.sample("y", dist.Normal(data["x"] @ slope, data.get("noise", 1.0)), obs=data.get("y"))


def generating(**data: Any) -> None:
    """The same with only the covariates as keywords, a site that has the name of its values, and sizes as integers."""
    slope = numpyro.sample("slope", dist.Normal(jnp.zeros(data["columns"]), 2.0).to_event(1))
    with numpyro.plate("row", len(data["x"])):
        numpyro.sample("y", dist.Normal(data["x"] @ slope, 1.0))


@pytest.mark.parametrize(
    ("model", "more"), [(observing, {}), (observing, {"noise": 2.0}), (generating, {"columns": 2})]
)
def test_keywords_are_arguments(model: Any, more: dict[str, float]) -> None:
    """The evidence is the density of the values under the Normal that they have with the slopes integrated out."""
    tree = bl.fit(0, model, {"x": X, "y": Y} | more, bl.Exact(num_samples=10), progress=False)
    covariance = 4.0 * X @ X.T + more.get("noise", 1.0) ** 2 * np.eye(3)
    density = dist.MultivariateNormal(np.zeros(3), covariance).log_prob(Y)
    np.testing.assert_allclose(tree.attrs["log_evidence"], density, rtol=1e-5)
    assert bl.predict(0, model, {"x": X[:2]} | more, tree).predictions["y"].shape == (1, 10, 2)


def test_a_program_that_runs_without_its_keywords_has_none() -> None:
    def model(x: Any, **unused: Any) -> None:
        slope = numpyro.sample("slope", dist.Normal(jnp.zeros(2), 2.0).to_event(1))
        numpyro.sample("y", dist.Normal(x @ slope, 1.0))

    bound = bl.bind(model, {"x": X, "y": Y})
    assert [argument.name for argument in bound.settings] == ["x"]
    with pytest.raises(ValueError, match="'z' is neither an argument"):
        bl.bind(model, {"x": X, "y": Y, "z": 1.0})


def test_a_keyword_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"does not run \(.*KeyError: 'x'"):
        bl.bind(observing, {"y": Y, "xx": X})


def test_positions_have_no_names_for_data() -> None:
    def by_position(*args: Any, y: Any = None) -> None:
        slope = numpyro.sample("slope", dist.Normal())
        numpyro.sample("y", dist.Normal(slope * args[0], 1.0), obs=y)

    with pytest.raises(ValueError, match=r"IndexError.*by name, so \*args has none"):
        bl.bind(by_position, {"x": np.ones(3), "y": np.ones(3)})
