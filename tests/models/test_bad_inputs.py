"""Bad inputs of the course's regressions, classifiers and latent models are refused in a sentence, before any fit."""

from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.models import (
    allele_frequency,
    bayesian_neural_network,
    gaussian_discriminant,
    group_lasso,
    kmeans,
    linear_gaussian,
    locally_weighted_regression,
    logistic_regression,
    perceptron,
    ppca,
    svm,
    vae,
)
from bayeslab.programs.program import precision_scope


def with_infinity(lecture: ModuleType) -> np.ndarray:
    """The covariates of an example, of which the first is infinite."""
    x = np.array(lecture.example()["x"], float)
    x[0, 0] = np.inf
    return x


REFUSED: dict[str, tuple[ModuleType, dict[str, Any], str]] = {
    "too few degrees of freedom": (
        gaussian_discriminant, {"n0": 1.0}, "'concentration' .* must be greater than 1, but is 1.0, .* argument 'n0'"),
    "labels of two classes, 0 and 1": (
        svm, {"y": (svm.example()["y"] + 1) / 2}, r"'label' .* minus one or one, but is 0.0 at .* \(4,\), .* 'y'"),
    "a negative cost": (svm, {"C": -1.0}, "'cost' .* must be positive, but is -1.0, which comes from argument 'C'"),
    "a negative temperature": (perceptron, {"temperature": -0.2}, "must be positive, but is -0.2, .* 'temperature'"),
    "an infinite covariate": (
        logistic_regression, {"x": with_infinity(logistic_regression)}, r"'x' is infinite at .* \(0, 0\), .* slopes"),
    "a group that is not": (group_lasso, {"group": [0, 0, 2]}, "'group' at .* is 2, but .* an index into 2 elements"),
    "a negative group": (group_lasso, {"group": [0, 0, -1]}, "'group' at .* is -1, but .* an index into 2 elements"),
    "one row of covariates, and y of eight": (
        locally_weighted_regression, {"x": locally_weighted_regression.example()["x"].T},
        r"'y' has shape \(8,\), but site 'y' .* \(1,\)"),
    "an allele that its locus does not have": (
        allele_frequency, {"y": np.full((4, 3, 2), 2)}, r"'y' at .* \(0, 0, 0\) is 2, .*: integer interval 0 to 1\)"),
    "no prior count": (
        allele_frequency, {"concentration": np.array([1.5, 0.0, 0.7])},
        r"must be positive, but is 0.0 at position \(0, 1\), which comes from argument 'concentration'"),
    "a precision that is not symmetric": (
        linear_gaussian, {"noise_precision": np.triu(np.full((2, 2), 2.0))}, "must be symmetric and positive definite"),
    "a shift of another length": (
        linear_gaussian, {"b": np.zeros(3)}, r"do not fit together .*; .* a \(2, 3\), .* b \(3,\)"),
    "no hidden unit": (bayesian_neural_network, {"hidden": (3, 0)}, r"widths of layers, .*; .* hidden: \(3, 0\)"),
    "no width": (bayesian_neural_network, {"hidden": 5}, "hidden must be the widths of layers, whole numbers from 1"),
    "a batch of parts": (vae, {"batch": 1.5}, "a batch of 1.5 elements, which is not a whole number"),
    "no feature": (ppca, {"num_features": 0, "y": np.zeros((8, 0))}, "num_features is 0, but at least 1 is needed"),
    "half a factor": (ppca, {"num_factors": 1.5}, "plate 'factor' has 1.5 elements, which is not a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_inputs_are_refused(case: str) -> None:
    lecture, changed, words = REFUSED[case]
    with precision_scope(), pytest.raises(ValueError, match=words):
        bl.bind(lecture.model, lecture.example() | changed)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (kmeans.hard_em, (np.array([[np.nan, 1.0]]), np.ones((2, 2))), "y must be a table of finite numbers"),
        (kmeans.hard_em, (np.ones((3, 2)), np.ones((0, 2))), r"centres must be .* shape \(0, 2\)"),
        (kmeans.hard_em, (np.ones((3, 2)), np.ones((2, 3))), "centres have 3 features, but rows of y 2"),
        (
            ppca.maximum_likelihood,
            (np.ones((9, 4)), 4),
            "num_factors is 4; expected from 1 to less than the 4 features",
        ),
        (vae.linear_maximum, (np.ones((9, 4)), 0, 0.5), "num_factors is 0, but 1 to 4"),
    ],
)
def test_bad_arguments_of_algorithms_are_refused(function: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        function(*arguments)


def bounded(low: float) -> None:
    """A Normal that is seen above a level, which may be none."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(jnp.maximum(mu, low), 1.0))


def repeated() -> None:
    """One number that is seen as often as there are values: it is in no plate."""
    numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0.0, 1.0)), 1.0))


def test_an_infinite_level_and_repetitions_without_a_plate_are_as_before() -> None:
    with precision_scope():
        assert bl.bind(bounded, {"low": -np.inf, "y": 0.3}).latent == ("mu",)
        assert bl.bind(repeated, {"y": np.ones(3)}).sites["y"].shape == (3,)
        least = gaussian_discriminant.example() | {"n0": 1.5}  # of two features, more than one
        assert "precision" in bl.bind(gaussian_discriminant.model, least).latent
