"""Categories and labels mean the same in all entries of a call, and in predictions what they meant at the fit."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import bayeslab as bl

RNG = np.random.default_rng(0)
CITIES = {"berlin": -5.0, "london": 0.0, "paris": 5.0}
EXACT = bl.Exact(400)


def matches(home: Any, away: Any, teams: int = 3) -> None:
    with numpyro.plate("team", teams):
        strength = numpyro.sample("strength", dist.Normal(0.0, 1.0))
    with numpyro.plate("match", len(home)):
        numpyro.sample("margin", dist.Normal(strength[home] - strength[away], 1.0))


MATCHES = pd.DataFrame({"home": ["bari", "celtic", "bari"], "away": ["ajax", "ajax", "celtic"], "margin": [1.0, 2, 0]})


def test_columns_with_other_codes_for_one_category_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"'bari' has code 0 in entry 'home', but 1 in .* same pandas.CategoricalDtype"
    ):
        bl.fit(0, matches, MATCHES.assign(away=["ajax", "bari", "bari"]), EXACT, progress=False)
    with pytest.raises(ValueError, match="'x' has code 0 in entry 'home', but 1 in entry 'away'"):
        bl.explain(matches, {"home": pd.Series(["x", "x"]), "away": pd.Series(["a", "x"]), "margin": [0.0, 1.0]})
    with pytest.raises(ValueError, match="'x' has code 0 in entry 'home', but 1 in entry 'away'"):
        bl.explain(partial(matches, pd.Series(["x", "x"])), {"away": pd.Series(["a", "x"]), "margin": [0.0, 1.0]})


def test_one_dtype_gives_the_posterior_of_the_teams() -> None:
    """A Normal posterior in closed form, with contrasts of teams as design."""
    teams = pd.CategoricalDtype(["ajax", "bari", "celtic"])
    frame = MATCHES.astype({"home": teams, "away": teams})
    tree = bl.fit(0, matches, frame, bl.Exact(20_000), progress=False)
    design = np.array([[-1.0, 1, 0], [-1, 0, 1], [0, 1, -1]])
    covariance = np.linalg.inv(np.eye(3) + design.T @ design)
    error = np.sqrt(np.diag(covariance) / 20_000)
    found = tree["posterior"]["strength"].values[0].mean(0)
    assert (abs(found - covariance @ design.T @ frame["margin"].to_numpy()) < 5 * error).all()


@pytest.mark.parametrize("away", [["u", "v"], ["x", "x"], ["x", "z"]])
def test_disjoint_equal_and_longer_levels_are_taken(away: list[str]) -> None:
    levels = [level for level in ["x", "y", "z", "u", "v"] if level in away] if "u" in away else ["x", "y", "z"]
    coded = pd.Series(pd.Categorical(away, categories=levels))
    bl.explain(matches, {"home": pd.Series(["x", "y"]), "away": coded, "margin": [0.0, 1.0]})


def by_city(g: Any, y: Any = None, groups: int = 3) -> None:
    with numpyro.plate("group", groups):
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
    with numpyro.plate("row", len(g)):
        numpyro.sample("y", dist.Normal(b[g], 0.1), obs=y)


def by_any_city(g: Any, y: Any = None) -> None:
    by_city(g, y, int(g.max()) + 1)


CITY = pd.Series(RNG.choice(list(CITIES), 30))


def reread(tree: xr.DataTree, folder: Path, form: str) -> xr.DataTree:
    if form == "netcdf":
        tree.to_netcdf(folder / "fit.nc", engine="h5netcdf")
        return xr.open_datatree(folder / "fit.nc", engine="h5netcdf")
    if form == "zarr":
        pytest.importorskip("zarr")
        tree.to_zarr(folder / "fit.zarr", consolidated=False)
        return xr.open_datatree(folder / "fit.zarr", engine="zarr", consolidated=False)
    return tree


@pytest.mark.parametrize("form", ["memory", "netcdf", "zarr"])
@pytest.mark.parametrize("program", [by_city, by_any_city])
def test_new_rows_have_the_codes_of_the_fit(program: Any, form: str, tmp_path: Path) -> None:
    data = {"g": CITY, "y": CITY.map(CITIES).to_numpy()}
    tree = reread(bl.fit(0, program, data, EXACT, progress=False), tmp_path, form)
    assert list(tree["constant_data"]["g"].attrs["categories"]) == list(CITIES)
    new = bl.predict(1, program, {"g": pd.Series(["paris", "london", "paris"])}, tree)
    np.testing.assert_allclose(new["predictions"]["y"].values.mean((0, 1)), [5.0, 0.0, 5.0], atol=0.2)
    assert list(new["predictions_constant_data"]["g"].attrs["categories"]) == list(CITIES)
    other = bl.predict(1, program, {"g": pd.Categorical(["paris", "rome"])}, tree)["predictions"]
    assert other.attrs["new_groups"] == ["rome"]
    assert other["y"].values[..., 0].std() < 0.3 < other["y"].values[..., 1].std()
    again = bl.predict(1, program, data, tree)
    assert "posterior_predictive" in again.children


def test_one_category_survives_a_file(tmp_path: Path) -> None:
    data = {"g": pd.Series(["paris"] * 5), "y": np.full(5, 5.0)}
    tree = reread(bl.fit(0, by_city, data, EXACT, progress=False), tmp_path, "netcdf")
    with pytest.raises(ValueError, match=r"'rome' at position \(0,\), which the fit does not know; it knows paris"):
        bl.predict(1, by_city, {"g": pd.Series(["rome"])}, tree)


def test_text_where_the_fit_had_numbers_is_refused() -> None:
    tree = bl.fit(0, by_city, {"g": np.arange(3), "y": np.arange(3.0)}, EXACT, progress=False)
    with pytest.raises(ValueError, match="entry 'g' holds categories, but the fit had numbers"):
        bl.predict(1, by_city, {"g": pd.Series(["paris", "rome"])}, tree)


def test_columns_of_new_data_get_one_code_by_the_fit() -> None:
    """New columns that share only some teams are no contradiction once they have the codes of the fit."""
    teams = pd.CategoricalDtype(["ajax", "bari", "celtic"])
    tree = bl.fit(0, matches, MATCHES.astype({"home": teams, "away": teams}), EXACT, progress=False)
    new = bl.predict(1, matches, {"home": pd.Series(["celtic"]), "away": pd.Series(["bari"])}, tree)
    np.testing.assert_array_equal(new["predictions_constant_data"]["home"], [2])
    np.testing.assert_array_equal(new["predictions_constant_data"]["away"], [1])


def slopes(x: Any, y: Any = None) -> None:
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0.0, 10.0))
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 0.1), obs=y)


FRAME = pd.DataFrame(RNG.normal(size=(20, 2)), columns=["a", "b"], index=[f"p{i}" for i in range(20)])
TURNED = xr.DataArray(np.ones((2, 2)), dims=("feature", "row"), coords={"feature": ["a", "b"]})


@pytest.mark.parametrize("axis", ["feature", None])
def test_columns_of_predictions_are_those_of_the_fit(axis: str | None) -> None:
    frame = FRAME.rename_axis(columns=axis)
    tree = bl.fit(0, slopes, {"x": frame, "y": frame["a"] * 2}, EXACT, progress=False)
    new = pd.DataFrame({"a": [1.0, 0.0], "b": [0.0, 1.0]}, index=["new", "newer"])
    found = bl.predict(1, slopes, {"x": new}, tree)["predictions"]["y"].values.mean((0, 1))
    np.testing.assert_allclose(found, [2.0, 0.0], atol=0.2)
    for other in (new[["b", "a"]], new.rename(columns={"a": "u"}), xr.DataArray(new[["b", "a"]]).rename(dim_1="f")):
        with pytest.raises(ValueError, match=r"entry 'x' has '[bu]' at position 0 of axis 1, where the fit had 'a'"):
            bl.predict(1, slopes, {"x": other}, tree)
    permuted = bl.predict(1, slopes, {"x": frame[::-1], "y": frame["a"][::-1] * 2}, tree)
    assert "predictions" in permuted.children
    if axis:
        with pytest.raises(ValueError, match="entry 'x' has 'feature' as axis 0, but not so at the fit; transpose it"):
            bl.predict(1, slopes, {"x": TURNED}, tree)


def weighted(x: Any, scale: Any) -> None:
    with numpyro.plate("feature", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0.0, scale))
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, 1.0))


def scales(labels: list[str], dim: str = "feature") -> xr.DataArray:
    return xr.DataArray([1.0, 2.0], dims=dim, coords={dim: labels})


NAMED = FRAME.rename_axis(columns="feature")
CONTRADICTIONS = {
    "xarray": (NAMED, scales(["b", "a"]), FRAME["a"], "position 0 of 'feature' is 'a' in 'x' and 'b' in 'scale'"),
    "other names": (NAMED, scales(["a", "c"]), FRAME["a"], "position 1 of 'feature' is 'b' in 'x' and 'c' in 'scale'"),
    "no names": (FRAME, pd.Series([1.0, 2.0], ["b", "a"]), FRAME["a"], "position 0 is 'a' in 'x' and 'b' in 'scale'"),
    "rows": (NAMED, [1.0, 1.0], FRAME["a"][::-1], "position 0 is 'p0' in 'x' and 'p19' in 'y'"),
    "plate": (NAMED.rename_axis("row"), [1.0, 1.0], FRAME["a"][::-1], "position 0 of 'row' is 'p0' in 'x' and 'p19'"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_labels_in_another_order_are_refused(case: str) -> None:
    x, scale, y, words = CONTRADICTIONS[case]
    with pytest.raises(ValueError, match=words):
        bl.explain(weighted, {"x": x, "scale": scale, "y": y})


@pytest.mark.parametrize("scale", [scales(["a", "b"]), scales(["b", "a"], "other"), np.ones(2), scales([0, 1])])
def test_labels_that_agree_or_have_names_of_their_own_are_taken(scale: Any) -> None:
    bl.explain(weighted, {"x": NAMED, "scale": scale, "y": FRAME["a"].reset_index(drop=True)})


def group_level(group: Any, level: Any) -> None:
    with numpyro.plate("group", 3):
        b = numpyro.sample("b", dist.Normal(level, 1.0))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(b[group], 1.0))


def test_categories_and_labels_of_a_plate_agree() -> None:
    data = {"group": CITY, "y": np.zeros(30)}
    level = xr.DataArray(np.arange(3.0), dims="group", coords={"group": ["paris", "london", "berlin"]})
    with pytest.raises(ValueError, match="position 0 of 'group' is 'berlin' in 'group' and 'paris' in 'level'"):
        bl.explain(group_level, data | {"level": level})
    bl.explain(group_level, data | {"level": level[::-1]})


def options(x: Any, link: str = "identity", flip: bool = False, cut: Any = (0.0, 1.0), opts: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    mean = (w * x if link == "identity" else jnp.exp(w * x)) * (-1.0 if flip else 1.0)
    shift = 0.0 if opts is None else opts["shift"] * opts["times"][0]
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(mean + cut[0] + shift, 0.1))


@pytest.mark.parametrize("form", ["memory", "netcdf"])
@pytest.mark.parametrize(
    ("chosen", "mean"),
    [
        ({"link": "log"}, lambda w: np.exp(w)),
        ({"flip": True}, lambda w: -w),
        ({"cut": (3.0, 1.0)}, lambda w: w + 3.0),
        ({"opts": {"shift": 2.0, "times": (4, None)}}, lambda w: w + 8.0),
        ({}, lambda w: w),
    ],
)
def test_arguments_left_out_are_those_of_the_fit(chosen: Any, mean: Any, form: str, tmp_path: Path) -> None:
    x = np.linspace(-1.0, 1.0, 8)
    nuts = bl.NUTS(100, num_samples=100, num_chains=1)
    tree = reread(bl.fit(0, options, {"x": x, "y": x, **chosen}, nuts, progress=False), tmp_path, form)
    drawn = bl.predict(1, options, {"x": np.ones(1)}, tree)["predictions"]["y"].values[..., 0]
    expected = mean(tree["posterior"]["w"].values)
    assert stats.kstest(((drawn - expected) / 0.1).ravel(), "norm").pvalue > 1e-4
    assert "posterior_predictive" in bl.predict(1, options, {"x": x, "y": x}, tree).children


def exposed(x: Any, exposure: Any = None, counts: Any = None, weight: Any = None) -> None:
    w = numpyro.sample("w", dist.Gamma(1.0, 1.0))
    rate = w * x if exposure is None else w * x * exposure
    with numpyro.plate("row", len(x)), numpyro.handlers.scale(scale=1.0 if weight is None else weight):
        numpyro.sample("y", dist.Poisson(rate), obs=counts)


def test_arguments_that_may_be_none_are_kept_but_for_observed_values() -> None:
    x, nuts = np.ones(6), bl.NUTS(100, num_samples=200, num_chains=1)
    data = {"x": x, "exposure": 100.0, "weight": 2.0, "counts": np.array([90, 100, 110, 95, 105, 100])}
    tree = bl.fit(0, exposed, data, nuts, progress=False)
    new = bl.predict(1, exposed, {"x": np.ones(3)}, tree)
    assert abs(new["predictions"]["y"].mean() - 100.0) < 5.0
    assert set(new["predictions_constant_data"].data_vars) == {"x", "exposure", "weight"}
    assert "predictions_log_likelihood" not in new.children
    again = bl.predict(1, exposed, {"x": x, "counts": data["counts"]}, tree)
    expected = stats.poisson.logpmf(data["counts"], 100 * tree["posterior"]["w"].values[..., None])
    np.testing.assert_allclose(again["log_likelihood"]["y"], expected, rtol=1e-9)


def linked(x: Any, link: Any = jnp.exp, prior: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0) if prior is None else prior)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(link(w * x), 0.1))


def test_what_a_result_cannot_hold_is_asked_for() -> None:
    x, nuts = np.ones(5), bl.NUTS(100, num_samples=50, num_chains=1)
    for lost in ({"link": jax.nn.sigmoid}, {"prior": dist.Normal(1.0, 2.0)}):
        tree = bl.fit(0, linked, {"x": x, "y": x, **lost}, nuts, progress=False)
        [name] = lost
        with pytest.raises(ValueError, match=f"data lack argument '{name}', which was not its default at the fit"):
            bl.predict(1, linked, {"x": np.ones(2)}, tree)
        for program, data in ((linked, lost), (partial(linked, **lost), {})):
            assert bl.predict(1, program, {"x": np.ones(2), **data}, tree)["predictions"]["y"].shape[-1] == 2
    tree = bl.fit(0, linked, {"x": x, "y": x}, nuts, progress=False)
    drawn = bl.predict(1, linked, {"x": np.ones(2)}, tree)["predictions"]["y"].values
    expected = np.exp(tree["posterior"]["w"].values)[..., None]
    assert abs((drawn - expected).std() - 0.1) < 0.03


def test_text_is_no_value_of_a_continuous_site() -> None:
    """Codes of categories would be fitted as numbers."""

    def model(y: Any = None) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    for y in (pd.Series(["low", "high", "low"]), pd.Categorical(["a", "b", "b"])):
        with pytest.raises(ValueError, match=r"entry 'y' holds categories .*, but its site is a Normal"):
            bl.bind(model, {"y": y})


def test_labels_that_are_the_categories_of_another_entry_have_the_order_of_its_codes() -> None:
    def slopes(group: Any, size: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        with numpyro.plate("place", len(size)):
            a = numpyro.sample("a", dist.Normal(b * size, 0.1))
        with numpyro.plate("row", len(group)):
            numpyro.sample("y", dist.Normal(a[group], 0.1))

    group, size = pd.Series(["A", "A", "C", "C"]), pd.Series({"A": 1.0, "C": 3.0})
    data = {"group": group, "size": size, "y": np.array([2.0, 2, 6, 6])}
    tree = bl.fit(0, slopes, data, bl.Exact(200), progress=False)
    np.testing.assert_allclose(tree["posterior"]["b"].mean(), 2.0, atol=0.05)
    told = "code 0 of entry 'group' is the category 'A', but position 0 of axis 0 of entry 'size' is 'C'"
    with pytest.raises(ValueError, match=told):
        bl.bind(slopes, data | {"size": size[::-1]})
    with pytest.raises(ValueError, match="code 1 of entry 'group' is the category 'C', but position 1"):
        bl.bind(slopes, data | {"size": pd.Series({"A": 1.0, "B": 2.0, "C": 3.0})})
    ordered = pd.Series(pd.Categorical(group, categories=["C", "A"]))
    reordered = bl.fit(0, slopes, data | {"group": ordered, "size": size[::-1]}, bl.Exact(200), progress=False)
    np.testing.assert_allclose(reordered["posterior"]["b"].mean(), 2.0, atol=0.05)
    rows = pd.DataFrame({"group": ["C", "A"], "size": [3.0, 1.0]}, index=["C", "A"])  # labels of rows
    bl.bind(slopes, {"group": rows["group"], "size": rows["size"], "y": np.array([6.0, 2.0])})
