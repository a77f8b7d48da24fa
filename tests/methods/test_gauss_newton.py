"""Laplace with the Fisher information in place of the Hessian: the same in linear models, and never indefinite."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from xarray import DataTree

import bayeslab as bl
from bayeslab.distributions.fisher_information import information_coordinates
from bayeslab.models import bayesian_neural_network

RNG = np.random.default_rng(4)
X = RNG.normal(size=(12, 2))
Y = X @ np.array([1.0, -0.5]) + RNG.normal(size=12)
Y[3] = np.nan


def linear(x: Any) -> None:
    """Normal, binary, counted and labelled rows, linear in one vector by their natural parameters."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, 0.7))
        numpyro.sample("won", dist.Bernoulli(logits=x @ w))
        numpyro.sample("count", dist.Poisson(jnp.exp(0.5 * x @ w)))
        numpyro.sample("label", dist.Categorical(logits=jnp.stack([x @ w, -x @ w, 0 * x[:, 0]], axis=-1)))
    numpyro.sample("total", dist.Binomial(9, logits=w).to_event(1))


DATA = {
    "x": X,
    "y": Y,
    "won": (RNG.random(12) < 0.5).astype(int),
    "count": RNG.poisson(1.0, 12),
    "label": RNG.integers(0, 3, 12),
    "total": np.array([6, 2]),
}


def draws(model: Any, data: dict[str, Any], **settings: Any) -> DataTree:
    return bl.fit(0, model, data, bl.Laplace(num_samples=4, **settings), progress=False)


@pytest.mark.slow
def test_it_is_the_hessian_where_natural_parameters_are_linear() -> None:
    first, second = (draws(linear, DATA, gauss_newton=each)["posterior"]["w"].values for each in (False, True))
    np.testing.assert_allclose(first, second, rtol=1e-8)


LINE, COUNTS = np.linspace(-20.0, 20.0, 4001), np.arange(40.0)
SCORED = {
    "Normal": (lambda at: dist.Normal(at[0], jnp.exp(at[1])), LINE, 0.01),
    "Bernoulli": (lambda at: dist.Bernoulli(probs=1 / (1 + at[0] ** 2)), np.arange(2), 1.0),
    "Binomial": (lambda at: dist.Binomial(5, probs=1 / (1 + at[0] ** 2)), np.arange(6), 1.0),
    "Poisson": (lambda at: dist.Poisson(at[0] ** 2 + at[1]), COUNTS, 1.0),
    "Categorical": (lambda at: dist.Categorical(logits=jnp.array([at[0] ** 2, at[1], at[0]])), np.arange(3), 1.0),
}
"""Distributions with parameters written in any way; values, and the weights with which these are added up."""


@pytest.mark.parametrize(("fn", "values", "weight"), SCORED.values(), ids=SCORED)
def test_coordinates_have_the_expected_products_of_scores(fn: Any, values: Any, weight: float) -> None:
    with jax.enable_x64(True):
        at = jnp.array([0.8, 0.4])
        scores = jax.vmap(jax.grad(lambda at, y: fn(at).log_prob(y)), (None, 0))(at, jnp.asarray(values))
        expected = scores.T @ (scores * (weight * jnp.exp(fn(at).log_prob(jnp.asarray(values))))[:, None])
        jacobian = jax.jacobian(lambda at: information_coordinates(fn(at)))(at).reshape(-1, 2)
        np.testing.assert_allclose(jacobian.T @ jacobian, expected, atol=1e-8)


def test_a_network_far_from_its_mode_has_a_positive_definite_precision() -> None:
    """After three steps the Hessian is indefinite, so that the Normal of it does not exist."""
    data = bayesian_neural_network.example()
    tree = draws(bayesian_neural_network.model, data, gauss_newton=True, num_steps=3)
    assert np.isfinite(tree["posterior"]["w_1"]).all()
    assert np.isfinite(tree["sample_stats"]["log_q"]).all()
    assert "saddle" in tree.attrs["why_not_converged"]
    with pytest.raises(ValueError, match="a saddle"):
        draws(bayesian_neural_network.model, data, num_steps=3)


def test_observations_without_information_are_named() -> None:
    def heavy() -> None:
        w = numpyro.sample("w", dist.Normal())
        numpyro.sample("y", dist.StudentT(3.0, w).expand([4]).to_event(1))

    with pytest.raises(ValueError, match="'y' is StudentT"):
        draws(heavy, {"y": np.zeros(4)}, gauss_newton=True)


def test_sites_that_are_integrated_out_are_refused() -> None:
    def level() -> None:
        mu, tau = numpyro.sample("mu", dist.Normal()), numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, tau).expand([4]).to_event(1))

    with pytest.raises(ValueError, match="without sites integrated out"):
        draws(level, {"y": np.zeros(4)}, collapse=("mu",), gauss_newton=True)
