"""Models with neural networks: autoencoders against the best linear one, exact last layers, bands of functions."""

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpy.typing import NDArray
from scipy import stats

import bayeslab as bl
from bayeslab.models import bayesian_neural_network, vae
from bayeslab.monte_carlo import importance_weighted_bounds

Array = NDArray[Any]

NOISE = 0.5


@cache
def rows() -> Array:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(5, 2))
    return rng.normal(size=(100, 2)) @ w.T + NOISE * rng.normal(size=(100, 5)) + 1


def data_of(y: Array, hidden: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    sizes = {"num_rows": len(y), "num_features": y.shape[1], "num_factors": 2}
    return {**sizes, "hidden": hidden, "noise": NOISE, "y": y, **more}


FALLING = optax.adam(optax.cosine_decay_schedule(0.1, 6000))
LINEAR = bl.SVI(vae.guide, FALLING, 6000, num_particles=1, num_samples=400)
EARLY = replace(LINEAR, num_steps=1000)
"""Stops when the guide is not yet near the posterior, so that there is a gap to close."""


@cache
def linear_fit(method: bl.SVI = LINEAR) -> Any:
    return bl.fit(0, vae.model, data_of(rows()), method, progress=False)


def decoder(tree: Any) -> tuple[Array, Array]:
    """The loadings (feature, factor) and the mean (feature,) of a fitted linear decoder: its flat bias and kernel."""
    flat = tree["posterior"]["decoder$params"].values[0, 0]
    return flat[5:].reshape(2, 5).T, flat[:5]


def evidences(tree: Any, y: Array) -> Array:
    w, mean = decoder(tree)
    return stats.multivariate_normal(mean, w @ w.T + NOISE**2 * np.eye(5)).logpdf(y)


def best(y: Array) -> tuple[Array, Array, Array]:
    with jax.enable_x64(True):
        w, mean, log_likelihood = vae.linear_maximum(jnp.asarray(y), 2, NOISE)
    return np.asarray(w), np.asarray(mean), np.asarray(log_likelihood)


def test_linear_decoders_end_at_the_maximum_of_tipping_and_bishop() -> None:
    most = best(rows())[2].sum()
    tree = linear_fit()
    assert most - 0.5 < evidences(tree, rows()).sum() <= most + 1e-6
    assert most - 1.0 < tree.attrs["elbo"] < most + 5 * tree.attrs["elbo_se"]


def test_the_maximum_is_a_maximum() -> None:
    """Of the likelihood: a little more or less of a loading, and of the mean, is less likely."""
    w, mean, log_likelihood = best(rows())
    for scale, shift in ((1.01, 0.0), (0.99, 0.0), (1.0, 0.02)):
        other = stats.multivariate_normal(mean + shift, scale**2 * w @ w.T + NOISE**2 * np.eye(5))
        assert other.logpdf(rows()).sum() < log_likelihood.sum()
    none = best(0.1 * rows())[0]  # all variances are below that of the noise
    np.testing.assert_array_equal(none, 0.0)


def test_weighted_bounds_grow_to_the_evidence_of_every_row() -> None:
    tree = linear_fit(EARLY)
    found = importance_weighted_bounds(1, vae.model, data_of(rows()), tree, EARLY, (1, 10, 100))
    exact, bound, error = evidences(tree, rows()), found["bound"].values, found["bound_se"].values
    assert abs(bound[0] - tree.attrs["elbo"]) < 5 * np.hypot(error[0], tree.attrs["elbo_se"])
    gap = exact.sum() - bound
    assert gap[0] > 2.0
    assert gap[1] < 0.5 * gap[0]
    assert -5 * error[2] < gap[2] < 0.5 * gap[1] + 5 * error[2]
    np.testing.assert_allclose(found["element_bound"].sel(num_samples=100), exact, atol=0.2)


@pytest.mark.slow
def test_a_guide_with_parameters_of_rows_has_one_bound_of_all() -> None:
    method = bl.SVI(num_steps=10, num_samples=2)
    tree = bl.fit(0, vae.model, data_of(rows()), method, progress=False)
    total = importance_weighted_bounds(0, vae.model, data_of(rows()), tree, method, (1, 2))
    assert "element_bound" not in total
    assert total["bound"][0] < total["bound"][1]
    with pytest.raises(ValueError, match="the guide of this result has parameters of other shapes"):
        importance_weighted_bounds(0, vae.model, data_of(rows()[:9]), tree, method)


@pytest.mark.parametrize(
    ("data", "method", "num_samples", "words"),
    [
        (data_of(rows()[:, :4]), EARLY, (1,), "the guide of this result has parameters of other shapes"),
        (data_of(rows()), bl.MAP(), (1,), "a guide that SVI has fitted, not of SVI and MAP"),
        (data_of(rows()), EARLY, (), r"num_samples is \[\]; expected numbers of draws from 1"),
    ],
)
def test_bounds_that_cannot_be_are_refused(data: Any, method: Any, num_samples: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        importance_weighted_bounds(0, vae.model, data, linear_fit(EARLY), method, num_samples)


def test_weighted_bounds_of_rows_that_were_held_out() -> None:
    rng = np.random.default_rng(5)
    new = rows()[:30] + 0.1 * rng.normal(size=(30, 5))
    found = importance_weighted_bounds(1, vae.model, data_of(new), linear_fit(), LINEAR, (1, 20))
    np.testing.assert_allclose(found["element_bound"].sel(num_samples=20), evidences(linear_fit(), new), atol=0.4)


def test_missing_pixels_are_those_of_the_conditional_normal() -> None:
    """Given the decoder, NUTS integrates over the factors of rows of which a part is seen."""
    y = rows()[:3].copy()
    y[:, 3:] = np.nan
    tree = linear_fit()
    given = {"decoder$params": tree["posterior"]["decoder$params"].values[0, 0]}
    fitted = bl.fit(0, vae.model, data_of(y) | given, bl.NUTS(num_samples=1000, num_chains=2), progress=False)
    w, mean = decoder(tree)
    seen = w[:3]
    z = np.linalg.solve(np.eye(2) + seen.T @ seen / NOISE**2, seen.T @ (y[:, :3] - mean[:3]).T / NOISE**2).T
    found = fitted["posterior"]["z"].mean(["chain", "draw"])
    np.testing.assert_allclose(found, z, atol=0.1)
    filled = bl.predict(0, vae.model, data_of(y) | given, fitted)["posterior_predictive"]
    assert list(filled.data_vars) == ["y"]
    np.testing.assert_allclose(filled["y"].mean(["chain", "draw"]), z @ w.T + mean, atol=0.2)


def test_encoders_read_zero_for_missing_pixels() -> None:
    """A guide is given NaN there; one that does not replace it is told so."""
    y = np.array(vae.example()["y"], float)
    y[1, 2], y[3] = np.nan, np.nan
    data = vae.example() | {"y": y}

    def bound_of(guide: Any) -> float:
        method = bl.SVI(guide, num_steps=20, num_samples=20)
        return float(bl.fit(0, vae.model, data, method, progress=False).attrs["elbo"])

    def replacing(y: Any, num_factors: int, hidden: Any) -> None:
        vae.guide(jnp.where(jnp.isnan(y), 0.0, y), num_factors, hidden)

    def unaware(y: Any, num_factors: int) -> None:
        loadings = numpyro.param("loadings", jnp.ones((y.shape[1], num_factors)))
        with numpyro.plate("row", len(y)):
            numpyro.sample("z", dist.Normal(y @ loadings, 1.0).to_event(1))

    assert np.isfinite(bound_of(vae.guide))
    assert bound_of(vae.guide) == bound_of(replacing)
    with pytest.raises(ValueError, match="given NaN where entries of 'y' are missing, and has to replace them"):
        bound_of(unaware)


def test_models_without_flax_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flax", None)
    with pytest.raises(ImportError, match=r'pip install "bayeslab\[deep\]"'):
        bl.bind(vae.model, data_of(rows()))


def test_more_factors_than_features_are_refused() -> None:
    with pytest.raises(ValueError, match="num_factors is 2, but 1 to 1"):
        bl.bind(vae.model, data_of(rows()[:, :1]))


WAVE = bayesian_neural_network.example()


def test_one_input_is_a_column() -> None:
    with pytest.raises(ValueError, match=r"x has shape \(8,\), but needs axes \(row, input\)"):
        bl.bind(bayesian_neural_network.model, WAVE | {"x": WAVE["x"][:, 0]})


def test_the_last_layer_is_exact_given_its_features() -> None:
    """Its evidence is that of linear regression on the features, and its draws are of that Normal."""
    rng = np.random.default_rng(2)
    known = {"w_1": rng.normal(size=(1, 2)), "b_1": rng.normal(size=2)}
    tree = bl.fit(0, bayesian_neural_network.model, WAVE | known, bl.Exact(2000), progress=False)
    features = np.tanh(WAVE["x"] @ known["w_1"] + known["b_1"])
    covariance = features @ features.T / 2 + 1.0 + 0.01 * np.eye(8)
    expected = stats.multivariate_normal(np.zeros(8), covariance).logpdf(WAVE["y"])
    expected += stats.norm.logpdf(known["w_1"]).sum() + stats.norm.logpdf(known["b_1"]).sum()
    np.testing.assert_allclose(tree.attrs["log_evidence"], expected, rtol=1e-10)
    kernel = covariance - 0.01 * np.eye(8)
    mean = kernel @ np.linalg.solve(covariance, WAVE["y"])
    np.testing.assert_allclose(tree["posterior"]["f"].mean(["chain", "draw"]), mean, atol=0.02)


def test_the_mode_is_weight_decay() -> None:
    """The gradient of the loss of n rows with lambda = sigma^2 / (n scale^2) is zero there: of the last bias."""
    tree = bl.fit(0, bayesian_neural_network.model, WAVE, bl.MAP(), progress=False)["posterior"]
    residual = tree["f"].values[0, 0] - WAVE["y"]
    np.testing.assert_allclose(residual.sum(), -0.01 * float(tree["b_2"].squeeze()), atol=1e-5)


def test_functions_of_a_wide_network_are_those_of_a_gaussian_process() -> None:
    """Neal (1996): the covariance of f in the prior is that of its features, whatever the width."""
    x = np.array([[-1.0], [0.2], [1.5]])
    prior = bl.simulate(0, bayesian_neural_network.model, {"x": x, "hidden": (50,)}, num_samples=4000)
    f = prior["prior"]["f"].values.reshape(-1, 3)
    rng = np.random.default_rng(1)
    features = np.tanh(x[:, :1] * rng.normal(size=200_000) + rng.normal(size=200_000))
    expected = 1.0 + features @ features.T / features.shape[1]
    np.testing.assert_allclose(np.cov(f.T), expected, atol=6 * expected.max() * np.sqrt(2 / 4000))
    assert abs(stats.kurtosis(f[:, 2])) < 0.5


def test_bands_are_wider_away_from_the_data() -> None:
    method = bl.NUTS(num_warmup=300, num_samples=200, num_chains=2)
    tree = bl.fit(0, bayesian_neural_network.model, WAVE, method, progress=False)
    new = {"x": np.array([[-4.0], [0.0], [4.0]])}
    f = bl.predict(0, bayesian_neural_network.model, new, tree)["predictions"]["f"].std(["chain", "draw"])
    assert float(f[1]) < 0.25 * float(min(f[0], f[2]))
