"""Labels that may be exchanged are drawn by default, others are summed over."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import arviz as az
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import betaln, logsumexp

import bayeslab as bl
from bayeslab.models import dirichlet_process_mixture, gaussian_mixture, hmm
from bayeslab.planning import plan
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.exchangeable_labels import may_exchange_labels

COUNTS = np.random.default_rng(0).poisson(np.repeat([2, 9], 10))


def rows(weights: Any, rate: Any, y: Any) -> None:
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Poisson(rate[z]), obs=y)


def mixture(concentration: Sequence[float], shape: Sequence[float], y: Any) -> None:
    """A mixture of Poisson distributions."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array(concentration)))
    with numpyro.plate("component", len(shape)):
        rate = numpyro.sample("rate", dist.Gamma(jnp.array(shape), 1.0))
    rows(weights, rate, y)


def alike(y: Any) -> None:
    mixture([1.0, 1.0], [2.0, 2.0], y)


def with_other_rates(y: Any) -> None:
    mixture([1.0, 1.0], [2.0, 8.0], y)


def with_other_weights(y: Any) -> None:
    mixture([1.0, 3.0], [2.0, 2.0], y)


def two_alike(y: Any) -> None:
    """The first and the last of three components may be exchanged."""
    mixture([1.0, 3.0, 1.0], [2.0, 8.0, 2.0], y)


def two_rates_alike(y: Any) -> None:
    """Rates of the first and the last of three components have one prior, their weights have not."""
    mixture([1.0, 1.0, 3.0], [2.0, 8.0, 2.0], y)


def with_one_probability(y: Any) -> None:
    """Components change places where p becomes 1 - p."""
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    rows(jnp.stack([1 - p, p]), rate, y)


def labels_with_a_logit(loc: float, y: Any) -> None:
    logit = numpyro.sample("logit", dist.Normal(loc))
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(logits=logit))
        numpyro.sample("y", dist.Poisson(rate[z]), obs=y)


def with_a_logit(y: Any) -> None:
    labels_with_a_logit(0.0, y)


def with_a_logit_that_is_not_centred(y: Any) -> None:
    labels_with_a_logit(1.0, y)


def with_named_scales(y: Any) -> None:
    """Two scales are sites of their own, and are exchanged with each other as the means are."""
    with numpyro.plate("component", 2):
        mean = numpyro.sample("mean", dist.Normal(0, 5))
    scales = jnp.stack([numpyro.sample(name, dist.HalfNormal()) for name in ("first", "second")])
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mean[z], scales[z]), obs=y * 1.0)


def beside_groups(y: Any) -> None:
    """Alike components, and as many groups of rows, which nothing exchanges."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("group", 2):
        ease = numpyro.sample("ease", dist.Gamma(jnp.array([2.0, 9.0]), 5.0))
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Poisson(ease[jnp.arange(len(y)) % 2] * rate[z]), obs=y)


def groups_alike(y: Any) -> None:
    """Alike groups of rows beside components that are not: the exchange of groups is none of labels."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("group", 2):
        ease = numpyro.sample("ease", dist.Gamma(2.0, 2.0))
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Gamma(jnp.array([2.0, 8.0]), 1.0))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Poisson(ease[jnp.arange(len(y)) % 2] * rate[z]), obs=y)


def ordered(y: Any) -> None:
    """The second rate is the first and something more: another order is a change of coordinates."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    low, more = numpyro.sample("low", dist.Gamma(2.0, 1.0)), numpyro.sample("more", dist.Gamma(2.0, 1.0))
    rows(weights, jnp.stack([low, low + more]), y)


def grades(y: Any) -> None:
    """What is found of a grade is never more than it: zeros tell the rows of the table apart, not their priors."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    second, third = numpyro.sample("second", dist.Beta(1, 1)), numpyro.sample("third", dist.Dirichlet(jnp.ones(3)))
    table = jnp.stack([jnp.array([1.0, 0.0, 0.0]), jnp.stack([second, 1 - second, 0.0]), third])
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Categorical(table[z]), obs=y % 3)


def partly_known(y: Any) -> None:
    """The labels of a few rows are known, which pins the others."""
    p = numpyro.sample("p", dist.Beta(1, 1))
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("pilot", dist.Poisson(rate[jnp.array([0, 0, 1])]).to_event(1), obs=y[:3])
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(p))
        numpyro.sample("y", dist.Poisson(rate[z]), obs=y)


EXCHANGEABLE = [alike, two_alike, with_one_probability, with_a_logit, with_named_scales, beside_groups, ordered]
OTHERS = [with_other_rates, with_other_weights, two_rates_alike, with_a_logit_that_is_not_centred, groups_alike]
OTHERS += [grades, partly_known]


@pytest.mark.parametrize("program", EXCHANGEABLE)
def test_labels_of_like_components_may_be_exchanged(program: Any) -> None:
    assert may_exchange_labels(bl.bind(program, {"y": COUNTS}))


@pytest.mark.parametrize("program", OTHERS)
def test_labels_of_components_that_differ_may_not(program: Any) -> None:
    assert not may_exchange_labels(bl.bind(program, {"y": COUNTS}))


@pytest.mark.parametrize("lecture", [gaussian_mixture, hmm])
def test_mixtures_and_chains_of_the_catalogue_may(lecture: Any) -> None:
    assert may_exchange_labels(bl.bind(lecture.model, lecture.example()))


@pytest.mark.parametrize(
    ("program", "method"),
    [(alike, bl.Gibbs), (beside_groups, bl.Gibbs), (with_other_rates, bl.NUTS), (with_other_weights, bl.NUTS)],
)
def test_the_default_sums_over_labels_that_may_not_be_exchanged(program: Any, method: type) -> None:
    assert type(plan(Analysis(bl.bind(program, {"y": COUNTS}))).method) is method


def test_labels_of_a_stick_are_drawn() -> None:
    """But for the order of the stick its components are alike, and so are the modes."""
    bound = bl.bind(dirichlet_process_mixture.model, dirichlet_process_mixture.example())
    assert type(plan(Analysis(bound)).method) is bl.Gibbs


ILL_IF_ILL, ILL_IF_WELL = (8.0, 2.0), (1.0, 6.0)
POSITIVE = np.array([1, 0, 0, 1, 0, 1, 0, 0])


def screened_persons(y: Any) -> None:
    """A test that is positive with one probability in the ill and with another in those who are well."""
    ill = numpyro.sample("ill", dist.Beta(1.0, 1.0))
    first, second = (jnp.array(pair) for pair in zip(ILL_IF_WELL, ILL_IF_ILL, strict=True))
    with numpyro.plate("state", 2):
        positive = numpyro.sample("positive", dist.Beta(first, second))
    with numpyro.plate("person", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(ill))
        numpyro.sample("y", dist.Bernoulli(positive[z]), obs=y)


def enumerated_means(y: np.ndarray) -> np.ndarray:
    """Posterior means of the share of the ill and of both probabilities: a sum over the states of all persons."""
    log_weights, means = [], []
    for states in product((0, 1), repeat=len(y)):
        z = np.array(states)
        priors = [(1.0, 1.0), ILL_IF_WELL, ILL_IF_ILL]
        counts = [(z.sum(), (1 - z).sum()), *((y[z == k].sum(), (1 - y[z == k]).sum()) for k in (0, 1))]
        pairs = [(a + n, b + m) for (a, b), (n, m) in zip(priors, counts, strict=True)]
        log_weights.append(sum(betaln(*pair) - betaln(*prior) for pair, prior in zip(pairs, priors, strict=True)))
        means.append([a / (a + b) for a, b in pairs])
    return np.exp(np.array(log_weights) - logsumexp(log_weights)) @ np.array(means)


def test_misclassified_data_by_default_have_the_means_of_an_enumeration() -> None:
    tree = bl.fit(0, screened_persons, {"y": POSITIVE}, progress=False)
    assert tree.attrs["method"] == "NUTS"
    posterior = tree.posterior.to_dataset()[["ill", "positive"]]
    means, errors = (
        np.concatenate([np.ravel(table[name]) for name in ("ill", "positive")])
        for table in (posterior.mean(("chain", "draw")), az.mcse(posterior))
    )
    np.testing.assert_array_less(np.abs(means - enumerated_means(POSITIVE)), 5 * errors)
    assert float(az.rhat(posterior).to_array().max()) < 1.01
