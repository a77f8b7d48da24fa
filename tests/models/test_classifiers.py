"""Classifiers of the course against scikit-learn, closed forms and plain NumPy."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import special, stats
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.svm import SVC

import bayeslab as bl
from bayeslab.models import (
    gaussian_discriminant,
    naive_bayes_bernoulli,
    naive_bayes_gaussian,
    naive_bayes_multinomial,
    perceptron,
    quadratic_discriminant,
    svm,
)
from evidences import row_by_row, vector_by_vector

Array = np.ndarray[Any, Any]


def exact(lecture: ModuleType) -> tuple[dict[str, Any], float, dict[str, Array]]:
    """The example, its log evidence and 2000 draws of every site, all by elimination."""
    data = lecture.example()
    tree = bl.fit(0, lecture.model, data, bl.Exact(2000), progress=False)
    return data, tree.attrs["log_evidence"], {str(n): v.values[0] for n, v in tree["posterior"].data_vars.items()}


def assert_means(found: Array, truth: Array) -> None:
    np.testing.assert_array_less(np.abs(found.mean(0) - truth), 5 * found.std(0) / np.sqrt(len(found)))


def evidence_of_labels(y: Array, num_classes: int) -> float:
    """Classes whose shares are uniform on the simplex, label by label."""
    counts = np.bincount(y, minlength=num_classes)
    return special.gammaln(num_classes) + special.gammaln(1 + counts).sum() - special.gammaln(num_classes + len(y))


def test_smoothing_of_words_that_are_there_or_not() -> None:
    """CS229, 4.2.1: Laplace's smoothing, also of the word that no mail of a class has."""
    data, log_evidence, draws = exact(naive_bayes_bernoulli)
    x, y = data["x"], data["y"]
    library = BernoulliNB(alpha=1.0).fit(x, y)
    assert_means(draws["p"], np.exp(library.feature_log_prob_))
    assert_means(draws["share"], (1 + np.bincount(y)) / (2 + len(y)))
    there = np.array([x[y == c].sum(0) for c in (0, 1)])
    rows = np.bincount(y)[:, None]
    oracle = evidence_of_labels(y, 2) + special.betaln(1 + there, 1 + rows - there).sum()
    np.testing.assert_allclose(log_evidence, oracle, rtol=1e-10)


@pytest.mark.slow
def test_smoothing_of_counts_of_words() -> None:
    """CS229, 4.2.2; the mails of a class are a Dirichlet-multinomial, not a product of smoothed frequencies."""
    data, log_evidence, draws = exact(naive_bayes_multinomial)
    x, y = data["x"], data["y"]
    library = MultinomialNB(alpha=1.0).fit(x, y)
    assert_means(draws["p"], np.exp(library.feature_log_prob_))
    orders = (special.gammaln(1 + x.sum(1)) - special.gammaln(1 + x).sum(1)).sum()
    oracle = evidence_of_labels(y, 2) + orders
    for c in (0, 1):
        counts = x[y == c].sum(0)
        pooled = stats.dirichlet_multinomial(np.ones(3), counts.sum()).logpmf(counts)
        oracle += pooled - special.gammaln(1 + counts.sum()) + special.gammaln(1 + counts).sum()
    np.testing.assert_allclose(log_evidence, oracle, rtol=1e-10)


@pytest.mark.slow
def test_normal_features_of_naive_bayes() -> None:
    """A Normal-Gamma for every class and feature, row by row."""
    data, log_evidence, draws = exact(naive_bayes_gaussian)
    x, y, oracle = data["x"], data["y"], evidence_of_labels(data["y"], 2)
    for c in (0, 1):
        rows = x[y == c]
        oracle += sum(row_by_row(column, 0.0, 0.1, 2.0, 1.0) for column in rows.T)
        assert_means(draws["mu"][:, c], len(rows) * rows.mean(0) / (0.1 + len(rows)))
    np.testing.assert_allclose(log_evidence, oracle, rtol=1e-10)


@pytest.mark.slow
def test_classes_with_covariances_of_their_own() -> None:
    """A Normal-Wishart for every class."""
    data, log_evidence, draws = exact(quadratic_discriminant)
    x, y, oracle = data["x"], data["y"], evidence_of_labels(data["y"], 2)
    for c in (0, 1):
        prior = {name: data[name] for name in ("mu0", "scale", "n0", "kappa0")}
        oracle += vector_by_vector(x[y == c], **prior)
        total = data["kappa0"] + np.sum(y == c)
        assert_means(draws["mu"][:, c], (data["kappa0"] * data["mu0"] + x[y == c].sum(0)) / total)
    np.testing.assert_allclose(log_evidence, oracle, rtol=1e-9)


@pytest.mark.slow
def test_classes_with_one_covariance() -> None:
    """The means of the classes, one precision for all, and the evidence: the scatter is added up over classes."""
    data, log_evidence, draws = exact(gaussian_discriminant)
    x, y, kappa0, n0 = data["x"], data["y"], data["kappa0"], data["n0"]
    rate, features = np.linalg.inv(data["scale"]), x.shape[1]
    oracle = evidence_of_labels(y, 2) + n0 / 2 * np.linalg.slogdet(rate)[1]
    for c in (0, 1):
        rows, shift = x[y == c], x[y == c].mean(0) - data["mu0"]
        total = kappa0 + len(rows)
        rate = rate + (rows - rows.mean(0)).T @ (rows - rows.mean(0))
        rate += kappa0 * len(rows) / total * np.outer(shift, shift)
        oracle += features / 2 * np.log(kappa0 / total)
        assert_means(draws["mu"][:, c], (kappa0 * data["mu0"] + rows.sum(0)) / total)
    degrees = n0 + len(y)
    assert_means(draws["precision"], degrees * np.linalg.inv(rate))
    oracle += special.multigammaln(degrees / 2, features) - special.multigammaln(n0 / 2, features)
    oracle -= degrees / 2 * np.linalg.slogdet(rate)[1] + len(y) * features / 2 * np.log(np.pi)
    np.testing.assert_allclose(log_evidence, oracle, rtol=1e-9)


def test_the_mode_of_the_pseudo_posterior_is_the_support_vector_machine() -> None:
    """The objective is as low as that of scikit-learn's solver."""
    data = svm.example()
    library = SVC(C=data["C"], kernel="linear", tol=1e-10).fit(data["x"], data["y"])

    def objective(w: Array, intercept: Any) -> float:
        slack = np.maximum(0, 1 - data["y"] * (intercept + data["x"] @ w))
        return w @ w / 2 + data["C"] * slack.sum()

    tree = bl.fit(0, svm.model, data, bl.MAP(), progress=False)
    w, intercept = (tree["posterior"][name].values[0, 0] for name in ("w", "intercept"))
    best = objective(library.coef_[0], library.intercept_[0])
    np.testing.assert_allclose(objective(w, intercept), best, rtol=1e-6)


@pytest.mark.slow
def test_a_cold_perceptron_is_uniform_on_the_version_space() -> None:
    """The direction of w is that of draws of the prior that make no mistake."""
    data = perceptron.example() | {"temperature": 0.01}
    tree = bl.fit(0, perceptron.model, data, bl.NUTS(), progress=False)
    w = tree["posterior"]["w"].stack(sample=("chain", "draw")).values
    angle = np.arctan2(w[1], w[0])
    directions = np.random.default_rng(0).uniform(-np.pi, np.pi, 400_000)
    points = np.stack([np.cos(directions), np.sin(directions)])
    kept = directions[((data["x"] @ points > 0) == data["y"][:, None].astype(bool)).all(0)]
    middle, spread = kept.mean(), kept.std()
    assert abs(angle.mean() - middle) < 0.15 * spread
    assert abs(angle.std() / spread - 1) < 0.15
