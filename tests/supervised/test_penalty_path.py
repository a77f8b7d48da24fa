"""Modes along a penalty are scikit-learn's paths, zeros exact; inclusion is what the draws say."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import arviz_base
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from sklearn.linear_model import LogisticRegression, Ridge, lasso_path

from bayeslab.models import bayesian_lasso, ridge, spike_slab
from bayeslab.plots import plot_penalty_path
from bayeslab.supervised import inclusion_probabilities, model_probabilities, penalty_path

matplotlib.use("Agg")
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


def test_the_path_of_the_lasso_is_scikit_learns() -> None:
    """442 patients of diabetes at 100 penalties, from all coefficients zero to hardly any."""
    data = bayesian_lasso.data()
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    largest = np.abs(x.T @ y).max() / len(y)
    alphas = np.geomspace(1.01 * largest, 1e-3 * largest, 100)
    expected = lasso_path(x, y, alphas=alphas, tol=1e-14, max_iter=10**6)[1].T
    path = penalty_path(bayesian_lasso.model, data, {"b": data["sigma"] ** 2 / (len(y) * alphas)})
    assert path["converged"].all()
    np.testing.assert_allclose(path["w"], expected, atol=1e-9)
    np.testing.assert_array_equal(path["w"].values == 0.0, expected == 0.0)
    assert path["feature"].values.tolist() == data["x"]["feature"].values.tolist()


def test_the_path_of_ridge_is_scikit_learns() -> None:
    data, grid = ridge.example(), np.geomspace(1e-2, 1e3, 12)
    path = penalty_path(ridge.model, data, {"penalty": grid})
    for penalty, w, intercept in zip(grid, path["w"].values, path["intercept"].values, strict=True):
        fitted = Ridge(alpha=penalty).fit(data["x"], data["y"])
        np.testing.assert_allclose([intercept, *w], [fitted.intercept_, *fitted.coef_], atol=1e-8)
    assert path["converged"].all()


def sparse_logistic(x: Any, b: float = 1.0) -> None:
    """A likelihood that is not quadratic, and an intercept without a penalty."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1e6))
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Laplace(0.0, b))
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ w))


def test_a_sparse_classifier_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 4))
    y = (x[:, 0] - 0.5 * x[:, 1] + rng.logistic(size=80) > 0).astype(int)
    grid = np.array([0.02, 0.1, 0.3, 2.0])
    path = penalty_path(sparse_logistic, {"x": x, "y": y}, {"b": grid})
    assert path["converged"].all()
    for b, w in zip(grid, path["w"].values, strict=True):
        fitted = LogisticRegression(l1_ratio=1.0, C=b, solver="saga", tol=1e-12, max_iter=10**5).fit(x, y)
        np.testing.assert_allclose(w, fitted.coef_[0], atol=1e-7)
    assert (path["w"].values == 0.0).any(0).all()


def test_a_path_is_drawn_with_names_at_the_lines_ends() -> None:
    data = ridge.data()
    path = penalty_path(ridge.model, data, {"penalty": np.geomspace(1.0, 1e4, 5)})
    ax = plot_penalty_path(path, max_labels=3)
    assert len([line for line in ax.get_lines() if not line.get_label().startswith("_")]) == 10
    assert sorted(text.get_text() for text in ax.texts) == ["bmi", "s1", "s5"]
    assert (ax.get_xlabel(), ax.get_xscale()) == ("penalty", "log")
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), path["w"].values[:, 0])
    with pytest.raises(ValueError, match="no site 'v', only"):
        plot_penalty_path(path, "v")
    with pytest.raises(ValueError, match="are not positive"):
        plot_penalty_path(path.assign_coords(penalty=np.arange(5)))


def scale_is_a_site(x: Any, a: float = 1.0) -> None:
    b = numpyro.sample("b", dist.Gamma(a, 1.0))
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Laplace(0.0, b))
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0))


LASSO = bayesian_lasso.example()
PLAIN = {"x": LASSO["x"], "y": LASSO["y"]}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: penalty_path(bayesian_lasso.model, LASSO, {"c": [1.0]}), "'c' is no argument that is one number"),
        (
            lambda: penalty_path(bayesian_lasso.model, LASSO, {"b": [1.0, np.nan]}),
            "must be finite numbers along one axis",
        ),
        (lambda: penalty_path(bayesian_lasso.model, LASSO, {"b": []}), "an array that is not empty"),
        (lambda: penalty_path(bayesian_lasso.model, LASSO, {"b": [1.0, -1.0]}), "must be positive"),
        (
            lambda: penalty_path(bayesian_lasso.model, LASSO, {"b": [1.0], "sigma": [1.0]}),
            "there are 2: ['b', 'sigma']",
        ),
        (lambda: penalty_path(scale_is_a_site, PLAIN, {"a": [1.0]}), "prior of 'w' depends on site 'b'"),
        (lambda: penalty_path(spike_slab.model, spike_slab.example(), {"tau0": [1.0]}), "site 'gamma' is discrete"),
        (lambda: inclusion_probabilities(TREE, "w"), "other values than 0 and 1"),
        (lambda: inclusion_probabilities(TREE, "delta"), "has no site 'delta'"),
        (lambda: model_probabilities(TREE, max_models=0), "max_models must be a positive integer"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        call()
    assert "\n" not in str(caught.value)


DRAWN = np.zeros((2, 100, 3), int)
DRAWN[..., 0], DRAWN[:, :75, 1] = 1, 1
TREE = arviz_base.from_dict(
    {"posterior": {"gamma": DRAWN, "w": DRAWN * 0.5}},
    dims={"gamma": ["feature"], "w": ["feature"]},
    coords={"feature": ["age", "bmi", "bp"]},
)


def test_inclusion_of_covariates_and_of_sets_of_them() -> None:
    each = inclusion_probabilities(TREE)
    assert each["probability"].values.tolist() == [1.0, 0.75, 0.0]
    assert each["median_model"].values.tolist() == [True, True, False]
    assert each["mcse"].values[[0, 2]].tolist() == [0.0, 0.0]
    assert each["mcse"].values[1] > 0.03
    together = model_probabilities(TREE)
    assert together["model"].values.tolist() == ["age + bmi", "age"]
    assert together["probability"].values.tolist() == [0.75, 0.25]
    assert together["included"].sel(model="age").values.tolist() == [True, False, False]
    assert model_probabilities(TREE, max_models=1).sizes["model"] == 1
