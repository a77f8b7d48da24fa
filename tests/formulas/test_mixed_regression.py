"""Regressions with effects of groups: the fit remembers its formula, and agrees with quadrature."""

from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import special, stats

import bayeslab as bl
from bayeslab import datasets
from bayeslab.datasets import classification_data, regression_data
from bayeslab.models import linear_regression, logistic_regression, mixed_glm, mixed_regression

RNG = np.random.default_rng(5)
GROUPS = np.repeat(["ann", "bob", "eve", "joe"], 6)
TABLE = pd.DataFrame({"x": RNG.normal(3.0, 2.0, 24), "person": GROUPS})
TABLE["y"] = 1.0 + 0.5 * TABLE["x"] + np.repeat([1.0, -1.0, 0.3, 0.0], 6) + 0.4 * RNG.normal(size=24)
TABLE["won"] = TABLE["y"] > TABLE["y"].median()


def draws(tree: Any, name: str, group: str = "posterior") -> np.ndarray:
    return tree[group][name].stack(sample=("chain", "draw")).transpose("sample", ...).values


def assert_mean(tree: Any, name: str, expected: Any) -> None:
    """Within five Monte Carlo standard errors."""
    error = az.mcse(tree["posterior"].dataset[[name]])[name].values
    np.testing.assert_array_less(np.abs(draws(tree, name).mean(0) - expected), 5 * error)


def test_predict_takes_a_table_with_the_columns_of_the_formula(tmp_path: Path) -> None:
    data = regression_data(TABLE, "y ~ poly(x, 2) + C(person)")
    tree = bl.fit(0, linear_regression.model, data, bl.Exact(500), progress=False)
    tree.to_netcdf(tmp_path / "fit.nc")
    with xr.open_datatree(tmp_path / "fit.nc") as loaded:
        new = TABLE.iloc[[3, 20]].drop(columns=["y", "won"])
        predicted = bl.predict(1, linear_regression.model, new, loaded)["predictions"]
    expected = draws(tree, "w") @ data["x"].values[[3, 20]].T
    spread = draws(tree, "tau") ** -0.5
    error = np.sqrt((expected.var(0) + (spread**2).mean()) / 500)
    found = predicted["y"].stack(sample=("chain", "draw")).values.mean(1)
    np.testing.assert_array_less(np.abs(found - expected.mean(0)), 5 * error)
    assert predicted["row"].values.tolist() == [3, 20]
    same = bl.predict(1, linear_regression.model, TABLE, tree)
    assert "posterior_predictive" in same.children
    for wrong, words in [
        ({"person": "jo"}, "unknown level 'jo' in row 0; did you mean 'joe'"),
        ({"x": np.nan}, "missing"),
    ]:
        with pytest.raises(ValueError, match=words):
            bl.predict(1, linear_regression.model, TABLE.assign(**wrong), tree)


def test_probabilities_of_classes_for_a_table() -> None:
    data = classification_data(TABLE, "won ~ x")
    tree = bl.fit(0, logistic_regression.model, data, bl.Laplace(num_samples=200), progress=False)
    predicted = bl.predict(1, logistic_regression.model, TABLE[["x"]].iloc[:3], tree)
    assert predicted["predictions"]["y"].shape == (1, 200, 3)


@pytest.mark.slow
def test_groups_keep_their_effects_and_new_ones_are_drawn() -> None:
    data = regression_data(TABLE, "y ~ x + (1 + x | person)")
    tree = bl.fit(0, mixed_regression.model, data, bl.SVI(num_steps=50, num_samples=400), progress=False)
    posterior = tree["posterior"].dataset
    assert posterior["person_effect"].dims == ("chain", "draw", "person", "person_term")
    assert posterior["person_correlation"].dims == ("chain", "draw", "person_term", "person_term_")
    assert posterior["person"].values.tolist() == ["ann", "bob", "eve", "joe"]
    new = TABLE.iloc[:3].assign(person=["zoe", "joe", "zoe"])
    predicted = bl.predict(1, mixed_regression.model, new.drop(columns="y"), tree)["predictions"]
    assert predicted.attrs["new_groups"] == ["zoe"]
    effect = (
        predicted["person_effect"].dataset
        if hasattr(predicted["person_effect"], "dataset")
        else predicted["person_effect"]
    )
    np.testing.assert_array_equal(effect.sel(person="joe"), posterior["person_effect"].sel(person="joe"))
    ratio = effect.sel(person="zoe").values[0] / posterior["person_sd"].values[0]
    assert stats.kstest(ratio[:, 0], "norm").pvalue > 1e-3
    assert stats.kstest(ratio[:, 1], "norm").pvalue > 1e-3


@pytest.mark.slow
def test_categories_in_a_dict_have_the_codes_of_the_fit() -> None:
    """Also where nobody wrote a formula."""
    arrays = {"x": np.ones((4, 1)), "num_groups": {"person": 2}, "design": {"person": np.ones((4, 1))}}
    data = arrays | {
        "group": {"person": pd.Categorical(["bob", "eve", "bob", "eve"])},
        "y": np.array([-2.0, 2.0, -2.1, 1.9]),
    }
    tree = bl.fit(0, mixed_regression.model, data, bl.SVI(num_steps=50, num_samples=50), progress=False)
    other = arrays | {"group": {"person": pd.Categorical(["eve"] * 4)}, "num_groups": {"person": 2}}
    both = arrays | {"group": {"person": pd.Categorical(["eve"] * 4, categories=["bob", "eve"])}}
    first, second = (bl.predict(1, mixed_regression.model, one, tree)["predictions"]["y"] for one in (other, both))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_the_posterior_is_that_of_quadrature() -> None:
    """Given both scales all is Normal: their posterior is a table, and means of coefficients are averages over it."""
    data = regression_data(TABLE, "y ~ x + (1 | person)")
    tree = bl.fit(0, mixed_regression.model, data, progress=False)
    assert "collapse=('w', 'person_effect')" in tree.attrs["settings"]
    x, y = data["x"].values, data["y"].values
    z = (GROUPS[:, None] == np.unique(GROUPS)).astype(float)
    grid = np.linspace(0.02, 2.5, 125)
    log_density, means = np.zeros((2, 125, 125)), np.zeros((125, 125, 2))
    for i, sigma in enumerate(grid):
        for j, sd in enumerate(grid):
            covariance = 2.5**2 * x @ x.T + sd**2 * z @ z.T + sigma**2 * np.eye(24)
            log_density[0, i, j] = stats.multivariate_normal(np.zeros(24), covariance).logpdf(y)
            log_density[1, i, j] = stats.halfnorm.logpdf([sigma, sd]).sum()
            means[i, j] = 2.5**2 * x.T @ np.linalg.solve(covariance, y)
    weight = np.exp(log_density.sum(0) - log_density.sum(0).max())
    weight /= weight.sum()
    assert_mean(tree, "sigma", grid @ weight.sum(1))
    assert_mean(tree, "person_sd", grid @ weight.sum(0))
    assert_mean(tree, "w", np.tensordot(weight, means))


@pytest.mark.slow
def test_classes_in_groups_are_those_of_quadrature() -> None:
    """The effect of every group is integrated out by Gauss and Hermite, intercept and spread on a grid."""
    data = classification_data(TABLE, "won ~ 1 + (1 | person)")
    tree = bl.fit(0, mixed_glm.model, data, progress=False)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    w, sd = np.meshgrid(np.linspace(-9, 9, 181), np.linspace(0.01, 4.5, 150), indexing="ij")
    log_density = stats.norm(0, 2.5).logpdf(w) + stats.halfnorm.logpdf(sd)
    for name in np.unique(GROUPS):
        wins, size = int(TABLE["won"][name == GROUPS].sum()), 6
        p = special.expit(w[..., None] + sd[..., None] * nodes)
        log_density = log_density + np.log((p**wins * (1 - p) ** (size - wins)) @ weights)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    assert_mean(tree, "w", (w * weight).sum())
    assert_mean(tree, "person_sd", (sd * weight).sum())


def effects_at_random(data: Any) -> tuple[xr.DataTree, np.ndarray]:
    """A posterior of one draw, and the predictors (row,) of its coefficients and effects as the data are coded."""
    rng = np.random.default_rng(1)
    w, effect = rng.normal(size=data["x"].shape[1]), rng.normal(size=(4, data["design"]["person"].shape[1]))
    posterior = {
        "w": (("chain", "draw", "feature"), w[None, None]),
        "person_effect": (("chain", "draw", "person", "person_term"), effect[None, None]),
    }
    names = {"feature": data["x"]["feature"].values, "person_term": data["design"]["person"]["person_term"].values}
    codes = data["group"]["person"].cat.codes.to_numpy()
    predictor = data["x"].values @ w + (data["design"]["person"].values * effect[codes]).sum(1)
    return xr.DataTree.from_dict({"/posterior": xr.Dataset(posterior, names)}), predictor


@pytest.mark.parametrize(
    ("formula", "has_intercept"), [("x + (1 + x | person)", True), ("x + (0 + x | person)", False)]
)
def test_effects_of_groups_in_units_of_the_table(formula: str, has_intercept: bool) -> None:
    """They predict for numbers as they stand in the table what the coded ones predict for coded columns."""
    numbers, classes = regression_data(TABLE, f"y ~ {formula}"), classification_data(TABLE, f"won ~ {formula}")
    units = [numbers["x"][name].item() for name in ("y_centre", "y_scale")]
    for data, (centre, scale) in [(numbers, units), (classes, (0.0, 1.0))]:
        tree, predictor = effects_at_random(data)
        found = datasets.original_scale(tree, data).isel(chain=0, draw=0)
        x = TABLE["x"].to_numpy()
        of_groups = np.stack([np.ones(24), x], 1) if has_intercept else x[:, None]
        effect = found["person_effect"].values[data["group"]["person"].cat.codes]
        raw = found["w"].values @ np.stack([np.ones(24), x]) + (of_groups * effect).sum(1)
        np.testing.assert_allclose(raw, centre + scale * predictor, rtol=1e-10)


def test_effects_of_other_terms_have_no_units() -> None:
    tree, _ = effects_at_random(regression_data(TABLE, "y ~ x + (1 + x | person)"))
    with pytest.raises(ValueError, match="the terms of person_effect are not those of data"):
        datasets.original_scale(tree, regression_data(TABLE, "y ~ x + (1 | person)"))
