"""Nets and fields of the lectures: evidences in closed form, conditionals, moments, and what the notes misprint."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayeslab as bl
from bayeslab.models import bayes_net, gaussian_bayes_net, gaussian_markov_net, markov_random_field, rbm
from bayeslab.programs.program import precision_scope


@pytest.mark.slow
def test_evidence_of_complete_data_is_that_of_the_rows_of_tables() -> None:
    data = bayes_net.example()
    tree = bl.fit(0, bayes_net.model, data, bl.Exact(2000), progress=False)
    nodes = {name: data[name] for name in "abc"}
    with precision_scope():
        stated = bayes_net.log_evidence(nodes, data["parents"], data["num_values"], data["concentration"])
    np.testing.assert_allclose(tree.attrs["log_evidence"], stated, rtol=1e-10)
    counts = np.zeros((2, 2, 3))
    np.add.at(counts, (data["a"], data["c"], data["b"]), 1)
    mean = (counts + 0.8) / (counts + 0.8).sum(-1, keepdims=True)
    np.testing.assert_allclose(tree["posterior"]["table_b"].mean(("chain", "draw")), mean, atol=0.03)


@pytest.mark.slow
def test_missing_nodes_are_drawn_with_the_tables() -> None:
    """Gibbs against a sum over the two values of one missing entry."""
    data = bayes_net.example()
    whole = {name: data[name] for name in "abc"}
    settings = data["parents"], data["num_values"], data["concentration"]
    with precision_scope():
        values = [whole | {"a": np.where(np.arange(10) == 3, value, data["a"])} for value in (0, 1)]
        log_odds = float(bayes_net.log_evidence(values[1], *settings) - bayes_net.log_evidence(values[0], *settings))
    missing = data | {"a": np.where(np.arange(10) == 3, np.nan, data["a"])}
    tree = bl.fit(0, bayes_net.model, missing, bl.Gibbs(num_samples=4000, num_warmup=100, num_chains=1), progress=False)
    share = float(tree["posterior"]["a"].values.reshape(4000, -1)[:, 3].mean())
    assert abs(share - 1 / (1 + np.exp(-log_odds))) < 0.04


@pytest.mark.slow
def test_a_gaussian_net_is_a_regression_for_every_node() -> None:
    whole = gaussian_bayes_net.example()
    data = {name: value for name, value in whole.items() if name != "b"} | {"parents": (("a", ()), ("c", ("a",)))}
    tree = bl.fit(0, gaussian_bayes_net.model, data, bl.Exact(200), progress=False)
    total = 0.0
    for name, own in data["parents"]:
        design = np.stack([np.ones(8), *(data[parent] for parent in own)], axis=1)
        scale = data["rate"] / data["shape"] * (np.eye(8) + design @ design.T / data["shrinkage"])
        total += stats.multivariate_t(np.zeros(8), scale, 2 * data["shape"]).logpdf(data[name])
    np.testing.assert_allclose(tree.attrs["log_evidence"], total, rtol=1e-9)


def test_moments_of_a_gaussian_net() -> None:
    """W35: of simulated rows, whose mean is not that of the form in which mu_j is added to the parents themselves."""
    rng = np.random.default_rng(0)
    weights = np.array([[0.0, 0.0, 0.0], [0.8, 0.0, 0.0], [-0.5, 1.2, 0.0]])
    intercepts, precisions = np.array([1.0, -0.5, 0.3]), np.array([1.0, 4.0, 2.0])
    x = np.zeros((200_000, 3))
    for node in range(3):
        x[:, node] = intercepts[node] + x @ weights[node] + rng.normal(size=len(x)) / np.sqrt(precisions[node])
    with precision_scope():
        moments = gaussian_bayes_net.moments(*map(jnp.asarray, (weights, intercepts, precisions)))
        mean, covariance = map(np.asarray, moments)
    np.testing.assert_allclose(mean, x.mean(0), atol=0.02)
    np.testing.assert_allclose(covariance, np.cov(x.T), atol=0.03)
    assert np.abs(mean - intercepts).max() > 0.5


def test_conditionals_of_a_gaussian_markov_net() -> None:
    """W34: sign and centring, against conditioning on the covariance."""
    x, mu = np.array([0.0, 1.5, 1.0]), np.array([5.0, 1.0, 2.0])
    precision = np.array([[2.0, -0.8, 0.5], [-0.8, 1.5, 0.2], [0.5, 0.2, 1.0]])
    covariance = np.linalg.inv(precision)
    with precision_scope():
        found = gaussian_markov_net.conditional(*map(jnp.asarray, (x, mu, precision)))
        mean, variance = map(np.asarray, found)
    for node in range(3):
        rest = [other for other in range(3) if other != node]
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, node])
        np.testing.assert_allclose(mean[node], mu[node] + gain @ (x[rest] - mu[rest]), rtol=1e-12)
        np.testing.assert_allclose(variance[node], covariance[node, node] - gain @ covariance[rest, node], rtol=1e-12)
    printed = -(mean - mu)[0]
    assert abs(mean[0] - printed) > 1


def test_partial_correlations_of_a_chain() -> None:
    """x -> y -> z: x and z are correlated, but not given y."""
    covariance = np.array([[1.0, 0.8, 0.64], [0.8, 1.0, 0.8], [0.64, 0.8, 1.0]])
    with precision_scope():
        found = np.asarray(gaussian_markov_net.partial_correlation(jnp.linalg.inv(jnp.asarray(covariance))))
    assert abs(found[0, 2]) < 1e-12
    np.testing.assert_allclose(np.diag(found), 1.0)
    residuals = 0.8 * 0.6 / np.sqrt((1 - 0.64) * 1.0)
    assert 0 < found[0, 1] < residuals


@pytest.mark.slow
def test_hidden_units_are_independent_given_visible_ones() -> None:
    """NUTS of all weights; h is drawn given v and them, and predictions follow."""
    data = rbm.example()
    method = bl.NUTS(num_samples=100, num_warmup=100, num_chains=1)
    tree = bl.predict(1, rbm.model, data, bl.fit(0, rbm.model, data, method, progress=False))
    posterior = tree["posterior"]
    logits = np.einsum("dlj,rj->drl", posterior["w"][0], data["v"]) + posterior["beta"].values[0][:, None]
    gap = posterior["h"].values[0] - 1 / (1 + np.exp(-logits))
    assert np.abs(gap.mean((0, 1))).max() < 5 * 0.5 / np.sqrt(gap[..., 0].size)
    assert tree["posterior_predictive"]["v"].shape == (1, 100, 6, 4)
    assert tree["log_likelihood"]["v"].shape == (1, 100, 6)


@pytest.mark.slow
def test_weights_of_a_field_by_nuts_and_by_laplace() -> None:
    """Couplings of a small field: two methods that share nothing but the exact partition function."""
    data = markov_random_field.example()
    nuts = bl.fit(0, markov_random_field.model, data, bl.NUTS(num_samples=600, num_chains=1), progress=False)
    laplace = bl.fit(0, markov_random_field.model, data, bl.Laplace(), progress=False)
    gap = (nuts["posterior"] - laplace["posterior"].mean(("chain", "draw"))).mean(("chain", "draw"))
    assert float(np.abs(gap["coupling"]).max()) < 0.25


def field_with_factor(num_rows: int, num_visible: int, num_hidden: int) -> None:
    """The machine as the notes write it, whose layers meet in a factor that is named like a statistic of NUTS."""
    with numpyro.plate("visible", num_visible):
        alpha = numpyro.sample("alpha", dist.Normal(0.0, 1.0))
    with numpyro.plate("hidden", num_hidden, dim=-2), numpyro.plate("visible", num_visible, dim=-1):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("visible", num_visible, dim=-1):
        v = numpyro.sample("v", dist.Bernoulli(0.5))
    with numpyro.plate("row", num_rows, dim=-2), numpyro.plate("hidden", num_hidden, dim=-1):
        h = numpyro.sample("h", dist.Bernoulli(0.5))
    numpyro.factor("energy", jnp.einsum("rh,hv,rv->r", 1.0 * h, w, 1.0 * v) + v @ alpha)


KNOWN = {"num_rows": 1, "num_visible": 4, "num_hidden": 2, "alpha": np.array([0.3, -0.5, 0.1, 0.8])}
KNOWN["w"] = np.array([[1.2, -0.7, 0.4, 0.9], [-1.1, 0.6, 1.5, -0.3]])


@pytest.mark.slow
def test_block_gibbs_of_both_layers_in_a_factor() -> None:
    """Known weights: Gibbs draws a layer at a time, and both layers have their exact probabilities."""
    exact = bl.graphical_models.query(field_with_factor, KNOWN, of="v")[0, :, 1]
    method = bl.Gibbs(num_samples=4000, num_warmup=50, num_chains=1)
    tree = bl.fit(0, field_with_factor, KNOWN, method, progress=False)
    np.testing.assert_allclose(tree["posterior"]["v"].mean(("chain", "draw"))[0], exact, atol=0.05)
    with precision_scope():
        machine = bl.distributions.RestrictedBoltzmann(KNOWN["w"], KNOWN["alpha"], np.zeros(2))
        probs = np.exp(machine.log_prob(jnp.array(list(np.ndindex(2, 2, 2, 2)))))
    np.testing.assert_allclose(exact, probs @ np.array(list(np.ndindex(2, 2, 2, 2))), atol=1e-10)


def test_statistics_of_nuts_beside_a_factor_of_their_name() -> None:
    """And predictions of what a factor changes are refused: nothing draws from that."""
    data = {"num_rows": 6, "num_visible": 4, "num_hidden": 2, "v": rbm.bars_and_stripes(2)}
    method = bl.NUTS(num_samples=20, num_warmup=20, num_chains=1)
    tree = bl.fit(0, field_with_factor, data, method, progress=False)
    assert tree["sample_stats"]["energy"].dims == ("chain", "draw")
    assert tree["posterior"]["h"].shape == (1, 20, 6, 2)
    with pytest.raises(ValueError, match="factor 'energy' changes"):
        bl.predict(1, field_with_factor, data, tree)


def test_a_field_without_edges_has_independent_nodes() -> None:
    """A posterior mode of a field by a scalar equation, and the probabilities of its nodes."""
    x = np.array([[1, 0], [0, 0], [1, 1], [1, 0]])
    data = {"num_rows": 4, "num_nodes": 2, "edges": np.zeros((0, 2), int), "tau": 0.8}
    mode = bl.fit(0, markov_random_field.model, data | {"x": x}, bl.MAP(), progress=False)["posterior"]["field"]
    score = (2 * x - 1).sum(0) - 4 * np.tanh(mode.values[0, 0]) - mode.values[0, 0] / 0.8**2
    np.testing.assert_allclose(score, 0.0, atol=1e-5)
    field = np.array([0.3, -0.2])
    known = {name: data[name] for name in ("num_nodes", "edges", "tau")} | {"num_rows": 1, "field": field}
    found = bl.graphical_models.query(markov_random_field.model, known, of="x")
    np.testing.assert_allclose(found.values[0, :, 1], 1 / (1 + np.exp(-2 * field)), rtol=1e-12)
