"""Predictions use what is known of new rows: labels given features, nodes given evidence, groups given rows."""

from itertools import product
from typing import Any

import arviz as az
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats
from scipy.special import betaln, logsumexp

import bayeslab as bl

R = np.random.default_rng(4)


def classifier(n: int) -> None:
    """Two classes, a Normal feature and a count."""
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("class", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", n):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("x", dist.Normal(mu[label], 1.0))
        numpyro.sample("count", dist.Poisson(rate[label]))


LABEL = R.integers(0, 2, 30)
TRAINING = {"n": 30, "label": LABEL, "x": R.normal(2.0 * LABEL - 1.0), "count": R.poisson(1.0 + 2.0 * LABEL)}


@pytest.fixture(scope="module")
def fitted() -> Any:
    return bl.fit(0, classifier, TRAINING, bl.Exact(2000), progress=False)


def class_logits(tree: Any, x: Any, count: Any) -> np.ndarray:
    """log p(label, features | draw), (draw, row, label), NaN in features left out."""
    share, mu, rate = (tree["posterior"][name].values[0][:, None] for name in ("share", "mu", "rate"))
    x, count = (np.asarray(value, float)[None, :, None] for value in (x, count))
    normal = np.where(np.isnan(x), 0.0, stats.norm(mu, 1.0).logpdf(x))
    poisson = np.where(np.isnan(count), 0.0, stats.poisson(rate).logpmf(np.nan_to_num(count)))
    return np.log(np.concatenate([1 - share, share], -1))[:, None] + normal + poisson


@pytest.mark.slow
def test_classes_of_new_rows_are_given_their_features(fitted: Any) -> None:
    """Known classes are no part of what is known when they are scored, and are themselves where they are predicted."""
    label = np.array([np.nan, np.nan, np.nan, np.nan, 0.0, 1.0])
    x, count = np.array([-1.0, 0.3, 2.0, np.nan, -1.0, 0.3]), np.array([1.0, 2.0, np.nan, 6.0, 1.0, 2.0])
    tree = bl.predict(1, classifier, {"n": 6, "x": x, "count": count, "label": label}, fitted)
    logits = class_logits(fitted, x, count)
    log_probs = logits - logsumexp(logits, -1, keepdims=True)
    probs, table = np.exp(log_probs), tree["predictions_probabilities"]
    np.testing.assert_allclose(table["label"].sel(label_value=[0, 1]), probs.mean(0), rtol=1e-8)
    of_label = np.stack([log_probs[:, 4, 0], log_probs[:, 5, 1]], -1)
    score = tree["predictions_log_likelihood"]["label given the rest"].values[0]
    np.testing.assert_allclose(score[:, 4:], of_label, rtol=1e-8)
    np.testing.assert_allclose(table["label_log_score"][4:], np.log(np.exp(of_label).mean(0)), rtol=1e-8)
    assert np.isnan(score[:, :4]).all()
    drawn = tree["predictions"]["label"].values[0]
    assert (drawn[:, 4:] == [0, 1]).all()
    np.testing.assert_allclose(drawn[:, :4].mean(0), probs[:, :4, 1].mean(0), atol=4 * 0.5 / np.sqrt(2000))
    # a missing feature follows the class that the other one tells, known ones are drawn as if none were known
    mu, share = (fitted["posterior"][name].values[0] for name in ("mu", "share"))
    means = [(share * mu[:, 1] + (1 - share) * mu[:, 0]).mean(), (probs[:, 3] * mu).sum(-1).mean(), mu[:, 1].mean()]
    drawn = tree["predictions"]["x"].values[0][:, [0, 3, 5]].mean(0)
    np.testing.assert_allclose(drawn, means, atol=4 * 1.5 / np.sqrt(2000))


@pytest.mark.slow
def test_left_out_classes_have_their_probability(fitted: Any) -> None:
    """PSIS-LOO of the class against its closed form: the evidence with either label, all features kept."""
    tree = bl.predict(1, classifier, TRAINING, fitted)
    loo = az.loo(tree, var_name="label given the rest", pointwise=True)

    def evidence(label: np.ndarray) -> float:
        total = betaln(1 + label.sum(), 1 + (1 - label).sum())
        for k in (0, 1):
            x, count = (TRAINING[name][label == k] for name in ("x", "count"))
            total += stats.multivariate_normal(cov=np.eye(len(x)) + 4.0).logpdf(x)
            shape, rate = 2.0 + count.sum(), 1.0 + len(count)
            total += stats.gamma(2.0).logpdf(1.0) - stats.gamma(shape, scale=1 / rate).logpdf(1.0)
            total += stats.poisson(1.0).logpmf(count).sum()
        return total

    exact = []
    for i in range(30):
        other = LABEL.copy()
        other[i] = 1 - LABEL[i]
        exact.append(-np.logaddexp(0.0, evidence(other) - evidence(LABEL)))
    np.testing.assert_allclose(loo.elpd_i, exact, atol=0.05)
    assert loo.elpd == pytest.approx(sum(exact), abs=0.1)


def network(n: int) -> None:
    pa = numpyro.sample("pa", dist.Beta(2.0, 1.0))
    with numpyro.plate("value", 2):
        pb = numpyro.sample("pb", dist.Beta(1.0, 1.0))
        pc = numpyro.sample("pc", dist.Beta(1.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Bernoulli(pa))
        b = numpyro.sample("b", dist.Bernoulli(pb[a]))
        numpyro.sample("c", dist.Bernoulli(pc[b]))


@pytest.mark.slow
def test_networks_answer_any_query_given_any_evidence() -> None:
    """Every pattern of what is known of three nodes, against enumeration at every draw."""
    data = {"n": 20, "a": R.integers(0, 2, 20), "b": R.integers(0, 2, 20), "c": R.integers(0, 2, 20)}
    fitted = bl.fit(0, network, data, bl.Exact(400), progress=False)
    rows = np.array([*product([0.0, 1.0, np.nan], repeat=3)])
    tree = bl.predict(1, network, {"n": len(rows)} | dict(zip("abc", rows.T, strict=True)), fitted)
    pa, pb, pc = (fitted["posterior"][name].values[0] for name in ("pa", "pb", "pc"))
    joint = np.zeros((400, 2, 2, 2))
    for a, b, c in product((0, 1), repeat=3):
        joint[:, a, b, c] = (
            (pa if a else 1 - pa) * (pb[:, a] if b else 1 - pb[:, a]) * (pc[:, b] if c else 1 - pc[:, b])
        )
    table = tree["predictions_probabilities"]
    for number, row in enumerate(rows):
        for axis, node in enumerate("ab"):
            evidence = [slice(None) if i == axis or np.isnan(v) else [int(v)] for i, v in enumerate(row)]
            weights = joint[:, evidence[0]][:, :, evidence[1]][..., evidence[2]]
            weights = weights.sum(tuple(i + 1 for i in range(3) if i != axis))
            probs = (weights / weights.sum(-1, keepdims=True)).mean(0)
            np.testing.assert_allclose(table[node][number], probs, rtol=1e-8)
    drawn = tree["predictions"]
    assert (drawn["b"].values[..., rows[:, 1] == 1] == 1).all()
    known = np.flatnonzero((rows[:, 0] == 1) & np.isnan(rows[:, 1]) & (rows[:, 2] == 1))[0]
    b_given = joint[:, 1, :, 1] / joint[:, 1, :, 1].sum(-1, keepdims=True)
    assert drawn["b"].values[..., known].mean() == pytest.approx(b_given[:, 1].mean(), abs=4 * 0.5 / 20)


def lawn(n: int) -> None:
    """A network whose tables are known."""
    with numpyro.plate("row", n):
        rain = numpyro.sample("rain", dist.Bernoulli(0.2))
        numpyro.sample("grass", dist.Bernoulli(jnp.where(rain, 0.8, 0.1)))


def test_networks_with_known_tables_have_nothing_but_their_rows() -> None:
    fitted = bl.fit(0, lawn, {"n": 3, "grass": np.array([1, 0, 1])}, bl.Exact(400), progress=False)
    tree = bl.predict(1, lawn, {"n": 2, "grass": np.array([1, 0])}, fitted)
    rain = np.array([0.2 * 0.8 / (0.2 * 0.8 + 0.8 * 0.1), 0.2 * 0.2 / (0.2 * 0.2 + 0.8 * 0.9)])
    np.testing.assert_allclose(tree["predictions_probabilities"]["rain"][:, 1], rain, rtol=1e-12)
    drawn = tree["predictions"]["rain"].mean(("chain", "draw"))
    np.testing.assert_allclose(drawn, rain, atol=4 * 0.5 / 20)


def groups(group: Any, num_groups: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", num_groups):
        effect = numpyro.sample("effect", dist.Normal(mu, 2.0))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(effect[group], 1.0))


def test_new_groups_are_given_their_own_rows_and_old_ones_by_name() -> None:
    name = pd.Categorical(["ann", "bob", "ann", "bob"])
    fitted = bl.fit(
        0,
        groups,
        {"group": name, "num_groups": 2, "y": np.array([1.0, -3.0, 1.5, -2.0])},
        bl.Exact(3000),
        progress=False,
    )
    new = {"group": pd.Categorical(["eve", "eve", "bob", "eve"]), "y": np.array([9.0, 10.0, np.nan, np.nan])}
    tree = bl.predict(1, groups, new, fitted)
    drawn, mu = tree["predictions"], fitted["posterior"]["mu"].values
    effect = drawn["effect"].values
    assert drawn.attrs["new_groups"] == ["eve"]
    np.testing.assert_array_equal(effect[..., :2], fitted["posterior"]["effect"].values)
    precision = 1 / 4 + 2
    mean = (mu / 4 + 19.0) / precision
    assert stats.kstest(((effect[..., 2] - mean) * np.sqrt(precision)).ravel(), "norm").pvalue > 1e-4
    y = drawn["y"].values
    noise = (y[..., 3] - effect[..., 2]).ravel()
    assert abs(np.corrcoef(noise, (effect[..., 2] - mean).ravel())[0, 1]) < 4 / np.sqrt(3000)
    assert stats.kstest((y[..., 3] - effect[..., 2]).ravel(), "norm").pvalue > 1e-4
    assert stats.kstest((y[..., 2] - effect[..., 1]).ravel(), "norm").pvalue > 1e-4
    # known rows are drawn as if they were not known
    assert stats.kstest(((y[..., 0] - mu) / np.sqrt(5.0)).ravel(), "norm").pvalue > 1e-4


def covariates(n: int) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Normal(m, 1.0))
        numpyro.sample("b", dist.Normal(3.0 * a, 0.1))


def test_known_covariates_are_used_and_missing_ones_drawn() -> None:
    data = {"n": 5, "a": np.arange(5.0), "b": 3.0 * np.arange(5.0)}
    fitted = bl.fit(0, covariates, data, bl.Exact(500), progress=False)
    new = {"n": 2, "a": np.array([7.0, np.nan]), "b": np.array([np.nan, 6.0])}
    drawn = bl.predict(1, covariates, new, fitted)["predictions"]
    assert stats.kstest((drawn["b"].values[..., 0].ravel() - 21.0) / 0.1, "norm").pvalue > 1e-4
    assert drawn["a"].values[..., 1].mean() == pytest.approx(2.0, abs=0.02)
    for unknown in ({}, {"b": np.array([np.nan])}):  # left out, or not known of any row
        complete = bl.predict(1, covariates, {"n": 1, "a": np.array([7.0]), **unknown}, fitted)["predictions"]
        assert complete["b"].values.mean() == pytest.approx(21.0, abs=0.05)
    with pytest.raises(ValueError, match="entry 'b' has no value: all 5 are missing"):
        bl.fit(0, covariates, data | {"b": np.full(5, np.nan)}, progress=False)


def written(a: Any, b: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", len(a)):
        numpyro.sample("b", dist.Normal(slope * a, 0.1), obs=b)


def test_responses_of_new_rows_may_all_be_unknown_where_the_program_takes_them() -> None:
    fitted = bl.fit(0, written, {"a": np.arange(5.0), "b": 3.0 * np.arange(5.0)}, bl.Exact(500), progress=False)
    drawn = bl.predict(1, written, {"a": np.array([7.0, 1.0]), "b": np.full(2, np.nan)}, fitted)["predictions"]
    assert drawn["b"].mean(("chain", "draw")).values == pytest.approx([21.0, 3.0], abs=0.05)


def counts(n: int) -> None:
    s = numpyro.sample("s", dist.Gamma(2.0, 2.0))
    with numpyro.plate("row", n):
        effect = numpyro.sample("effect", dist.Normal(0.0, s))
        numpyro.sample("y", dist.Poisson(jnp.exp(effect)))
        numpyro.sample("w", dist.Poisson(jnp.exp(effect)))


def test_what_cannot_be_drawn_given_what_is_known_is_refused() -> None:
    """Effects under a Poisson: no draw of them given one count, so none of the other; where all are known, their
    replications are there, and effects are left out."""
    known = {"n": 3, "y": np.array([0, 2, 5]), "w": np.array([1, 2, 4])}
    fitted = bl.fit(0, counts, known, bl.NUTS(50, 50, 1), progress=False)
    with pytest.raises(ValueError, match="cannot draw what is missing in new rows given what is known: site 'effect'"):
        bl.predict(1, counts, known | {"y": np.array([1.0, 2.0, np.nan])}, fitted)
    tree = bl.predict(1, counts, known | {"y": np.array([1, 2, 3])}, fitted)
    assert set(tree["predictions"].data_vars) == {"y", "w"}
    assert "site 'effect'" in tree["predictions"].attrs["left_out"]
