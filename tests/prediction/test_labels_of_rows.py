"""Log likelihoods of rows that have several discrete sites of their own, which are summed over row by row."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl

SEEN = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0], [0, 1, 0]])
"""Whether an animal was caught on the three occasions after the first."""


def captures(seen: Any, order: Any) -> None:
    """Cormack-Jolly-Seber: an animal that lives is caught with a probability. order: whose life a row is about."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    capture = numpyro.sample("capture", dist.Uniform(0.0, 1.0))
    with numpyro.plate("animal", len(seen)):
        alive = jnp.ones(len(seen), jnp.int32)
        for time in range(3):
            alive = numpyro.sample(f"alive_{time}", dist.Bernoulli(survival * alive))
            numpyro.sample(f"seen_{time}", dist.Bernoulli(0.9 * capture * alive[order] + 0.05), obs=seen[:, time])


def of_prior_draws(order: Any) -> tuple[Any, Any]:
    """Some draws of the prior in place of a posterior, and what `predict` says of the rows at them."""
    data = {"seen": SEEN, "order": order}
    tree = bl.simulate(0, captures, data, 20)
    tree["posterior"] = tree["prior"]
    return tree, bl.predict(1, captures, data, tree)["log_likelihood"]


def forward(survival: float, capture: float, row: Any) -> float:
    """log p(row), by the recursion over times."""
    alive, dead = 1.0, 0.0
    for seen in row:
        alive, dead = alive * survival, dead + alive * (1 - survival)
        chances = 0.9 * capture + 0.05, 0.05
        alive, dead = (mass * (p if seen else 1 - p) for mass, p in zip((alive, dead), chances, strict=True))
    return float(np.log(alive + dead))


def test_labels_of_a_row_that_meet_are_summed_over() -> None:
    tree, likelihood = of_prior_draws(np.arange(4))
    assert set(likelihood.attrs["integrated_out"]) == {"alive_0", "alive_1", "alive_2"}
    assert list(likelihood.data_vars) == ["seen_0, seen_1, seen_2"]
    for draw in (0, 7):
        survival, capture = (float(tree.posterior[name][0, draw]) for name in ("survival", "capture"))
        expected = [forward(survival, capture, row) for row in SEEN]
        np.testing.assert_allclose(likelihood["seen_0, seen_1, seen_2"].values[0, draw], expected, rtol=1e-9)


def test_labels_that_other_rows_see_are_given_and_the_reason_is_told() -> None:
    tree, likelihood = of_prior_draws(np.array([1, 0, 3, 2]))
    assert list(likelihood.attrs["integrated_out"]) == []
    assert "'alive_0'" in likelihood.attrs["not_integrated_out"]
    draw = tree.posterior.isel(chain=0, draw=3)
    chance = 0.9 * float(draw["capture"]) * draw["alive_1"].values[[1, 0, 3, 2]] + 0.05
    expected = np.log(np.where(SEEN[:, 1], chance, 1 - chance))
    assert likelihood["seen_1"].values[0, 3] == pytest.approx(expected)
