"""Labels of sequences given covariates: posteriors of weights, new sequences, and what normalising by step costs."""

import itertools
from functools import cache
from types import ModuleType
from typing import Any

import arviz_stats  # noqa: F401  registers the accessor azstats
import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from numpyro.handlers import seed, substitute, trace
from scipy import special, stats
from xarray import DataTree

import bayeslab as bl
from bayeslab.datasets import rib_and_rob
from bayeslab.models import crf, memm
from bayeslab.programs.wrapped_distributions import innermost_distribution

Array = NDArray[Any]

X = np.random.default_rng(0).normal(size=(6, 4, 1))
Y = np.array([[0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]])
LENGTHS = np.array([4, 3, 4, 4, 2, 1])
KNOWN = {"start": np.array([0.5, -0.2]), "moves": np.array([[3.0, -3.0], [1.0, 0.0]])}
NEW = {"x": np.random.default_rng(1).normal(size=(2, 3, 1)), "num_labels": 2, "lengths": np.array([3, 2])}


def data() -> dict[str, Any]:
    """Six sequences whose labels are missing after their ends; scores of the start and of moves are known."""
    y = np.ma.array(Y, mask=np.arange(4) >= LENGTHS[:, None])
    return {"x": X, "num_labels": 2, "lengths": LENGTHS, "y": y, **KNOWN}


def log_probabilities(x: Array, w: Array, by_step: bool) -> tuple[Array, Array]:
    """All labellings of a sequence (step, feature), and their log probabilities: by enumeration, or step by step."""
    labellings = np.array(list(itertools.product(range(2), repeat=len(x))))
    first, later = KNOWN["start"] + x[0] @ w.T, KNOWN["moves"] + (x[1:] @ w.T)[:, None]
    if by_step:
        first, later = special.log_softmax(first), special.log_softmax(later, axis=-1)
    steps = np.arange(len(x) - 1)
    totals = first[labellings[:, 0]] + later[steps, labellings[:, :-1], labellings[:, 1:]].sum(1)
    return labellings, totals - special.logsumexp(totals)


def mean_by_quadrature(by_step: bool) -> Array:
    """The posterior mean of w (label, feature): a sum over a grid, sequences by enumeration."""
    line = np.linspace(-4.5, 4.5, 61)
    log_joint = stats.norm(0, 1).logpdf(line)[:, None] + stats.norm(0, 1).logpdf(line)
    for i, j in np.ndindex(log_joint.shape):
        w = np.array([[line[i]], [line[j]]])
        for x, y, length in zip(X, Y, LENGTHS, strict=True):
            labellings, log_probs = log_probabilities(x[:length], w, by_step)
            log_joint[i, j] += log_probs[(labellings == y[:length]).all(1).argmax()]
    weight = np.exp(log_joint - log_joint.max())
    weight /= weight.sum()
    return np.array([[weight.sum(1) @ line], [weight.sum(0) @ line]])


@cache
def fitted(by_step: bool) -> DataTree:
    method = bl.NUTS(num_warmup=300, num_samples=500, num_chains=2)
    return bl.fit(0, (memm if by_step else crf).model, data(), method, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("by_step", [False, True], ids=["crf", "memm"])
def test_weights_have_the_posterior_mean_of_a_quadrature(by_step: bool) -> None:
    """Each of both models has a mean of its own: that of the other is refused by the same comparison."""
    w = fitted(by_step)["posterior"]["w"]
    error = w.azstats.mcse(method="mean").values
    assert (abs(w.values.mean((0, 1)) - mean_by_quadrature(by_step)) < 4 * error).all()
    assert (abs(w.values.mean((0, 1)) - mean_by_quadrature(not by_step)) > 4 * error).any()


def test_new_sequences_are_labelled_as_by_enumeration() -> None:
    """Marginals and the most probable labelling, averaged over draws; draws of labels beside them."""
    tree = fitted(False)
    w = tree["posterior"]["w"].values.reshape(-1, 2, 1)
    smoothed = bl.states.smoothed_states(crf.model, {**NEW, **KNOWN}, tree)["probability"].values
    best = bl.states.most_probable_path(crf.model, {**NEW, **KNOWN}, tree)["path"].values
    drawn = bl.predict(1, crf.model, {**NEW, **KNOWN}, tree)["predictions"]["y"].values.reshape(-1, 2, 3)
    for sequence, length in enumerate(NEW["lengths"]):
        x = NEW["x"][sequence, :length]
        labellings = log_probabilities(x, w[0], False)[0]
        probs = np.mean([np.exp(log_probabilities(x, each, False)[1]) for each in w], 0)
        marginals = np.stack([probs @ (labellings == label) for label in range(2)], -1)
        np.testing.assert_allclose(smoothed[sequence, :length], marginals, atol=1e-10)
        np.testing.assert_array_equal(
            best[sequence], np.pad(labellings[probs.argmax()], (0, 3 - length), constant_values=-1)
        )
        share = (drawn[:, sequence, :length] == 1).mean(0)
        assert (abs(share - marginals[:, 1]) < 5 * np.sqrt(0.25 / len(w))).all()
    assert np.isnan(smoothed[1, 2]).all()


def labels_of(lecture: ModuleType, x: Array, **weights: Array) -> Any:
    """The distribution of the labels at known weights."""
    model = substitute(seed(lecture.model, 0), weights)
    return innermost_distribution(trace(model).get_trace(x, len(weights["start"]))["y"]["fn"])


@pytest.mark.slow
def test_a_label_with_certain_successors_does_not_look_ahead() -> None:
    """Labels 0, 1 or 2, 3 with the second covariate for 1 or 3: a letter later than a label that is sure to be followed
    by one other says nothing of it step by step, but decides in a conditional random field."""
    moves = np.full((4, 4), -30.0)
    moves[0, 1] = moves[2, 3] = 0.0
    weights = {
        "start": np.array([0.2, -30, 0.0, -30]),
        "w": np.array([[0.0, 0], [2.0, 0], [0.0, 0], [0.0, 2]]),
        "moves": moves,
    }
    letters = np.array([[[0.0, 0], [1.0, 0]], [[0.0, 0], [0.0, 1]]])
    with jax.enable_x64(True):
        by_sequence, by_step = (np.asarray(labels_of(each, letters, **weights).marginals()) for each in (crf, memm))
    np.testing.assert_allclose(by_step[:, 0, 0], special.expit(0.2), atol=1e-10)
    np.testing.assert_allclose(by_sequence[:, 0, 0], special.expit([2.2, -1.8]), atol=1e-10)


@pytest.mark.slow
def test_label_bias() -> None:
    """The first letters of "rib" and "rob" are the same: step by step a label that is certain to be followed by one
    other does not look at the second letter, and half of all words are labelled wrongly."""
    train, test = rib_and_rob(100), rib_and_rob(300, seed=1)
    wrong = {}
    for lecture in (crf, memm):
        tree = bl.fit(0, lecture.model, {"num_labels": 5, "tau0": 3.0, **train}, bl.MAP(num_starts=1), progress=False)
        path = bl.states.most_probable_path(lecture.model, {"num_labels": 5, "tau0": 3.0, "x": test["x"]}, tree)["path"]
        wrong[lecture] = (path.values != test["y"].values).any(1).mean()
    spoilt = (test["x"].sel(feature=["i", "o"]).values[:, 1] != np.eye(2)[test["y"].values[:, 1] // 2]).any(1).mean()
    assert wrong[crf] < spoilt + 0.02
    assert wrong[memm] > 0.35


def test_data_that_say_something_of_the_weights_are_refused() -> None:
    changed = {**NEW, **KNOWN, "start": np.zeros(2)}
    with pytest.raises(ValueError, match="new sequences of which nothing is observed"):
        bl.states.smoothed_states(crf.model, changed, fitted(False))
    with pytest.raises(ValueError, match=r"site 'w' has shape \(2, 1\) in the result, but \(2, 2\) for these data"):
        bl.states.smoothed_states(crf.model, {**NEW, **KNOWN, "x": np.ones((2, 3, 2))}, fitted(False))
