"""Data that are far away from where a prior has its mass, as in other units: what a fit and `diagnose` say."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl


def incomes(n: int) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([n]))


@pytest.mark.parametrize(("centre", "told"), [(30_000.0, "mean is near 2"), (20.0, "")])
def test_data_in_other_units_than_the_prior_are_told(centre: float, told: str) -> None:
    y = centre + np.linspace(-1.0, 1.0, 5)
    tree = bl.fit(0, incomes, {"n": 5, "y": y}, bl.Exact(num_samples=50), progress=False)
    conflict = tree.attrs.get("prior_conflict", "")
    assert conflict.startswith(told)
    assert bool(conflict) == bool(told)
    assert ("mean is near" in bl.diagnose(tree)) == bool(told)
