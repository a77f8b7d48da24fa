"""Factors that forbid most values of discrete sites: the rest is summed over, and data are not called impossible."""

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import bayeslab as bl


def permutation(y: Any) -> None:
    """Every item has another place."""
    n = len(y)
    with numpyro.plate("item", n):
        place = numpyro.sample("place", dist.Categorical(jnp.ones(n) / n))
        numpyro.sample("y", dist.Normal(1.0 * place, 1.0), obs=y)
    first, second = np.triu_indices(n, 1)
    numpyro.factor("different", jnp.where(place[first] == place[second], -jnp.inf, 0.0).sum())


def subset(y: Any, size: int) -> None:
    """Exactly so many of the rows are raised."""
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)
    numpyro.factor("size", jnp.where(z.sum() == size, 0.0, -jnp.inf))


def ordered(y: Any) -> None:
    """Two numbers, the first one smaller: nothing is smaller than the least value of the second."""
    a = numpyro.sample("a", dist.DiscreteUniform(0, 2))
    b = numpyro.sample("b", dist.DiscreteUniform(0, 2))
    numpyro.factor("order", jnp.where(a < b, 0.0, -jnp.inf))
    r = numpyro.sample("r", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(r + a - b, 1.0), obs=y)


def raised(y: np.ndarray, size: int) -> Iterator[float]:
    """Log joints of all subsets of a size."""
    for z in product([0, 1], repeat=len(y)):
        if sum(z) == size:
            yield stats.norm.logpdf(y, np.array(z)).sum() + len(y) * np.log(0.5)


@pytest.mark.parametrize("method", [bl.Exact(200), None])
def test_permutations_are_summed_over(method: Any) -> None:
    y = np.array([-0.3, 0.8, 1.9, 2.2, 3.6])
    tree = bl.fit(0, permutation, {"y": y}, method, progress=False)
    each = [stats.norm.logpdf(y, np.array(places)).sum() - 5 * np.log(5) for places in permutations(range(5))]
    np.testing.assert_allclose(tree.attrs["log_evidence"], logsumexp(each), rtol=1e-12)
    assert (np.sort(tree["posterior"]["place"].values) == np.arange(5)).all()


@pytest.mark.parametrize(("number", "size"), [(6, 1), (12, 5)])
def test_subsets_of_a_size_are_summed_over(number: int, size: int) -> None:
    y = np.random.default_rng(16).normal(size=number)
    tree = bl.fit(0, subset, {"y": y, "size": size}, bl.Exact(200), progress=False)
    np.testing.assert_allclose(tree.attrs["log_evidence"], logsumexp(list(raised(y, size))), rtol=1e-12)
    assert (tree["posterior"]["z"].sum("row") == size).all()


def test_too_many_totals_are_refused_for_what_they_are() -> None:
    """The sums of twenty numbers with no common divisor are all different."""

    def limited(y: Any) -> None:
        with numpyro.plate("row", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.factor("limit", jnp.where(y @ z < 1.0, 0.0, -jnp.inf))

    y = np.random.default_rng(16).normal(size=20)
    with pytest.raises(ValueError, match="values of some of its elements exclude values of others"):
        bl.fit(0, limited, {"y": y}, progress=False)


def test_gradients_leave_out_what_is_impossible() -> None:
    """Chains of NUTS stayed where they started; r is a mixture of three Normals with a variance of a half."""
    tree = bl.fit(0, ordered, {"y": 0.5}, bl.NUTS(num_warmup=300, num_samples=500, num_chains=2), progress=False)
    differences = np.array([-1, -1, -2])
    weights = stats.norm.pdf(0.5, differences, np.sqrt(2.0))
    mean = (weights * (0.5 - differences) / 2).sum() / weights.sum()
    r = tree["posterior"]["r"].values
    assert abs(r.mean() - mean) < 5 * r.std() / np.sqrt(200)
    assert r.std() > 0.5


def test_subsets_of_sixteen_are_summed_over() -> None:
    """Exactly five of them: the evidence is that of a running total, which counts those before each row."""
    y = np.random.default_rng(0).normal(size=16)
    tree = bl.fit(0, subset, {"y": y, "size": 5}, bl.Exact(200), progress=False)
    totals = np.eye(1, 6)[0]
    for value in y:
        raised, not_raised = 0.5 * stats.norm.pdf(value, 1.0), 0.5 * stats.norm.pdf(value)
        totals = totals * not_raised + np.append(0.0, totals[:-1] * raised)
    assert tree.attrs["log_evidence"] == pytest.approx(np.log(totals[5]), rel=1e-12)
    assert (tree["posterior"]["z"].sum("row") == 5).all()


ALLOWED = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 1]], bool)


def some_are_zero(y: Any, allowed: Any) -> None:
    """At least one label is 0. From where one alone is, it has no other value, given those that the others have."""
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(logits=jnp.where(allowed, 0.0, -jnp.inf)))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)
    numpyro.factor("some", jnp.where((z == 0).any(), 0.0, -jnp.inf))


@pytest.mark.parametrize("allowed", [np.ones((4, 5), bool), ALLOWED], ids=["all categories", "some categories"])
@pytest.mark.parametrize("method", [bl.Exact(4000), bl.Gibbs(num_samples=2000, num_chains=2)], ids=["Exact", "Gibbs"])
def test_a_condition_on_all_elements_is_not_one_on_a_single_one(method: Any, allowed: np.ndarray) -> None:
    y = np.array([1.0, 0.5, 2.0, 3.0])
    labels = np.array([z for z in product(*map(np.flatnonzero, allowed)) if 0 in z])
    logs = stats.norm.logpdf(y, labels).sum(1) - np.log(allowed.sum(1)).sum()
    tree = bl.fit(0, some_are_zero, {"y": y, "allowed": allowed}, method, progress=False)
    if isinstance(method, bl.Exact):
        assert tree.attrs["log_evidence"] == pytest.approx(logsumexp(logs), rel=1e-12)
    weights = np.exp(logs - logsumexp(logs))
    shares = (tree["posterior"]["z"] == 0).mean(("chain", "draw"))
    np.testing.assert_allclose(shares, weights @ (labels == 0), atol=0.05)  # 4 standard errors of 1,600 draws
