"""Predictions for groups that were not fitted."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayeslab as bl

NAMES = pd.Series(np.repeat(list("abcdef"), 5))
X = np.random.default_rng(0).normal(size=30)
Y = 5 + 2 * np.repeat(np.random.default_rng(1).normal(size=6), 5) + X + 0.3 * np.random.default_rng(2).normal(size=30)


def effects_of_groups(group, groups, x):
    """A regression with an intercept for every group."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(mean, 2.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(effect[group] + x, 0.5))


@pytest.fixture(scope="module")
def fitted():
    return bl.fit(0, effects_of_groups, {"group": NAMES, "groups": 6, "x": X, "y": Y}, progress=False)


def test_new_groups_beside_old_ones_by_name(fitted):
    new = {"group": pd.Series(["a", "zoe", "f", "b"]), "x": np.zeros(4)}
    predictions = bl.predict(1, effects_of_groups, new, fitted).predictions
    effects, posterior = predictions["effect"], fitted.posterior
    assert effects.sizes["groups"] == 7
    np.testing.assert_array_equal(effects.values[..., :6], posterior["effect"].values)
    # a new effect has the mean of the groups and their spread, and nothing of any group
    unseen = (
        effects.values[..., 6].ravel() - np.broadcast_to(posterior["mean"].values, (1, effects.sizes["draw"])).ravel()
    )
    assert abs(unseen.mean()) < 5 * 2 / np.sqrt(unseen.size)
    assert unseen.std() == pytest.approx(2.0, rel=0.1)
    means = predictions["y"].mean(("chain", "draw")).values
    np.testing.assert_allclose(means[[0, 2, 3]], posterior["effect"].mean(("chain", "draw"))[[0, 5, 1]], atol=0.1)


def test_scores_of_new_groups_average_over_their_effects(fitted):
    new = {"group": pd.Series(["zoe"]), "x": np.zeros(1), "y": np.array([7.0])}
    predicted = bl.predict(1, effects_of_groups, new, fitted)
    score = np.log(np.exp(predicted.predictions_log_likelihood["y"].values).mean())
    mean = fitted.posterior["mean"].values.ravel()
    variance = mean.var() + 2.0**2 + 0.5**2
    exact = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (7.0 - mean.mean()) ** 2 / variance
    assert score == pytest.approx(exact, abs=0.1)


def test_a_number_of_groups_without_names(fitted):
    new = {"group": np.array([0, 7]), "groups": 8, "x": np.zeros(2)}
    numbers = {"group": jnp.asarray(np.repeat(np.arange(6), 5)), "groups": 6, "x": X, "y": Y}
    tree = bl.fit(0, effects_of_groups, numbers, progress=False)
    assert bl.predict(1, effects_of_groups, new, tree).predictions["effect"].sizes["groups"] == 8
    with pytest.raises(ValueError, match=r"site 'effect' has shape \(6,\) in the result, but \(4,\)"):
        bl.predict(1, effects_of_groups, {"group": np.array([0, 3]), "groups": 4, "x": np.zeros(2)}, tree)


def test_a_new_name_without_room(fitted):
    new = {"group": pd.Series(["a", "zoe"]), "groups": 6, "x": np.zeros(2)}
    with pytest.raises(
        ValueError, match=r"category 'zoe' at position \(1,\), which the fit does not know; it knows a,"
    ):
        bl.predict(1, effects_of_groups, new, fitted)
