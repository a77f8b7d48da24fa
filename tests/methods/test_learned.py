"""`numpyro.param` in programs: a point is learned, and methods that draw all sites say no."""

from typing import Any

import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries import stax
from numpyro.contrib.module import flax_module, nnx_module, random_flax_module
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


def flax_line(x: Any, y: Any) -> None:
    net = flax_module("net", nn.Dense(1), input_shape=(2,))
    numpyro.sample("y", dist.Normal(net(x)[:, 0], 0.5), obs=y)


def test_a_module_alone_is_fitted_by_least_squares() -> None:
    """Its parameters start in single precision, as flax has them, and nothing else is unknown."""
    x = RANDOM.normal(size=(20, 2))
    y = x[:, 0] + RANDOM.normal(size=20)
    tree = bl.fit(0, flax_line, {"x": x, "y": y}, progress=False)
    least_squares = np.linalg.lstsq(np.column_stack([np.ones(20), x]), y, rcond=None)[0]  # the bias comes first
    np.testing.assert_allclose(tree["posterior"]["net$params"].squeeze(), least_squares, rtol=1e-6)


class Line(nnx.Module):
    def __init__(self) -> None:
        self.linear = nnx.Linear(2, 1, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.linear(x)[:, 0]


def nnx_line(x: Any, y: Any) -> None:
    net = nnx_module("net", Line())
    numpyro.sample("y", dist.Normal(net(x), 0.5), obs=y)


def test_a_module_of_nnx_is_fitted_too_and_predicts_rows_without_values() -> None:
    x = RANDOM.normal(size=(20, 2))
    y = x[:, 0] + RANDOM.normal(size=20)
    tree = bl.fit(0, nnx_line, {"x": x, "y": y}, progress=False)
    design = np.column_stack([np.ones(20), x])
    least_squares = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(tree["posterior"]["net$params"].squeeze(), least_squares, rtol=1e-6)
    new = bl.predict(1, nnx_line, {"x": x[:3], "y": np.full(3, np.nan)}, tree)["predictions"]["y"]
    np.testing.assert_allclose(new.squeeze(), design[:3] @ least_squares, atol=4 * 0.5)  # one draw of each


def test_methods_that_draw_refuse() -> None:
    with pytest.raises(ValueError, match=r"NUTS draws all sites, but numpyro.param 'mean' has no prior"):
        bl.fit(0, groups, {"y": GROUP_MEANS}, bl.NUTS(), progress=False)


def random_network(x: Any) -> None:
    """A linear module of flax whose weights have a prior: a regression with a slope and an intercept."""
    linen = pytest.importorskip("flax.linen")
    prior = {"kernel": dist.Normal(0.0, 2.0), "bias": dist.Normal(0.0, 1.0)}
    net = random_flax_module("net", linen.Dense(1), prior, input_shape=(1,))
    with numpyro.plate("a/row", len(x)):
        numpyro.sample("y", dist.Normal(net(x)[:, 0], 0.5))


def test_modules_are_given_priors_by_those_of_numpyro() -> None:
    with pytest.raises(ValueError, match=r"random_flax_module and the like of numpyro\.contrib"):
        bl.fit(0, flax_line, {"x": np.ones((3, 2)), "y": np.ones(3)}, bl.NUTS(), progress=False)


def test_a_module_with_priors_on_all_weights_learns_no_parameter() -> None:
    """Its posterior is Normal, in closed form; names have dots in place of slashes, and new rows are predicted."""
    x = np.linspace(-1.0, 2.0, 8)[:, None]
    y = 1.5 * x[:, 0] - 0.4 + 0.5 * RANDOM.normal(size=8)
    tree = bl.fit(0, random_network, {"x": x, "y": y}, progress=False)
    assert tree.attrs["method"] == "Exact"
    assert set(tree["posterior"]) == {"net.kernel", "net.bias"}
    assert tree["observed_data"]["y"].dims == ("a.row",)
    design = np.hstack([x, np.ones((8, 1))])
    precision = design.T @ design / 0.25 + np.diag([0.25, 1.0])
    mean, sd = np.linalg.solve(precision, design.T @ y / 0.25), np.sqrt(np.diag(np.linalg.inv(precision)))
    for name, right, error in zip(("net.kernel", "net.bias"), mean, sd, strict=True):
        assert abs(float(tree["posterior"][name].mean()) - right) < 5 * error / np.sqrt(1000)
    new = bl.predict(1, random_network, {"x": np.array([[3.0]])}, tree)
    assert abs(float(new["predictions"]["y"].mean()) - mean @ [3.0, 1.0]) < 0.2
