"""`numpyro.param` in programs: a point is learned, and methods that draw all sites say no."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries import stax
from numpyro.distributions import constraints

import bayeslab as bl

RANDOM = np.random.default_rng(1)


def groups(y: Any) -> None:
    mean = numpyro.param("mean", 0.0)
    spread = numpyro.param("spread", 1.0, constraint=constraints.positive)
    with numpyro.plate("group", len(y)):
        effect = numpyro.sample("effect", dist.Normal(mean, spread))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)


def mixture(y: Any) -> None:
    weights = numpyro.param("weights", jnp.array([0.4, 0.6]), constraint=constraints.simplex)
    mean = numpyro.param("mean", lambda key: jnp.array([-1.0, 1.0]) + 0.1 * jax.random.normal(key, (2,)))
    with numpyro.plate("row", len(y)):
        label = numpyro.sample("label", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mean[label], 1.0), obs=y)


def network(x: Any, y: Any) -> None:
    net = numpyro.module("net", stax.serial(stax.Dense(2), stax.Tanh, stax.Dense(1)), (1,))
    numpyro.sample("y", dist.Normal(net(x)[..., 0], 0.1), obs=y)


GROUP_MEANS = RANDOM.normal(0.5, 2.0, 8)


def test_empirical_bayes_of_a_hierarchy() -> None:
    """Given what is learned, means of groups are Normal(mean, spread^2 + 1), whose maximum is known."""
    tree = bl.fit(0, groups, {"y": GROUP_MEANS}, progress=False)
    assert tree.attrs["method"] == "SVI"
    expected = GROUP_MEANS.mean(), np.sqrt(GROUP_MEANS.var() - 1)
    found = [float(tree["posterior"][name].mean()) for name in ("mean", "spread")]
    np.testing.assert_allclose(found, expected, rtol=0.03)


def test_mixtures_are_learned_by_expectation_maximisation() -> None:
    y = np.concatenate([RANDOM.normal(-2.0, 1.0, 20), RANDOM.normal(3.0, 1.0, 30)])
    weights, means = np.array([0.4, 0.6]), np.array([-1.0, 1.0])
    for _ in range(300):
        labels = weights * np.exp(-0.5 * (y[:, None] - means) ** 2)
        labels /= labels.sum(1, keepdims=True)
        weights, means = labels.mean(0), (labels * y[:, None]).sum(0) / labels.sum(0)
    tree = bl.fit(0, mixture, {"y": y}, bl.EM(num_starts=1), progress=False)
    np.testing.assert_allclose(tree["posterior"]["mean"].squeeze(), means, rtol=1e-5)
    np.testing.assert_allclose(tree["posterior"]["weights"].squeeze(), weights, rtol=1e-5)


def test_networks_start_where_they_are_initialised() -> None:
    x = np.linspace(-1.0, 1.0, 20)[:, None]
    data = {"x": x, "y": np.sin(2 * x[:, 0])}
    tree = bl.predict(0, network, data, bl.fit(0, network, data, progress=False))
    assert tree["posterior"]["net$params"].shape == (1, 1, 7)
    residuals = tree["log_likelihood"]["y"] - float(dist.Normal(0.0, 0.1).log_prob(0.0))
    assert float(residuals.min()) > -0.1


def test_methods_that_draw_refuse() -> None:
    with pytest.raises(ValueError, match=r"NUTS draws all sites, but numpyro.param 'mean' has no prior"):
        bl.fit(0, groups, {"y": GROUP_MEANS}, bl.NUTS(), progress=False)
