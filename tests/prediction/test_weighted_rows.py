"""Rows that `handlers.scale` weights: the parameters learn more or less from them, and they are spread as they are."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from scipy.stats import norm

import bayeslab as bl

X = np.array([0.1, -0.3, 1.5, 0.7])
WEIGHTS = np.array([1.0, 2.0, 3.0, 1.0])
METHOD = bl.NUTS(num_warmup=200, num_samples=1500, num_chains=1)


def effects(x: Any, weights: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0, 1))
    with numpyro.plate("row", len(x)), handlers.scale(scale=weights):
        e = numpyro.sample("e", dist.Normal(m, 1.0))
        numpyro.sample("y", dist.Normal(e, 0.5), obs=x)


def labels(x: Any, weights: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0, 1))
    with numpyro.plate("row", len(x)), handlers.scale(scale=weights):
        z = numpyro.sample("z", dist.Bernoulli(0.7))
        numpyro.sample("y", dist.Normal(m + jnp.array([-1.0, 1.0])[z], 1.0), obs=x)


def of_effects(m: np.ndarray) -> np.ndarray:
    return norm.logpdf(X, m, np.sqrt(1.25))


def of_labels(m: np.ndarray) -> np.ndarray:
    return np.log(0.7 * norm.pdf(X, m + 1) + 0.3 * norm.pdf(X, m - 1))


@pytest.mark.parametrize(("model", "density"), [(effects, of_effects), (labels, of_labels)])
def test_likelihoods_of_rows_have_no_weights(model: Any, density: Any) -> None:
    data = {"x": X, "weights": WEIGHTS}
    tree = bl.fit(0, model, data, bl.NUTS(100, 50, 1), progress=False)
    expected = density(tree["posterior"]["m"].values[0][:, None])
    for likelihood in (bl.predict(1, model, data, tree), bl.log_likelihood(model, data, tree, "row")):
        np.testing.assert_allclose(likelihood["log_likelihood"]["y"].values[0], expected, rtol=1e-9)


def test_new_rows_are_spread_as_the_program_says() -> None:
    tree = bl.fit(0, effects, {"x": X, "weights": WEIGHTS}, METHOD, progress=False)
    data = {"x": np.array([np.nan, np.nan, 1.0, np.nan]), "weights": WEIGHTS}
    new, m = bl.predict(1, effects, data, tree)["predictions"], tree["posterior"]["m"]
    for row in (1, 3):
        assert float((new["e"][..., row] - m).std()) == pytest.approx(1.0, abs=0.08)  # 4 standard errors
    for row in range(4):
        assert float((new["y"][..., row] - m).std()) == pytest.approx(np.sqrt(1.25), abs=0.09)


def test_probabilities_of_labels_have_no_weights() -> None:
    data = {"x": X, "weights": WEIGHTS}
    tree = bl.fit(0, labels, data, METHOD, progress=False)
    new = bl.predict(1, labels, data | {"x": np.array([0.2, np.nan, np.nan, 1.0])}, tree)
    m, probabilities = tree["posterior"]["m"].values.ravel(), new["predictions_probabilities"]["z"].values
    one, zero = 0.7 * norm.pdf(0.2, m + 1), 0.3 * norm.pdf(0.2, m - 1)
    np.testing.assert_allclose(probabilities[:3, 1], [(one / (one + zero)).mean(), 0.7, 0.7], rtol=1e-6)


@pytest.mark.parametrize("in_scan", [False, True], ids=["in a plate", "in a scan"])
def test_the_evidence_of_weighted_labels_of_which_some_are_given(in_scan: bool) -> None:
    """The given part counts as often as its weight says, and what stands for it in the latent part counts once."""
    probs, y, z = np.array([0.2, 0.3, 0.5]), np.array([1.5, 0.2, 1.0]), np.array([2.0, np.nan, 1.0])

    def step(carry: Any, row: Any) -> Any:
        label = numpyro.sample("z", dist.Categorical(probs), obs=row[1])
        numpyro.sample("y", dist.Normal(1.0 * label, 0.8), obs=row[0])
        return carry, None

    def model(y: Any, z: Any) -> None:
        with handlers.scale(scale=2.0):
            if in_scan:
                scan(step, 0, (y, z))
                return
            with numpyro.plate("row", 3):
                step(0, (y, z))

    tree = bl.fit(0, model, {"y": y, "z": z}, bl.Exact(10), progress=False)
    weighted = 2 * (np.log(probs) + norm.logpdf(y[:, None], np.arange(3), 0.8))
    expected = weighted[0, 2] + np.logaddexp.reduce(weighted[1]) + weighted[2, 1]
    assert tree.attrs["log_evidence"] == pytest.approx(expected, rel=1e-12)
