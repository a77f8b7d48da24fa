"""Exchanges of labels between the draws of NUTS: every order of the components gets its probability."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy.special import gammaln, logsumexp, roots_legendre
from scipy.stats import gamma, poisson

import bayeslab as bl
from bayeslab.methods.moves.label_exchange import LabelExchangeSampler
from bayeslab.planning import plan
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.exchangeable_labels import Exchange, Renamed, Reordered, nearly_exchangeable_labels

SWITCHING_COUNTS = np.array([1, 0, 1, 7, 5, 8, 6, 1, 0, 2, 1, 0])
CLUSTERED_COUNTS = np.array([0, 1, 0, 9, 12, 10, 30, 28])
CONCENTRATION = np.array([1.0, 2.0, 4.0])


def known_first_state(y: Any) -> None:
    """A hidden Markov model whose state before the first count is 0."""
    with numpyro.plate("state", 2):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))

    def step(last: Any, value: Any) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Categorical(rows[last]))
        numpyro.sample("y", dist.Poisson(rate[z]), obs=value)
        return z, None

    scan(step, 0, y)


def mixture(concentration: np.ndarray, y: Any) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array(concentration)))
    with numpyro.plate("component", len(concentration)):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.2))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Poisson(rate[z]), obs=y)


def mixture_with_other_weights(y: Any) -> None:
    mixture(CONCENTRATION, y)


def mixture_of_like_components(y: Any) -> None:
    mixture(np.ones(2), y)


def unlike_observations(y: Any) -> None:
    """No exchange leaves the densities of the data alone: the second component has a shape of its own."""
    with numpyro.plate("component", 2):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.2))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.NegativeBinomial2(rate[z], jnp.array([1.0, 5.0])[z]), obs=y)


def exact_probability_of_falling_rates(y: np.ndarray) -> float:
    """P(rate[0] > rate[1] | y) of `known_first_state`, by quadrature over stays and rates and the forward recursion."""
    nodes, node_weights = roots_legendre(14)
    share, share_weights = (nodes + 1) / 2, node_weights / 2
    nodes, node_weights = roots_legendre(60)
    rates, rate_weights = 10 * (nodes + 1), 10 * node_weights * gamma.pdf(10 * (nodes + 1), 2.0, scale=2.0)
    stay = np.array(list(product(share, share)))
    moves = np.stack([np.stack([stay[:, 0], 1 - stay[:, 0]], 1), np.stack([1 - stay[:, 1], stay[:, 1]], 1)], 1)
    pairs = np.array(list(product(rates, rates)))
    likelihoods = poisson.pmf(y[:, None, None], pairs)  # (step, pair, state)
    forward = np.broadcast_to(moves[:, None, 0], (len(stay), len(pairs), 2)) * likelihoods[0]
    for likelihood in likelihoods[1:]:
        forward = (forward @ moves) * likelihood
    weights = np.prod(list(product(share_weights, share_weights)), 1) @ forward.sum(-1)
    weights *= np.prod(list(product(rate_weights, rate_weights)), 1)
    return float(weights[pairs[:, 0] > pairs[:, 1]].sum() / weights.sum())


def exact_means_of_rates(y: np.ndarray) -> np.ndarray:
    """The posterior means of the rates of `mixture_with_other_weights`, by enumeration of the labels."""
    labels = np.array(list(product(range(3), repeat=len(y))))
    counts = np.stack([(labels == k).sum(1) for k in range(3)], 1)
    totals = np.stack([np.where(labels == k, y, 0).sum(1) for k in range(3)], 1)
    log_joint = gammaln(CONCENTRATION + counts).sum(1)
    log_joint += (gammaln(2.0 + totals) - (2.0 + totals) * np.log(0.2 + counts)).sum(1)
    weights = np.exp(log_joint - logsumexp(log_joint))
    return weights @ ((2.0 + totals) / (0.2 + counts))


def test_a_hidden_markov_model_with_a_known_first_state_visits_both_orders_of_its_states() -> None:
    posterior = bl.fit(0, known_first_state, {"y": SWITCHING_COUNTS}, bl.NUTS(), progress=False).posterior
    falling = np.asarray(posterior["rate"][..., 0] > posterior["rate"][..., 1], float)
    error = falling.mean(1).std(ddof=1) / 2
    right = exact_probability_of_falling_rates(SWITCHING_COUNTS)
    assert 0.05 < right < 0.4
    assert falling.mean() == pytest.approx(right, abs=4 * max(error, 0.01))


def test_components_with_other_weights_are_exchanged_and_have_the_exact_means() -> None:
    tree = bl.fit(1, mixture_with_other_weights, {"y": CLUSTERED_COUNTS}, bl.NUTS(num_samples=3000), progress=False)
    means = np.asarray(tree.posterior["rate"].mean("draw"))
    errors = means.std(0, ddof=1) / 2
    deviations = abs(means.mean(0) - exact_means_of_rates(CLUSTERED_COUNTS))
    np.testing.assert_array_less(deviations, 4 * np.maximum(errors, 0.2))
    assert (abs(means.mean(0) - means.mean()) > 1).any()  # the order is not lost
    orders = np.argsort(np.asarray(tree.posterior["rate"]), axis=-1).reshape(-1, 3)
    assert len(np.unique(orders, axis=0)) >= 3


def test_sites_that_move_together_are_found() -> None:
    bound = bl.bind(known_first_state, {"y": SWITCHING_COUNTS})
    [exchange] = nearly_exchangeable_labels(bound)
    assert dict(exchange.moves) == {
        "rows": Reordered((0, 1), (0, 1)),
        "rate": Reordered((0,), (0, 1)),
        "z": Renamed((0, 1)),
    }
    pairs = nearly_exchangeable_labels(bl.bind(mixture_with_other_weights, {"y": CLUSTERED_COUNTS}))
    assert len(pairs) == 3


def test_an_exchange_is_its_own_inverse() -> None:
    exchange = Exchange((("rows", Reordered((0, 1), (0, 2))),), (("first", "second"),))
    values = {"rows": np.arange(9.0).reshape(3, 3), "first": np.array(1.0), "second": np.array(2.0)}
    moved = exchange(values)
    np.testing.assert_array_equal(moved["rows"], values["rows"][::-1, ::-1])
    assert (moved["first"], moved["second"]) == (2.0, 1.0)
    for name, value in exchange(moved).items():
        np.testing.assert_array_equal(value, values[name])


@pytest.mark.parametrize("program", [mixture_of_like_components, unlike_observations])
def test_labels_without_an_order_or_with_data_of_their_own_are_not_exchanged(program: Any) -> None:
    bound = bl.bind(program, {"y": CLUSTERED_COUNTS})
    assert nearly_exchangeable_labels(bound) == ()
    sampler: Any = plan(Analysis(bound), bl.NUTS()).sampler
    while hasattr(sampler, "inner"):
        assert not isinstance(sampler, LabelExchangeSampler)
        sampler = sampler.inner
