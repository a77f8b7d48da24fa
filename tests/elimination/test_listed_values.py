"""Latent vectors of counts with a known sum, and integers between bounds that are data: one of finitely many values."""

import math
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import binom, norm

import bayeslab as bl
from bayeslab.programs.handlers.listed_values import MAX_LISTED

PRIOR = np.array([1.0, 2.0, 3.0])
TOTALS = np.array([1, 3, 0, 2])
Y = np.random.default_rng(0).normal(1.0, 1.0, (4, 3))


def counts_of_rows(total: Any, y: Any) -> None:
    p = numpyro.sample("p", dist.Dirichlet(PRIOR))
    with numpyro.plate("row", 4):
        n = numpyro.sample("n", dist.Multinomial(total, p))
        numpyro.sample("y", dist.Normal(n, 1.0).to_event(1), obs=y)


def one_vector(y: Any) -> None:
    n = numpyro.sample("n", dist.DirichletMultinomial(PRIOR, 4))
    with numpyro.plate("box", 3):
        numpyro.sample("y", dist.Normal(n, 1.0), obs=y)


def vectors(total: int) -> list[tuple[int, ...]]:
    return [v for v in product(range(total + 1), repeat=3) if sum(v) == total]


def log_weight(counts: np.ndarray, totals: np.ndarray, y: np.ndarray) -> float:
    """log p(counts, y), the probabilities integrated out. counts (row, category)."""
    orders = gammaln(totals + 1).sum() - gammaln(counts + 1).sum()
    of_probs = gammaln(PRIOR.sum()) - gammaln(PRIOR).sum()
    of_probs += gammaln(PRIOR + counts.sum(0)).sum() - gammaln(PRIOR.sum() + counts.sum())
    return float(orders + of_probs + norm.logpdf(y, counts).sum())


def enumerated(totals: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """log evidence, mean counts (row, category), mean probabilities, by enumeration."""
    all_counts = np.array(list(product(*(vectors(total) for total in totals))))
    logs = np.array([log_weight(counts, totals, y) for counts in all_counts])
    weights = np.exp(logs - logsumexp(logs))
    updated = PRIOR + all_counts.sum(1)
    means = updated / updated.sum(1, keepdims=True)
    return float(logsumexp(logs)), np.tensordot(weights, all_counts, 1), weights @ means


def test_one_vector_exactly() -> None:
    tree = bl.fit(0, one_vector, {"y": Y[0]}, progress=False)
    log_evidence, counts, _ = enumerated(np.array([4]), Y[:1])
    assert tree.attrs["method"] == "Exact"
    assert tree.attrs["log_evidence"] == pytest.approx(log_evidence, rel=1e-12)
    np.testing.assert_allclose(tree["posterior"]["n"].mean(("chain", "draw")), counts[0], atol=0.1)
    assert (tree["posterior"]["n"].sum("n_dim_0") == 4).all()


@pytest.mark.parametrize(
    "method",
    [
        bl.Gibbs(num_samples=3000, num_chains=2),
        bl.NUTS(num_warmup=300, num_samples=2000, num_chains=2),
        pytest.param(bl.SVI(num_steps=2000, num_samples=4000), marks=pytest.mark.slow),
    ],
    ids=["Gibbs", "NUTS", "SVI"],
)
@pytest.mark.parametrize("totals", [TOTALS, np.full(4, 2)], ids=["of each row", "alike"])
def test_rows_of_vectors(method: Any, totals: np.ndarray) -> None:
    """At each row one of as many vectors as its total allows; draws are those of the enumeration."""
    total = totals if len(set(totals)) > 1 else int(totals[0])
    tree = bl.fit(0, counts_of_rows, {"total": total, "y": Y}, method, progress=False)
    posterior = tree["posterior"]
    _, counts, probs = enumerated(totals, Y)
    assert (posterior["n"].sum("n_dim_1") == totals).all()
    tolerance = 0.04 if isinstance(method, bl.SVI) else 0.05  # 4 standard errors of 600 independent draws
    np.testing.assert_allclose(posterior["n"].mean(("chain", "draw")), counts, atol=2 * tolerance)
    np.testing.assert_allclose(posterior["p"].mean(("chain", "draw")), probs, atol=tolerance)


def test_likelihoods_of_rows_sum_over_them() -> None:
    data = {"total": TOTALS, "y": Y}
    tree = bl.fit(0, counts_of_rows, data, bl.NUTS(num_warmup=100, num_samples=20, num_chains=1), progress=False)
    p = tree["posterior"]["p"].values[0]
    expected = np.empty((20, 4))
    for row, total in enumerate(TOTALS):
        options = np.array(vectors(int(total)))
        log_prior = gammaln(total + 1) - gammaln(options + 1).sum(1) + np.log(p) @ options.T
        expected[:, row] = logsumexp(log_prior + norm.logpdf(Y[row], options).sum(1), axis=1)
    likelihood = bl.log_likelihood(counts_of_rows, data, tree, "row")
    np.testing.assert_allclose(likelihood["log_likelihood"]["y"].values[0], expected, rtol=1e-9)


def test_given_vectors_are_data() -> None:
    n = np.array([[1, 0, 0], [0, 2, 1], [0, 0, 0], [1, 1, 0]])
    tree = bl.fit(0, counts_of_rows, {"total": TOTALS, "y": Y, "n": n}, progress=False)
    assert list(tree["posterior"]) == ["p"]
    assert tree.attrs["log_evidence"] == pytest.approx(log_weight(n, TOTALS, Y), rel=1e-12)


def test_explain_says_what_the_index_is() -> None:
    assert "'n_index' says which of its 15 possible values it has" in str(bl.explain(one_vector, {"y": Y[0]}))


def test_too_many_vectors_have_a_way_out() -> None:
    assert math.comb(102, 2) > MAX_LISTED
    with pytest.raises(ValueError, match="too many values to enumerate; a Categorical in a plate draws its trials"):
        bl.fit(0, counts_of_rows, {"total": 100, "y": Y}, bl.Gibbs(), progress=False)


def test_vectors_missing_in_part_are_refused() -> None:
    n = np.array([[1, 0, 0], [np.nan] * 3, [0, 0, 0], [1, 1, 0]])
    with pytest.raises(ValueError, match="those of a MultinomialProbs cannot be imputed; leave 'n' out"):
        bl.fit(0, counts_of_rows, {"total": TOTALS, "y": Y, "n": n}, progress=False)


def test_totals_that_are_random_are_refused() -> None:
    def model(y: Any) -> None:
        total = numpyro.sample("total", dist.Poisson(3.0))
        n = numpyro.sample("n", dist.Multinomial(total, jnp.ones(3) / 3, total_count_max=10))
        numpyro.sample("y", dist.Normal(n, 1.0).to_event(1), obs=y)

    with pytest.raises(ValueError, match="is discrete and cannot be enumerated"):
        bl.fit(0, model, {"y": Y[0]}, bl.Gibbs(), progress=False)


LOW, HIGH = np.array([-2, 0, 3]), np.array([0, 5, 4])
SHIFTED = np.array([-1.0, 2.0, 4.5])


def between(low: Any, high: Any, y: Any) -> None:
    """Integers between bounds of each row, of which one has negative ones."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(y)):
        n = numpyro.sample("n", dist.DiscreteUniform(low, high))
        numpyro.sample("y", dist.Normal(mu + n, 1.0), obs=y)


def likelihoods_between(mu: np.ndarray) -> np.ndarray:
    """p(y | mu) of every row (row, *mu)."""
    ranges = [np.arange(low, high + 1) for low, high in zip(LOW, HIGH, strict=True)]
    return np.array([norm.pdf(SHIFTED[i], np.asarray(mu)[..., None] + r).mean(-1) for i, r in enumerate(ranges)])


def test_bounds_of_each_row_are_exact_given_the_rest() -> None:
    data = {"low": LOW, "high": HIGH, "y": SHIFTED}
    tree = bl.fit(0, between, data, bl.NUTS(num_warmup=300, num_samples=1500, num_chains=2), progress=False)
    n = tree["posterior"]["n"]
    assert ((n >= LOW) & (n <= HIGH)).all()
    grid = np.linspace(-8, 8, 4001)
    density = norm.pdf(grid) * likelihoods_between(grid).prod(0)
    mean = np.trapezoid(density * grid, grid) / np.trapezoid(density, grid)
    assert float(tree["posterior"]["mu"].mean()) == pytest.approx(mean, abs=0.1)  # 4 standard errors
    likelihood = bl.predict(1, between, data, tree)["log_likelihood"]
    assert likelihood.attrs["integrated_out"] == ["n_index"]
    expected = np.log(likelihoods_between(tree["posterior"]["mu"].values[0]))
    np.testing.assert_allclose(likelihood["y"].values[0], expected.T, rtol=1e-9)


def test_bounds_that_are_random_are_not_taken_for_data() -> None:
    """A bound that may be the same in two runs and is not in a third; the evidence sums over both."""

    def model(y: Any) -> None:
        more = numpyro.sample("more", dist.Bernoulli(1e-3))
        n = numpyro.sample("n", dist.DiscreteUniform(0, 1 + more))
        numpyro.sample("y", dist.Normal(n, 1.0), obs=y)

    tree = bl.fit(0, model, {"y": 1.2}, bl.Exact(10), progress=False)
    by_hand = 0.999 * norm.pdf(1.2, [0, 1]).mean() + 0.001 * norm.pdf(1.2, [0, 1, 2]).mean()
    assert tree.attrs["log_evidence"] == pytest.approx(np.log(by_hand), rel=1e-12)
    assert "n_index" not in tree["posterior"]


@pytest.mark.parametrize("written", ["as an event", "under a mask"])
def test_values_stay_between_their_bounds(written: str) -> None:
    """Of rows that a mask hides as well, of which the data say nothing."""

    def model(low: Any, high: Any, y: Any) -> None:
        if written == "as an event":
            n = numpyro.sample("n", dist.DiscreteUniform(low, high).to_event(1))
            numpyro.sample("y", dist.Normal(n, 1.0).to_event(1), obs=y)
            return
        with numpyro.plate("row", 3), numpyro.handlers.mask(mask=np.array([True, True, False])):
            n = numpyro.sample("n", dist.DiscreteUniform(low, high))
            numpyro.sample("y", dist.Normal(n, 1.0), obs=y)

    tree = bl.fit(0, model, {"low": LOW, "high": HIGH, "y": SHIFTED}, bl.Gibbs(num_samples=1000), progress=False)
    n = tree["posterior"]["n"]
    assert ((n >= LOW) & (n <= HIGH)).all()
    values = np.arange(LOW[1], HIGH[1] + 1)
    weights = norm.pdf(SHIFTED[1], values)
    assert float(n[..., 1].mean()) == pytest.approx(weights @ values / weights.sum(), abs=0.07)  # 4 standard errors


def test_a_range_without_values_is_refused() -> None:
    data = {"low": LOW, "high": HIGH - np.array([0, 10, 0]), "y": SHIFTED}
    with pytest.raises(ValueError, match=r"has values from 0 to -5 at position \(1,\); its largest value must"):
        bl.fit(0, between, data, progress=False)


TRIALS = np.array([3, 5])


def binomials(trials: Any, y: Any) -> None:
    """Numbers of successes of which one is observed with noise, each of its own number of trials."""
    with numpyro.plate("row", 2):
        n = numpyro.sample("n", dist.Binomial(trials, 0.4))
        numpyro.sample("y", dist.Normal(n, 0.7), obs=y)


def thinned_twice(y: Any) -> None:
    """Successes of successes: the second number is bounded by the first."""
    with numpyro.plate("row", 2):
        n = numpyro.sample("n", dist.Binomial(5, 0.4))
        k = numpyro.sample("k", dist.Binomial(n, 0.7))
        numpyro.sample("y", dist.Normal(k, 0.7), obs=y)


def test_numbers_of_trials_of_each_row() -> None:
    y = np.array([1.2, 2.5])
    tree = bl.fit(0, binomials, {"trials": TRIALS, "y": y}, progress=False)
    rows = [
        logsumexp(binom.logpmf(np.arange(m + 1), m, 0.4) + norm.logpdf(v, np.arange(m + 1), 0.7))
        for m, v in zip(TRIALS, y, strict=True)
    ]
    assert tree.attrs["log_evidence"] == pytest.approx(sum(rows), rel=1e-12)
    assert (tree["posterior"]["n"] <= TRIALS).all()


def test_numbers_of_trials_that_are_random_in_a_plate() -> None:
    y = np.array([1.2, 2.5])
    tree = bl.fit(0, thinned_twice, {"y": y}, bl.Exact(200), progress=False)
    n, k = np.mgrid[:6, :6]
    logs = binom.logpmf(n, 5, 0.4) + binom.logpmf(k, n, 0.7)
    by_hand = sum(logsumexp(logs + norm.logpdf(v, k, 0.7)) for v in y)
    assert tree.attrs["log_evidence"] == pytest.approx(by_hand, rel=1e-12)


def test_numbers_of_successes_of_which_some_are_given() -> None:
    """Of four trials each; the others are summed over given the share, which is drawn."""

    def model(y: Any) -> None:
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        with numpyro.plate("row", len(y)):
            k = numpyro.sample("k", dist.Binomial(4, p))
            numpyro.sample("y", dist.Normal(1.0 * k, 1.0), obs=y)

    y, k = np.array([1.0, 2.0, 2.2, 0.3]), np.array([1.0, np.nan, 2.0, np.nan])
    tree = bl.fit(0, model, {"y": y, "k": k}, bl.NUTS(300, 1500, 2), progress=False)
    p = np.linspace(1e-4, 1 - 1e-4, 2001)
    weights = p * (1 - p) * binom.pmf(1, 4, p) * binom.pmf(2, 4, p)
    counts = np.arange(5)[:, None]
    missing = [binom.pmf(counts, 4, p) * norm.pdf(value, counts, 1.0) for value in y[[1, 3]]]
    for each in missing:
        weights = weights * each.sum(0)
    means = [((counts * each).sum(0) / each.sum(0)) @ weights / weights.sum() for each in missing]
    np.testing.assert_allclose(tree["posterior"]["k"].mean(("chain", "draw"))[[1, 3]], means, atol=0.09)  # 4 errors
