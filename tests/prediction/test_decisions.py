"""Expected losses against closed forms, with and without weights."""

from typing import Any

import arviz_base
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from xarray import DataTree

import bayeslab as bl

MEAN, SD = 1.3, 0.8


def normal_draws(seed: int = 0, number: int = 2000) -> DataTree:
    draws = np.random.default_rng(seed).normal(MEAN, SD, size=(4, number))
    return arviz_base.from_dict({"posterior": {"mu": draws}})


def weighted_draws(seed: int = 0, number: int = 8000) -> DataTree:
    """Draws of a wider Normal, with weights for the narrow one; the posterior beside them is wrong on purpose."""
    draws = np.random.default_rng(seed).normal(0.5, 2.0, size=(1, number))
    log_weight = norm.logpdf(draws, MEAN, SD) - norm.logpdf(draws, 0.5, 2.0)
    log_weight -= np.logaddexp.reduce(log_weight.ravel())
    tree = arviz_base.from_dict({"posterior": {"mu": draws}})
    tree["weighted_posterior"] = arviz_base.from_dict({"posterior": {"mu": draws, "log_weight": log_weight}})[
        "posterior"
    ]
    return tree


def check_loss(action: Any, values: dict[str, Any]) -> Any:
    """A check loss with its least value at the quantile 0.8: too little costs four times as much as too much."""
    error = values["mu"] - action
    return jnp.where(error > 0, 4 * error, -error)


def squared(action: Any, values: dict[str, Any]) -> Any:
    return (values["mu"] - action) ** 2


@pytest.mark.parametrize("make", [normal_draws, weighted_draws])
def test_expected_losses_are_those_of_the_posterior_within_their_errors(make: Any) -> None:
    grid = np.linspace(-1.0, 4.0, 51)
    table = bl.decide(make(), squared, grid)
    exact = SD**2 + (MEAN - grid) ** 2
    assert (abs(table["expected_loss"] - exact) < 5 * table["expected_loss_mcse"]).all()
    assert abs(table.attrs["best"] - MEAN) <= 0.1
    best = float(bl.decide(make(), check_loss, np.linspace(1.0, 3.0, 41)).attrs["best"])
    assert abs(best - norm.ppf(0.8, MEAN, SD)) < 0.15  # the quantile of the costs


def test_errors_are_as_large_as_they_say() -> None:
    scores = []
    for seed in range(25):
        for make in (normal_draws, weighted_draws):
            table = bl.decide(make(seed, 500), squared, [0.0, 2.0])
            exact = SD**2 + (MEAN - np.array([0.0, 2.0])) ** 2
            difference = exact[0] - exact[1]
            scores.append(
                (float(table["excess"].sel(action=0.0)) - difference) / float(table["excess_mcse"].sel(action=0.0))
            )
    assert abs(np.mean(scores)) < 0.6
    assert 0.7 < np.std(scores) < 1.4


def test_actions_that_draws_cannot_tell_apart_are_named() -> None:
    actions = {"wait": 1.29, "act": 1.31, "run": 3.0}
    table = bl.decide(normal_draws(), squared, actions)
    assert table.attrs["best"] in ("wait", "act")
    assert table.attrs["undecided"] == [({"wait", "act"} - {table.attrs["best"]}).pop()]
    assert float(table["excess"].sel(action=table.attrs["best"])) == 0


def test_wrong_losses_are_refused() -> None:
    tree = normal_draws(number=10)
    for loss, actions, words in (
        (lambda action, values: values["mu"] if values["mu"] > 0 else 0.0, [1.0], "made of JAX's operations"),
        (lambda action, values: jnp.zeros(2), [1.0], r"one number for a draw and an action, but has shape \(2,\)"),
        (lambda action, values: jnp.log(values["mu"] * 0), {"a": 1.0}, "of action 'a' is not finite"),
        (squared, [], "needs an action"),
    ):
        with pytest.raises(ValueError, match=words):
            bl.decide(tree, loss, actions)
    with pytest.raises(ValueError, match="needs group 'predictions'"):
        bl.decide(tree, squared, [1.0], group="predictions")
