"""A log joint that bends where a site changes a branch is drawn by gradients, one that jumps by slices."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

TIME = np.arange(12.0)
Y = np.where(TIME < 5, 0.5 * TIME, 2.5 - 0.8 * (TIME - 5)) + np.tile([0.2, -0.1, 0.1, -0.2], 3)


def truncated(y: Any) -> None:
    """NumPyro asks on which side of the bound the mean is, so as to compute the smaller tail."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.TruncatedNormal(mean, 1.0, low=0.0), obs=y)


def line_with_a_bend(time: Any, y: Any, jump: float = 0.0) -> None:
    """A line with another slope from a point on. jump: of the mean at one row, where the bend is beyond that."""
    bend = numpyro.sample("bend", dist.Uniform(0.0, 11.0))
    mean = 2.5 + jnp.where(time < bend, 0.5 * (time - bend), -0.8 * (time - bend))
    mean += jnp.where((time == 7.0) & (bend > 7.0), jump, 0.0)
    with numpyro.plate("row", len(time)):
        numpyro.sample("y", dist.Normal(mean, 0.5), obs=y)


def leaky(y: Any, x: Any) -> None:
    """A slope that is another one below zero, for every row."""
    weight = numpyro.sample("weight", dist.Normal(0.0, 1.0))
    hidden = weight * x + 0.3
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(jnp.where(hidden > 0, hidden, 0.1 * hidden), 0.5), obs=y)


def step(y: Any, x: Any) -> None:
    """The same with a step in place of the bend."""
    weight = numpyro.sample("weight", dist.Normal(0.0, 1.0))
    hidden = weight * x + 0.3
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(jnp.where(hidden > 0, hidden, hidden - 0.01), 0.5), obs=y)


ROWS = {"y": np.abs(Y), "x": np.linspace(-2, 2, 12)}
BENT = {"time": TIME, "y": Y}


@pytest.mark.parametrize("case", [(truncated, {"y": np.abs(Y)}), (line_with_a_bend, BENT), (leaky, ROWS)])
def test_branches_that_meet_are_no_steps(case: tuple[Any, dict[str, Any]]) -> None:
    plan = str(bl.explain(*case))
    assert "fit uses NUTS" in plan
    assert "`where` on" in plan


@pytest.mark.parametrize("case", [(line_with_a_bend, BENT | {"jump": 0.01}), (step, ROWS)])
def test_small_steps_are_seen(case: tuple[Any, dict[str, Any]]) -> None:
    assert "the log joint has steps" in str(bl.explain(*case))


def test_a_bend_is_drawn_as_quadrature_has_it() -> None:
    grid = np.linspace(0, 11, 20_001)
    moved = TIME - grid[:, None]
    means = 2.5 + np.where(moved < 0, 0.5 * moved, -0.8 * moved)
    mass = np.exp(-2 * ((Y - means) ** 2).sum(1))
    mass /= mass.sum()
    mean = mass @ grid
    sd = np.sqrt(mass @ (grid - mean) ** 2)
    drawn = bl.fit(0, line_with_a_bend, BENT, progress=False)["posterior"]["bend"].values
    assert drawn.mean() == pytest.approx(mean, abs=5 * sd / np.sqrt(500))
    assert drawn.std() == pytest.approx(sd, rel=0.15)
