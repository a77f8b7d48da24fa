"""simulate() and predict(): the prior, replications, new inputs, log likelihoods."""

from typing import Any

import arviz_base
import arviz_stats as azs
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from numpyro.distributions import constraints
from scipy import stats

import bayeslab as bl
from bayeslab.datasets import diabetes, new_rows, regression_data
from bayeslab.methods.stated import Stated
from bayeslab.models import beta_binomial, linear_regression, linear_regression_known_noise, normal_wishart

KNOWN = linear_regression_known_noise


def exact(lecture: Any, data: Any, num_samples: int = 4000) -> xr.DataTree:
    return bl.fit(1, lecture.model, data, Stated(lecture.posterior, num_samples), progress=False)


def test_prior_draws_have_the_moments_of_the_prior() -> None:
    tree = bl.simulate(
        0, beta_binomial.model, {"trials": np.full(3, 10), "alpha": 2.0, "beta": 3.0, "y": [0, 0, 0]}, 4000
    )
    prior, data = tree["prior"]["p"].values.ravel(), tree["prior_predictive"]["y"].values[0, :, 0]
    assert stats.kstest(prior, stats.beta(2, 3).cdf).pvalue > 1e-4
    expected = stats.betabinom(10, 2, 3)
    assert abs(data.mean() - expected.mean()) < 5 * expected.std() / np.sqrt(len(data))


def test_sites_without_values_are_simulated_as_prior() -> None:
    tree = bl.simulate(0, beta_binomial.model, {"trials": np.full(3, 10)}, 10)
    assert set(tree["prior"].data_vars) == {"p", "y"}
    assert "prior_predictive" not in tree.children


def test_log_likelihood_is_the_density_of_every_row() -> None:
    data = KNOWN.example()
    tree = bl.predict(0, KNOWN.model, data, exact(KNOWN, data, 50))
    mean = tree["posterior"]["w"].values @ data["x"].T
    sigma = float(tree["constant_data"]["sigma"])
    np.testing.assert_allclose(tree["log_likelihood"]["y"], stats.norm.logpdf(data["y"], mean, sigma), rtol=1e-10)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "row")


def test_psis_loo_is_the_closed_form() -> None:
    """Leave-one-out densities of a regression with known noise are Normal in closed form (lecture digest, T1.7)."""
    data = KNOWN.example()
    tree = bl.predict(0, KNOWN.model, data, exact(KNOWN, data, 20_000))
    loo = azs.loo(arviz_base.convert_to_datatree(tree), pointwise=True)
    tau0, sigma = float(tree["constant_data"]["tau0"]), float(tree["constant_data"]["sigma"])
    covariance = sigma**2 * np.eye(len(data["y"])) + tau0**2 * data["x"] @ data["x"].T
    inverse = np.linalg.inv(covariance)
    variance = 1 / np.diag(inverse)
    closed = stats.norm.logpdf(data["y"], data["y"] - inverse @ data["y"] * variance, np.sqrt(variance))
    np.testing.assert_allclose(loo.elpd_i.values, closed, atol=0.05)


def test_replications_have_the_predictive_law() -> None:
    data = KNOWN.example()
    tree = bl.predict(2, KNOWN.model, data, exact(KNOWN, data))
    _check_predictive(tree["posterior_predictive"]["y"].values[0], tree, data["x"])


def test_new_rows_have_the_predictive_law() -> None:
    data, new = KNOWN.example(), np.array([[1.0, 3.0], [1.0, -2.0], [1.0, 0.0]])
    fitted = exact(KNOWN, data)
    tree = bl.predict(3, KNOWN.model, {"x": new}, fitted)
    _check_predictive(tree["predictions"]["y"].values[0], fitted, new)
    np.testing.assert_array_equal(tree["predictions_constant_data"]["x"], new)
    assert "posterior_predictive" not in tree.children
    assert set(fitted.children) == {"posterior", "sample_stats", "observed_data", "constant_data", "sampler_state"}


def _check_predictive(draws: np.ndarray, tree: xr.DataTree, x: np.ndarray) -> None:
    w, sigma = tree["posterior"]["w"].values[0], float(tree["constant_data"]["sigma"])
    mean, variance = x @ w.mean(0), sigma**2 + np.einsum("ij,jk,ik->i", x, np.cov(w.T), x)
    scores = (draws - mean) / np.sqrt(variance)
    for column in scores.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4


def test_held_out_responses_get_their_log_likelihood() -> None:
    data = KNOWN.example()
    held_out = {"x": np.array([[1.0, 0.5]]), "y": np.array([0.3])}
    tree = bl.predict(0, KNOWN.model, held_out, exact(KNOWN, data, 50))
    mean = tree["posterior"]["w"].values @ held_out["x"].T
    expected = stats.norm.logpdf(0.3, mean, float(tree["constant_data"]["sigma"]))
    np.testing.assert_allclose(tree["predictions_log_likelihood"]["y"], expected, rtol=1e-10)


def test_missing_entries_are_predicted_and_have_no_likelihood() -> None:
    data = linear_regression.example()
    gone = data | {"y": np.where(np.arange(10) < 2, np.nan, data["y"])}
    tree = bl.fit(0, linear_regression.model, gone, bl.NUTS(200, num_samples=500), progress=False)
    tree = bl.predict(1, linear_regression.model, gone, tree)
    assert np.isfinite(tree["posterior_predictive"]["y"]).all()
    np.testing.assert_array_equal(np.isnan(tree["log_likelihood"]["y"]).all(("chain", "draw")), np.arange(10) < 2)
    mean = (tree["posterior"]["w"] * data["x"][0]).sum("feature").mean()
    spread = tree["posterior_predictive"]["y"][..., 0]
    assert abs(spread.mean() - mean) < 5 * spread.std() / np.sqrt(500)


@pytest.mark.slow
def test_a_partly_missing_event_has_the_likelihood_of_its_rest() -> None:
    data = normal_wishart.example()
    y = data["y"].copy()
    y[2, 1] = np.nan
    tree = bl.fit(0, normal_wishart.model, data | {"y": y}, bl.Laplace(num_samples=400), progress=False)
    tree = bl.predict(1, normal_wishart.model, data | {"y": y}, tree)
    covariance = np.linalg.inv(tree["posterior"]["precision"].values)
    expected = stats.norm.logpdf(y[2, 0], tree["posterior"]["mu"].values[..., 0], np.sqrt(covariance[..., 0, 0]))
    np.testing.assert_allclose(tree["log_likelihood"]["y"][..., 2], expected, rtol=1e-9)
    assert np.isfinite(tree["posterior_predictive"]["y"]).all()


def random_effects(group: Any, n: int) -> None:
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("group", 3):
        a = numpyro.sample("a", dist.Normal(0.0, spread))
    with numpyro.plate("row", n):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        numpyro.deterministic("mean", a[group] + effect)
        numpyro.sample("y", dist.Normal(a[group] + effect, 0.1))


def test_latents_of_rows_are_drawn_anew_for_new_rows_of_any_number() -> None:
    """Also where there happen to be as many new rows as old ones."""
    old = {"group": np.array([0, 1, 2, 0]), "n": 4, "y": np.array([5.0, 0.0, -5.0, 5.0])}
    fitted = bl.fit(0, random_effects, old, bl.NUTS(300, num_samples=300), progress=False)
    for n in (4, 2):
        tree = bl.predict(1, random_effects, {"group": np.zeros(n, int), "n": n}, fitted)
        effect = tree["predictions"]["effect"]
        assert effect.shape[-1] == n
        assert abs(effect.mean()) < 0.1
        assert 0.9 < effect.std() < 1.1
        group = fitted["posterior"]["a"][..., 0].values
        np.testing.assert_allclose(tree["predictions"]["mean"][..., 0] - effect[..., 0], group, atol=1e-9)


def measured_groups(group: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", 3):
        b = numpyro.sample("b", dist.Normal(0.0, 5.0))
        numpyro.sample("z", dist.Normal(b, 1.0))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(mu + b[group], 0.1))


def test_effects_of_groups_are_those_of_the_fit_where_their_own_data_are() -> None:
    """Others are given data of their own, and have the spread of the prior, 5, without."""
    z = np.array([-4.0, np.nan, 4.0])
    fitted = bl.fit(
        0, measured_groups, {"group": np.arange(3), "y": z[[0, 2, 2]], "z": z}, bl.Exact(500), progress=False
    )
    known = bl.predict(1, measured_groups, {"group": np.array([2, 0]), "z": z}, fitted)["predictions"]["y"].values
    mean = fitted["posterior"]["mu"].values[..., None] + fitted["posterior"]["b"].values[..., [2, 0]]
    scores = (known - mean) / 0.1
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-4
    weight = 25 / 26
    for other, mean, sd in (({"z": z + 1.0}, -3.0 * weight, weight**0.5), ({}, 0.0, 5.0)):
        anew = bl.predict(1, measured_groups, {"group": np.array([2, 0]), **other}, fitted)["predictions"]
        assert stats.kstest((anew["b"].values[..., 0].ravel() - mean) / sd, "norm").pvalue > 1e-4


def effects(order: Any) -> None:
    s = numpyro.sample("s", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(order)):
        th = numpyro.sample("th", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(s + th[order], 1.0))


def row_effects(n: int) -> None:
    s = numpyro.sample("s", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n):
        th = numpyro.sample("th", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(s + th, 1.0))


def rates(shift: int) -> None:
    s = numpyro.sample("s", dist.Gamma(2.0, 2.0))
    with numpyro.plate("row", 4):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Poisson(s * jnp.roll(rate, shift)))


def walk(n: int) -> None:
    s = numpyro.sample("s", dist.Gamma(2.0, 2.0))
    with numpyro.plate("row", n):
        e = numpyro.sample("e", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(jnp.cumsum(e), 1 / jnp.sqrt(s)))


def grid(n: int) -> None:
    """Effects of rows with three responses each, y, and one of their own, x."""
    s = numpyro.sample("s", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n, dim=-2):
        th = numpyro.sample("th", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(s + th, 1.0))
        numpyro.sample("y", dist.Normal(th, jnp.ones((n, 3))))


ROWS = np.array([1.0, 2.0, -1.0, 0.5])


def row_likelihood(program: Any, data: Any, method: Any = None) -> tuple[dict[str, np.ndarray], Any]:
    """Draws of a posterior without chains, with an axis for rows, and the log likelihood."""
    tree = bl.fit(0, program, data, method or bl.Exact(10), progress=False)
    tree = bl.predict(1, program, data, tree)
    draws = {str(name): drawn.values[0] for name, drawn in tree["posterior"].items()}
    draws["s"] = draws["s"][:, None]
    return draws, tree["log_likelihood"]


def test_coupled_effects_of_rows_are_given() -> None:
    """The evidence of a random walk is one number: there is no density of a row with its own step left out."""
    data, gibbs = {"n": 4, "y": ROWS}, bl.Gibbs(num_warmup=10, num_samples=20, num_chains=1)
    draws, found = row_likelihood(walk, data, gibbs)
    assert found.attrs["integrated_out"] == []
    expected = stats.norm.logpdf(ROWS, draws["e"].cumsum(-1), draws["s"] ** -0.5)
    np.testing.assert_allclose(found["y"].values[0], expected, rtol=1e-10)
    fitted = bl.fit(0, walk, data, gibbs, progress=False)
    new = bl.predict(1, walk, {"n": 2, "y": ROWS[:2]}, fitted)
    assert new["predictions"]["e"].shape == (1, 20, 2)
    assert "predictions_log_likelihood" not in new.children


@pytest.mark.parametrize("order", [[0, 0, 1, 2], [1, 2, 3, 3]])
def test_effects_that_rows_share_are_given(order: list[int]) -> None:
    draws, found = row_likelihood(effects, {"order": np.array(order), "y": ROWS})
    assert found.attrs["integrated_out"] == []
    np.testing.assert_allclose(found["y"].values[0], stats.norm.logpdf(ROWS, draws["s"] + draws["th"][:, order], 1.0))


@pytest.mark.parametrize("gap", [pytest.param(False, marks=pytest.mark.slow), True])
def test_effects_of_rows_are_integrated_out(gap: bool) -> None:
    y = np.where(np.arange(4) == 2, np.nan, ROWS) if gap else ROWS
    for program, data in ((row_effects, {"n": 4}), (effects, {"order": np.arange(4)})):
        draws, found = row_likelihood(program, data | {"y": y})
        assert found.attrs["integrated_out"] == ["th"]
        np.testing.assert_allclose(found["y"].values[0], stats.norm.logpdf(y, draws["s"], np.sqrt(2.0)))


@pytest.mark.slow
def test_rates_of_counts_are_integrated_out_wherever_they_are() -> None:
    """In closed form where they are in the place of their row, by quadrature in that of another."""
    y = np.array([1, 1, 0, 1])
    for shift, tolerance in ((4, 1e-9), (1, 1e-6)):
        gibbs = bl.Gibbs(num_warmup=10, num_samples=20, num_chains=1)
        draws, found = row_likelihood(rates, {"shift": shift, "y": y}, gibbs)
        assert found.attrs["integrated_out"] == ["rate"]
        expected = stats.nbinom.logpmf(y, 2.0, 1 / (1 + draws["s"]))
        np.testing.assert_allclose(found["y"].values[0], expected, rtol=tolerance)


def test_rows_of_several_numbers_are_integrated_out_together() -> None:
    rng = np.random.default_rng(0)
    data = {"n": 5, "x": rng.normal(size=(5, 1)), "y": rng.normal(size=(5, 3))}
    draws, found = row_likelihood(grid, data)
    assert found.attrs["integrated_out"] == ["th"]
    [density] = found.data_vars.values()
    both = np.concatenate([data["x"], data["y"]], axis=1)
    for at, s in zip(density.values[0], draws["s"][:, 0], strict=True):
        closed = stats.multivariate_normal([s, 0.0, 0.0, 0.0], np.eye(4) + 1.0)
        np.testing.assert_allclose(at.ravel(), closed.logpdf(both), rtol=1e-9)


def test_a_frame_goes_from_covariates_to_predictions() -> None:
    frame = diabetes()
    data = regression_data(frame, "progression")
    tree = exact(linear_regression, data, 20)
    assert list(tree["posterior"]["w"].coords["feature"].values[:3]) == ["intercept", "age", "sex"]
    predicted = bl.predict(0, linear_regression.model, new_rows(frame.iloc[:5], data), tree)
    assert predicted["predictions"]["y"].shape == (1, 20, 5)
    assert list(predicted["predictions"]["y"].coords["row"].values) == list(frame.index[:5])


def test_labels_of_pandas_name_the_rows() -> None:
    y = pd.Series([0.1, 0.4, -0.2], index=["ann", "bob", "eve"])
    tree = exact(linear_regression, {"x": np.ones((3, 1)), "y": y}, 5)
    assert list(tree["observed_data"]["y"].coords["row"].values) == ["ann", "bob", "eve"]


def flat(n: int) -> None:
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def test_refusals_say_why() -> None:
    data = KNOWN.example()
    fitted = exact(KNOWN, data, 5)
    with pytest.raises(ValueError, match=r"site 'w' has shape \(2,\) in the result, but \(3,\)"):
        bl.predict(0, KNOWN.model, {"x": np.ones((4, 3))}, fitted)
    with pytest.raises(ValueError, match="none of the latent sites"):
        bl.predict(0, flat, {"n": 3}, fitted)
    with pytest.raises(ValueError, match="no group posterior"):
        bl.predict(0, KNOWN.model, data, xr.DataTree())
    with pytest.raises(ValueError, match="simulate needs draws from the prior, but site 'mu' has an improper one"):
        bl.simulate(0, flat, {"n": 3})
    with pytest.raises(ValueError, match="num_samples must be positive"):
        bl.simulate(0, KNOWN.model, data, 0)


def test_a_program_with_obs_predicts_without_it() -> None:
    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(x)):
            numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)

    x, y = np.linspace(0, 1, 5), np.linspace(0, 2, 5)
    fitted = bl.fit(0, model, {"x": x, "y": y}, bl.NUTS(200, num_samples=200), progress=False)
    again = bl.predict(1, model, {"x": x, "y": y}, fitted)
    assert again["posterior_predictive"]["y"].shape == (4, 200, 5)
    new = bl.predict(1, model, {"x": jnp.arange(7.0)}, fitted)
    assert new["predictions"]["y"].shape == (4, 200, 7)


def test_an_argument_that_the_program_reshapes_for_the_site_of_its_name_keeps_its_shape() -> None:
    def model(x: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]))
        with numpyro.plate("row", len(x)):
            numpyro.sample("y", dist.Normal((x @ w)[:, None], 1.0).to_event(1), obs=None if y is None else y[:, None])

    x = np.random.default_rng(0).normal(size=(9, 2))
    tree = bl.fit(0, model, {"x": x, "y": x @ [1.0, 2.0]}, bl.Exact(num_samples=50), progress=False)
    assert tree["constant_data"]["y"].shape == (9,)
    assert tree["observed_data"]["y"].shape == (9, 1)
    assert bl.predict(1, model, {"x": x[:4]}, tree)["predictions"]["y"].shape == (1, 50, 4, 1)
