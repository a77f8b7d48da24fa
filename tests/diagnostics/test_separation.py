"""Separated classes under a wide prior are told in one sentence."""

import numpy as np
import pytest

import bayeslab as bl
from bayeslab.diagnostics.separation import describe_separation
from bayeslab.models import logistic_regression
from bayeslab.programs.program import precision_scope

TEN_ROWS = logistic_regression.example() | {"tau0": 1000.0}
SEPARABLE = TEN_ROWS | {"y": (TEN_ROWS["x"][:, 1] > 0) * 1}
STEEP = {"w": np.array([0.0, 300.0]) + np.random.default_rng(0).normal(size=(2, 50, 2))}


@pytest.mark.parametrize(("data", "is_told"), [(SEPARABLE, True), (TEN_ROWS, False)])
def test_it_is_told_where_a_line_separates_classes(data: dict, is_told: bool) -> None:
    """At the same draws: rows that overlap are not predicted without error."""
    with precision_scope():
        text = describe_separation(bl.bind(logistic_regression.model, data), STEEP)
    assert ("all 10 values of 'y' are predicted without error" in text) == is_told


def test_two_rows_that_are_likely_are_not_predicted_without_error() -> None:
    data = {"x": np.array([[1.0, 1.0], [1.0, -1.0]]), "y": np.array([1, 0])}
    with precision_scope():
        bound = bl.bind(logistic_regression.model, data)
        assert describe_separation(bound, {"w": np.full((1, 4, 2), [0.0, 1.0])}) == ""
        assert describe_separation(bound, {"w": np.full((1, 4, 2), [0.0, 9.0])}) != ""


@pytest.mark.slow
def test_a_fit_that_diverges_there_says_why() -> None:
    method = bl.NUTS(num_warmup=300, num_samples=500, num_chains=2)
    tree = bl.fit(0, logistic_regression.model, SEPARABLE, method, progress=False)
    assert not tree["sample_stats"]["diverging"].any() or bl.diagnose(tree).startswith("Separated: ")
