"""The condition number of jointly Normal sites against dense algebra, and the plan that it decides."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.planning import MAX_ELIMINATION_COST, MIN_CONDITION_NUMBER, elimination_cost, plan
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.conditioning import condition_number

RANDOM = np.random.default_rng(3)
SIZE = 120
WALK = np.tri(SIZE)
COVARIATES = RANDOM.normal(size=(4 * SIZE, SIZE))


def known_scales(design: Any, y: Any = None) -> None:
    """Coefficients with a prior standard deviation of 2 and errors of 0.5."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([design.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(design @ b, 0.5).to_event(1), obs=y)


def unknown_scales(design: Any, y: Any = None) -> None:
    s_b, s_y = numpyro.sample("s_b", dist.HalfNormal()), numpyro.sample("s_y", dist.HalfNormal())
    b = numpyro.sample("b", dist.Normal(0.0, s_b).expand([design.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(design @ b, s_y).to_event(1), obs=y)


def walk(y: Any) -> None:
    """A level that moves by unknown steps, written as their sum."""
    s_u, s_y = numpyro.sample("s_u", dist.HalfNormal()), numpyro.sample("s_y", dist.HalfNormal())
    u = numpyro.sample("u", dist.Normal(0.0, s_u).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.cumsum(u), s_y).to_event(1), obs=y)


@pytest.mark.parametrize("design", [WALK[:12, :12], COVARIATES[:30, :5], np.eye(3)])
def test_condition_number_is_that_of_dense_algebra(design: np.ndarray) -> None:
    analysis = Analysis(bl.bind(known_scales, {"design": design, "y": RANDOM.normal(size=len(design))}))
    covariance = np.linalg.inv(np.eye(design.shape[1]) / 4 + design.T @ design / 0.25)
    scales = np.sqrt(np.diag(covariance))
    right = np.linalg.cond(covariance / np.outer(scales, scales))
    np.testing.assert_allclose(condition_number(analysis.bound, analysis.rules, ("b",)), right, rtol=1e-8)


def test_steps_of_a_walk_are_integrated_out_and_coefficients_of_as_many_covariates_are_not() -> None:
    """Both cost more than a millisecond a gradient; only the walk would have NUTS take hundreds of steps."""
    steps = Analysis(bl.bind(walk, {"y": WALK @ RANDOM.normal(size=SIZE)}))
    coefficients = Analysis(bl.bind(unknown_scales, {"design": COVARIATES, "y": RANDOM.normal(size=len(COVARIATES))}))
    for analysis, site in ((steps, "u"), (coefficients, "b")):
        assert elimination_cost(analysis.bound, analysis.order((site,))) > MAX_ELIMINATION_COST
    assert condition_number(coefficients.bound, coefficients.rules, ("b",)) < MIN_CONDITION_NUMBER / 10
    assert getattr(plan(steps).method, "collapse", ()) == ("u",)
    assert getattr(plan(coefficients).method, "collapse", ()) == ()
