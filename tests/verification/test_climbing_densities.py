"""Flat priors under which the density climbs for ever, though other rows hold a sum of what climbs.

The posterior of a group's rate under a flat prior of its logarithm is Gamma(sum of counts, rows): improper at zero.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.distributions import constraints

import bayeslab as bl
from bayeslab.programs.program import precision_scope
from bayeslab.verification.propriety import refuse_separated

COVARIATE = np.array([-1.8, -1.2, -0.7, -0.2, 0.3, 0.9, 1.1, 2.0])
GROUPS = np.stack([np.ones(8), COVARIATE > 0], axis=1)
SLOPES = np.column_stack([GROUPS, COVARIATE])
NO_COUNTS_BELOW, ONE_COUNT_BELOW = np.array([0, 0, 0, 0, 2, 1, 3, 2]), np.array([0, 0, 0, 1, 2, 1, 3, 2])
CLIMBS = "the posterior is improper: the log density climbs along a line of 'w'"


def predictor(x: Array) -> Array:
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.ImproperUniform(constraints.real, (), ()))
    return x @ w


def counts(x: Array) -> None:
    eta = predictor(x)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(eta)))


def spread_counts(x: Array) -> None:
    eta = predictor(x)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), 2.0))


def classes(x: Array) -> None:
    eta = predictor(x)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=eta))


def heavy_tails(x: Array) -> None:
    eta = predictor(x)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.StudentT(3.0, eta, 0.5))


IMPROPER = {
    "a group without counts": (counts, GROUPS, NO_COUNTS_BELOW),
    "a group without counts, by another family": (spread_counts, GROUPS, NO_COUNTS_BELOW),
    "a group without counts, and a slope": (counts, SLOPES, NO_COUNTS_BELOW),
    "a group of one class": (classes, GROUPS, np.array([0, 0, 0, 0, 1, 0, 1, 1])),
}
PROPER = {
    "one count in every group": (counts, GROUPS, ONE_COUNT_BELOW),
    "one count in every group, by another family": (spread_counts, GROUPS, ONE_COUNT_BELOW),
    "two classes in every group": (classes, GROUPS, np.array([0, 1, 0, 0, 1, 0, 1, 1])),
    "an outlier under heavy tails": (heavy_tails, SLOPES, np.array([0.0, 0.1, 0.0, 0.0, 2.0, 1.0, 3.0, 20.0])),
}


def refuse(program: Any, x: np.ndarray, y: np.ndarray) -> None:
    with precision_scope():
        refuse_separated(bl.bind(program, {"x": x, "y": y}))


@pytest.mark.parametrize("case", IMPROPER)
def test_what_climbs_for_ever_is_refused(case: str) -> None:
    with pytest.raises(ValueError, match=CLIMBS):
        refuse(*IMPROPER[case])


@pytest.mark.parametrize("case", PROPER)
def test_what_falls_is_not_refused(case: str) -> None:
    refuse(*PROPER[case])


@pytest.mark.parametrize("method", [bl.Gibbs(50, 50, 1), bl.MeanField()], ids=["Gibbs", "MeanField"])
def test_auxiliary_variables_hide_no_separated_classes(method: Any) -> None:
    """Given them the density of the weights is Normal, whatever the data."""
    data = {"x": np.stack([np.ones(8), COVARIATE], axis=1), "y": (COVARIATE > 0).astype(int)}
    with pytest.raises(ValueError, match=CLIMBS):
        bl.fit(1, bl.augment(classes), data, method, progress=False)


def test_auxiliary_variables_that_are_given_hold_the_weights() -> None:
    """With y_omega of one they are Normal: precision x' x, mean its inverse times x' (y - 1/2)."""
    x, y = np.stack([np.ones(8), COVARIATE], axis=1), (COVARIATE > 0).astype(int)
    tree = bl.fit(1, bl.augment(classes), {"x": x, "y": y, "y_omega": np.ones(8)}, bl.Exact(20_000), progress=False)
    error = np.sqrt(np.diagonal(np.linalg.inv(x.T @ x)) / 20_000)
    mean = tree["posterior/w"].mean(("chain", "draw"))
    assert np.all(abs(mean - np.linalg.solve(x.T @ x, x.T @ (y - 0.5))) < 5 * error)
