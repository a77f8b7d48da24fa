"""held_out on rows that have more than one value, or weights, against closed forms."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import betaln, logsumexp

import bayeslab as bl

RNG = np.random.default_rng(3)
LABEL = RNG.integers(0, 2, 16)
X = RNG.normal(2.0 * LABEL - 1)
BLOCKS = 4


def classifier(n: int) -> None:
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("class", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("x", dist.Normal(mu[label], 1.0))


def weighted(weight: Any, y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(y)), numpyro.handlers.scale(scale=weight):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def evidence(label: np.ndarray, x: np.ndarray) -> float:
    """Of labels and features, labels that are missing summed over."""
    unknown = np.flatnonzero(np.isnan(label))
    logs = []
    for code in range(2 ** len(unknown)):
        known = label.copy()
        known[unknown] = (code >> np.arange(len(unknown))) & 1
        total = betaln(1 + known.sum(), 1 + (1 - known).sum())
        for value in (0, 1):
            if len(own := x[known == value]):
                total += stats.multivariate_normal(np.zeros(len(own)), 4 + np.eye(len(own))).logpdf(own)
        logs.append(total)
    return float(logsumexp(logs))


@pytest.mark.parametrize("gaps", [[], [1, 6, 8]], ids=["all labels", "some labels"])
def test_labels_are_hidden_with_their_rows(gaps: list[int]) -> None:
    """log p(hidden | rest) of labels and features."""
    label = LABEL.astype(float)
    label[gaps] = np.nan
    blocks = np.arange(len(X)) % BLOCKS
    right = [evidence(label, X) - evidence(label[blocks != b], X[blocks != b]) for b in range(BLOCKS)]
    data = {"n": len(X), "label": label if gaps else LABEL, "x": X}
    method = bl.Gibbs(num_samples=1500, num_chains=2) if gaps else bl.Exact(3)
    scores = bl.held_out(0, classifier, data, method, blocks=BLOCKS)
    error = (scores["log_density"] - right).values
    assert (abs(error) <= 4 * scores["log_density_mcse"].values + 1e-9).all()
    assert (scores["log_density_mcse"] < 0.05).all()
    assert scores["entries"].sum() == 2 * len(X) - len(gaps)


def test_hidden_rows_count_once_whatever_they_weigh() -> None:
    """The rest is fitted with its weights; hidden rows have the density of a row."""
    n = 12
    y, weight = RNG.normal(1.0, 1.0, n), RNG.integers(1, 4, n).astype(float)
    right = []
    for block in range(BLOCKS):
        rest = np.arange(n) % BLOCKS != block
        precision = 1 / 4 + weight[rest].sum()
        mean, hidden = (weight * y)[rest].sum() / precision, y[~rest]
        covariance = 1 / precision + np.eye(len(hidden))
        right.append(stats.multivariate_normal(np.full(len(hidden), mean), covariance).logpdf(hidden))
    scores = bl.held_out(0, weighted, {"weight": weight, "y": y}, bl.Exact(20000), blocks=BLOCKS)
    np.testing.assert_allclose(scores["log_density"], right, atol=0.02)


def test_parts_that_draws_do_not_reach_are_told() -> None:
    """One season is hidden from a constant mean: no draw given the others comes near it. Evidences need no draw."""
    y = 6.0 * np.cos(np.pi * np.arange(40) / 2) + RNG.normal(size=40)
    covariance = 4 * np.ones((40, 40)) + np.eye(40)
    rest = [np.arange(40) % BLOCKS != block for block in range(BLOCKS)]
    right = [
        stats.multivariate_normal(np.zeros(40), covariance).logpdf(y)
        - stats.multivariate_normal(np.zeros(known.sum()), covariance[np.ix_(known, known)]).logpdf(y[known])
        for known in rest
    ]

    def unweighted(y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        with numpyro.plate("row", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    exact = bl.held_out(0, unweighted, {"y": y}, bl.Exact(3), blocks=BLOCKS)
    np.testing.assert_allclose(exact["log_density"], right, rtol=1e-10)
    with pytest.warns(UserWarning, match=r"hidden parts \[0, 2\] lie where draws given the rest hardly come \(k-hat"):
        drawn = bl.held_out(0, weighted, {"weight": 1.0, "y": y}, bl.Exact(1000), blocks=BLOCKS)
    assert (drawn["log_density"] < exact["log_density"] - 2.0).values.tolist() == [True, False, True, False]
    assert (drawn["k_hat"] > 0.7).values.tolist() == [True, False, True, False]


def test_two_entries_with_the_same_values_are_named() -> None:
    def model(a: Any, b: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(b.mean(), 2.0))
        with numpyro.plate("row", len(a)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=a)

    with pytest.raises(ValueError, match="entries 'a' and 'b' all have the values of site 'y'"):
        bl.held_out(0, model, {"a": X, "b": X}, bl.Exact(), blocks=BLOCKS)
