"""Probabilities of classes for new rows, their draws, their scores and the boundary between classes."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn.metrics import brier_score_loss, log_loss

import bayeslab as bl
from bayeslab.datasets import classification_data
from bayeslab.models import gaussian_discriminant, logistic_regression, mixed_glm
from bayeslab.plots import plot_decision_boundary
from bayeslab.supervised import class_probability_draws, class_scores

matplotlib.use("Agg")
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


NEW = np.array([[1.0, -1.0], [1.0, 0.2], [1.0, 3.0]])


@cache
def fitted() -> Any:
    method = bl.Laplace(num_samples=150)
    return bl.fit(0, logistic_regression.model, logistic_regression.example(), method, progress=False)


def test_probabilities_of_classes_are_averaged_over_draws() -> None:
    """No count: they are the mean over draws of the probability at each, and a known class is scored by it."""
    w = fitted()["posterior"]["w"].values[0]
    expected = special.expit(w @ NEW.T).mean(0)
    tree = bl.predict(1, logistic_regression.model, {"x": NEW}, fitted())
    np.testing.assert_allclose(tree["predictions_probabilities"]["y"].values[:, 1], expected, rtol=1e-10)
    np.testing.assert_allclose(tree["predictions_probabilities"]["y"].values.sum(1), 1.0)
    assert "y_log_score" not in tree["predictions_probabilities"]
    scored = bl.predict(1, logistic_regression.model, {"x": NEW, "y": np.array([0.0, 1.0, np.nan])}, fitted())
    scores = scored["predictions_probabilities"]["y_log_score"].values
    np.testing.assert_allclose(scores, [np.log(1 - expected[0]), np.log(expected[1]), np.nan], rtol=1e-10)
    np.testing.assert_allclose(scored["predictions_probabilities"]["y"].values[:, 1], expected, rtol=1e-10)


def test_the_probability_at_every_draw() -> None:
    w = fitted()["posterior"]["w"].values
    drawn = class_probability_draws(1, logistic_regression.model, {"x": NEW}, fitted())
    np.testing.assert_allclose(drawn.transpose("chain", "draw", ...), special.expit(w @ NEW.T), rtol=1e-10)


@pytest.mark.slow
def test_the_probability_at_every_draw_where_covariates_are_drawn_given_the_class() -> None:
    example = gaussian_discriminant.example()
    tree = bl.fit(0, gaussian_discriminant.model, example, bl.Exact(50), progress=False)
    new = {"num_rows": 2, "x": example["x"][[0, 5]]}
    of_class = (
        class_probability_draws(1, gaussian_discriminant.model, new, tree).transpose("chain", "draw", ...).values[0]
    )
    posterior = tree["posterior"]
    difference = new["x"][None] - posterior["mu"].values[0][:, :, None]  # draw, class, row, feature
    quadratic = np.einsum("dkri,dij,dkrj->dkr", difference, posterior["precision"].values[0], difference)
    logits = np.log(posterior["share"].values[0])[:, :, None] - quadratic / 2
    np.testing.assert_allclose(of_class, special.softmax(logits, axis=1)[:, 1], rtol=1e-8)


@pytest.mark.slow
def test_a_class_in_a_new_group_is_averaged_over_its_effect() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"player": np.repeat(list("abcd"), 10), "hit": rng.random(40) < 0.3})
    data = classification_data(table, "hit ~ 1 + (1 | player)")
    tree = bl.fit(0, mixed_glm.model, data, bl.SVI(num_steps=50, num_samples=200), progress=False)
    tree = bl.predict(1, mixed_glm.model, pd.DataFrame({"player": ["b", "new"]}), tree)
    effect = tree["predictions"]["player_effect"].transpose("chain", "draw", "player", ...).values[0, :, [1, 4], 0]
    expected = special.expit(tree["posterior"]["w"].values[0, :, 0] + effect).mean(1)
    np.testing.assert_allclose(tree["predictions_probabilities"]["y"].values[:, 1], expected, rtol=1e-10)


def test_scores_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    y, p = rng.integers(0, 2, 50), rng.random(50)
    scores = class_scores({"one": p, "two": np.stack([p, 1 - p], axis=1)}, y)
    np.testing.assert_allclose(scores["log_score"], [-log_loss(y, p), -log_loss(y, 1 - p)])
    np.testing.assert_allclose(scores["brier"], [2 * brier_score_loss(y, p), 2 * brier_score_loss(y, 1 - p)])
    np.testing.assert_allclose(scores["accuracy"], [((p > 0.5) == y).mean(), ((p < 0.5) == y).mean()])
    own = np.where(y == 1, p, 1 - p)
    difference = np.log(1 - own) - np.log(own)
    np.testing.assert_allclose(scores["log_score_difference"], [0.0, difference.mean()])
    np.testing.assert_allclose(scores["log_score_difference_se"], [0.0, difference.std(ddof=1) / np.sqrt(50)])
    three = class_scores({"three": np.full((3, 3), 1 / 3)}, [0, 1, 2])
    np.testing.assert_allclose([three["log_score"].item(), three["brier"].item()], [-np.log(3), 2 / 3])


def test_a_boundary_has_a_band_where_draws_differ() -> None:
    across, up = np.linspace(-3, 3, 30), np.linspace(-2, 2, 20)
    slopes = np.random.default_rng(0).normal(1.0, 0.3, (2, 50, 1, 1))
    ax = plot_decision_boundary(across, up, special.expit(3 * (across + slopes * up[:, None])))
    assert ax.get_xlim() == (-3.0, 3.0)
    assert len(ax.collections) == 3
    sure = plot_decision_boundary(across, up, np.full((1, 20, 30), 0.9))
    assert len(sure.collections) == 1
    with pytest.raises(ValueError, match="expected draws before the 20 rows and 30 columns"):
        plot_decision_boundary(across, up, np.ones((30, 20)))


Y = [0, 1, 1]
LOGISTIC = logistic_regression.model


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: class_scores({}, Y), "there is no classifier"),
        (lambda: class_scores({"a": [0.1, 0.2]}, Y), "the probabilities of 'a' have shape (2,), but there are 3 rows"),
        (lambda: class_scores({"a": [0.1, 0.2, 1.2]}, Y), "are no probabilities"),
        (lambda: class_scores({"a": [0.1, 0.2, np.nan]}, Y), "are no probabilities"),
        (lambda: class_scores({"a": np.full((3, 2), 0.5)}, [0, 1, 2]), "y has class 2"),
        (lambda: class_scores({"a": [0.1, 0.2, 0.3]}, [0.0, 1.0, np.nan]), "y must be the classes"),
        (lambda: class_probability_draws(0, LOGISTIC, {"x": NEW, "y": Y}, fitted()), "data give 'y'"),
        (lambda: class_probability_draws(0, LOGISTIC, {"x": NEW}, fitted(), "z"), "'z' is no observed site"),
        (lambda: class_probability_draws(0, LOGISTIC, {"tau0": 1.0}, fitted()), "no entry with a value for every row"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        call()
    assert "\n" not in str(caught.value)
