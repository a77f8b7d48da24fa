"""A program whose observed values were forgotten is fitted to its prior by a method that is named, and told so."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

METHOD = bl.NUTS(num_warmup=200, num_samples=400, num_chains=2)


def counts(x: Any, y: Any = None, offset: Any = None) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(rate * x, 1.0), obs=y)


def normal(scale: float) -> None:
    """A density to try samplers on, without data."""
    numpyro.sample("z", dist.Normal(0.0, scale))


def test_forgotten_values_are_named() -> None:
    data = {"x": np.ones(2)}
    said = "no site has a value, so the posterior is the prior: arguments 'y', 'offset' are None"
    assert said in str(bl.explain(counts, data))
    with pytest.raises(ValueError, match=r"nothing to learn from; .* and arguments 'y', 'offset' are None; simulate"):
        bl.fit(0, counts, data, progress=False)
    tree = bl.fit(0, counts, data, METHOD, progress=False)
    assert "Nothing observed: arguments 'y', 'offset' are None, and no site has a value" in bl.diagnose(tree)


def test_what_is_observed_or_has_no_data_raises_no_suspicion() -> None:
    data = {"x": np.ones(2), "y": np.array([1.0, 2.0])}
    assert "no site has a value" not in str(bl.explain(counts, data))
    assert "Nothing observed" not in bl.diagnose(bl.fit(0, counts, data, METHOD, progress=False))
    assert "Nothing observed" not in bl.diagnose(bl.fit(0, normal, {"scale": 1.0}, METHOD, progress=False))
    assert "no site has a value, so the posterior is the prior" in str(bl.explain(normal, {"scale": 1.0}))


@pytest.mark.parametrize("method", [bl.NUTS(num_warmup=5, num_samples=1, num_chains=1), bl.Exact(num_samples=1)])
def test_one_draw_is_no_point_estimate(method: Any) -> None:
    tree = bl.fit(0, lambda: numpyro.sample("mu", dist.Normal(0, 1)), {}, method, progress=False)
    assert "Few draws: 1" in str(bl.diagnose(tree))
