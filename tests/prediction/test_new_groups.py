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


def classes_in_schools(classroom, schools, school_of, x):
    """Effects of classrooms around those of their schools."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    with numpyro.plate("schools", schools):
        school = numpyro.sample("school", dist.Normal(mean, 1.5))
    with numpyro.plate("classrooms", len(school_of)):
        effect = numpyro.sample("effect", dist.Normal(school[school_of], 0.5))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(effect[classroom] + x, 0.3))


def test_new_classrooms_of_old_and_new_schools_beside_old_ones():
    """A new classroom is drawn around its school, which is drawn around the mean where it is new, too."""
    classroom, school_of = pd.Series(np.repeat(["1a", "1b", "2a", "2b"], 4)), pd.Series(["s1", "s1", "s2", "s2"])
    y = np.repeat([2.0, 2.5, -1.0, -0.5], 4) + 0.3 * np.random.default_rng(3).normal(size=16)
    data = {"classroom": classroom, "schools": 2, "school_of": school_of, "x": np.zeros(16), "y": y}
    tree = bl.fit(0, classes_in_schools, data, progress=False)
    new = {
        "classroom": pd.Series(["1z", "2a", "9a"]),
        "school_of": pd.Series(["s1", "s1", "s2", "s2", "s1", "s9"]),
        "x": np.array([0.0, 10.0, 0.0]),
    }
    predictions = bl.predict(1, classes_in_schools, new, tree).predictions
    assert predictions.attrs["new_groups"] == ["1z", "9a", "s9"]
    draws = {name: value.values.reshape(-1, *value.shape[2:]) for name, value in predictions.data_vars.items()}
    school, effect, mean = draws["school"], draws["effect"], tree.posterior["mean"].values.ravel()
    steps = {
        "a class of an old school": (effect[:, 4] - school[:, 0], 0.5),
        "a class of a new school": (effect[:, 5] - school[:, 2], 0.5),
        "a new school": (school[:, 2] - mean, 1.5),
        "a row of a new class": (draws["y"][:, 0] - effect[:, 4], 0.3),
        "a row of an old class": (draws["y"][:, 1] - 10.0 - effect[:, 2], 0.3),
    }
    for name, (step, sd) in steps.items():
        assert abs(step.mean()) < 5 * sd / np.sqrt(step.size), name
        assert step.std() == pytest.approx(sd, rel=0.15), name


def walk(steps: int) -> None:
    path = numpyro.sample("path", dist.GaussianRandomWalk(0.4, steps))
    with numpyro.plate("step", steps):
        numpyro.sample("y", dist.Normal(path, 0.5))


def test_steps_after_those_of_a_walk_are_missing_data() -> None:
    """predict says so, and the fit with missing steps has the moments that the joint Normal of all y gives them."""
    y = np.array([0.2, 0.5, 1.1, 0.9])
    tree = bl.fit(0, walk, {"steps": 4, "y": y}, bl.Exact(10), progress=False)
    with pytest.raises(
        ValueError, match=r"'path' has shape \(4,\).* but \(6,\).*fit with them among .* missing \(NaN\)"
    ):
        bl.predict(1, walk, {"steps": 6}, tree)
    longer = {"steps": 6, "y": np.r_[y, np.nan, np.nan]}
    tree = bl.predict(1, walk, longer, bl.fit(0, walk, longer, bl.Exact(4000), progress=False))
    new = tree["posterior_predictive"]["y"].values[0, :, 4:]
    times = np.arange(1, 7)
    covariance = 0.4**2 * np.minimum(times[:, None], times) + 0.5**2 * np.eye(6)
    weights = np.linalg.solve(covariance[:4, :4], covariance[:4, 4:])
    sd = np.sqrt(np.diag(covariance[4:, 4:] - weights.T @ covariance[:4, 4:]))
    assert (abs(new.mean(0) - y @ weights) < 5 * sd / np.sqrt(4000)).all()
    np.testing.assert_allclose(new.std(0), sd, rtol=5 / np.sqrt(2 * 4000))
