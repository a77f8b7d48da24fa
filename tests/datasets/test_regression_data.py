"""Tables become the data of a regression, and coefficients come back in the units of the table."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayeslab.datasets import diabetes, motif_data, new_rows, original_scale, regression_data, rox1_sites


def houses() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "area": [52, 75, 101, 64, 88, 93],
            "garden": [True, False, True, True, False, True],
            "quarter": ["north", "south", "harbour", "south", "north", "harbour"],
            "age": pd.array([12, 40, 8, 77, 23, 51], dtype="Int64"),
            "state": pd.Categorical(list("bacbac"), categories=list("cbaz")),
            "rent": [710.0, 640.0, 1270.0, 590.0, 905.0, 1105.0],
        },
        index=list("abcdef"),
    )


FEATURES = [
    "intercept",
    "area",
    "garden[True]",
    "quarter[north]",
    "quarter[south]",
    "age",
    "state[b]",
    "state[a]",
]


def test_columns_become_features() -> None:
    data = regression_data(houses(), "rent")
    assert data["x"].dims == ("row", "feature")
    assert data["y"].dims == ("row",)
    assert data["x"].dtype == data["y"].dtype == np.float64
    assert data["feature"].values.tolist() == FEATURES
    assert data["row"].values.tolist() == list("abcdef")
    np.testing.assert_array_equal(data["x"].sel(feature="intercept"), 1.0)
    np.testing.assert_array_equal(data["x"].sel(feature="garden[True]"), [1, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(data["x"].sel(feature="quarter[south]"), [0, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(data["x"].sel(feature="state[b]"), [1, 0, 0, 1, 0, 0])


def test_standardised_numbers_have_mean_zero_and_sd_one() -> None:
    data = regression_data(houses(), "rent")
    for values in (data["x"].sel(feature="area"), data["x"].sel(feature="age"), data["y"]):
        np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-14)
    np.testing.assert_allclose(data["x"].sel(feature="area").centre, houses()["area"].mean())
    np.testing.assert_allclose(data["y_scale"], houses()["rent"].std(ddof=0))


def test_numbers_stay_as_they_are_on_request() -> None:
    data = regression_data(houses(), "rent", intercept=False, standardise=False)
    assert data["feature"].values.tolist() == FEATURES[1:]
    np.testing.assert_array_equal(data["x"].sel(feature="area"), houses()["area"])
    np.testing.assert_array_equal(data["y"], houses()["rent"])


def test_missing_responses_stay_missing() -> None:
    frame = houses()
    frame.loc["b", "rent"] = np.nan
    data = regression_data(frame, "rent")
    assert data["y"].isnull().values.tolist() == [False, True, False, False, False, False]
    np.testing.assert_allclose(data["y_centre"], frame["rent"].mean())
    assert data["x"].notnull().all()


def test_no_covariate_but_an_intercept() -> None:
    data = regression_data(houses()[["rent"]], "rent")
    assert data["x"].shape == (6, 1)
    assert new_rows(houses().iloc[:2], data)["x"].shape == (2, 1)


def test_new_rows_are_coded_like_the_old_ones() -> None:
    data = regression_data(houses(), "rent")
    rows = new_rows(houses().iloc[[3, 1], ::-1], data)
    xr.testing.assert_equal(rows["x"], data["x"].isel(row=[3, 1]))


def test_new_rows_know_levels_that_they_lack() -> None:
    data = regression_data(houses(), "rent")
    one = houses().iloc[:1].assign(area=100, quarter="harbour").drop(columns="rent")
    x = new_rows(one, data)["x"].sel(row="a")
    assert x.sel(feature="quarter[north]") == x.sel(feature="quarter[south]") == 0
    np.testing.assert_allclose(x.sel(feature="area"), (100 - data["x"].centre[1]) / data["x"].scale[1])


@pytest.mark.parametrize("standardise", [True, False])
def test_coefficients_in_the_units_of_the_table_are_least_squares_on_it(standardise: bool) -> None:
    frame = diabetes()
    data = regression_data(frame, "progression", standardise=standardise)
    fitted = np.linalg.lstsq(data["x"].values, data["y"].values)[0]
    residual = data["y"].values - data["x"].values @ fitted
    raw = np.column_stack([np.ones(len(frame)), frame.drop(columns="progression")])
    expected, squares, *_ = np.linalg.lstsq(raw, frame["progression"].to_numpy())

    result = original_scale(draws(fitted, data, tau=1 / np.mean(residual**2)), data)
    assert result["w"].dims == ("chain", "draw", "feature")
    np.testing.assert_allclose(result["w"].isel(chain=1, draw=0), expected, rtol=1e-8)
    np.testing.assert_allclose(result["sigma"], np.sqrt(squares[0] / len(frame)) * np.ones((2, 3)), rtol=1e-8)


def test_predictions_do_not_depend_on_the_units() -> None:
    data = regression_data(houses(), "rent")
    w = np.linspace(-1, 1, len(FEATURES))
    plain = regression_data(houses(), "rent", standardise=False)
    back = original_scale(draws(w, data), data)
    assert "sigma" not in back
    scaled = data["y_centre"].item() + data["y_scale"].item() * data["x"].values @ w
    np.testing.assert_allclose(plain["x"].values @ back["w"].values[0, 0], scaled, rtol=1e-12)


def test_without_centring_no_intercept_is_needed() -> None:
    data = regression_data(houses(), "rent", intercept=False, standardise=False)
    w = np.arange(len(FEATURES) - 1.0)
    np.testing.assert_array_equal(original_scale(draws(w, data), data)["w"].isel(chain=0, draw=0), w)


def test_data_survive_a_file(tmp_path: Path) -> None:
    data = regression_data(houses(), "rent")
    data.to_netcdf(tmp_path / "data.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "data.nc", engine="scipy") as loaded:
        xr.testing.assert_equal(new_rows(houses(), loaded.load()), new_rows(houses(), data))


def test_motifs_are_coded_in_the_order_of_the_lecture() -> None:
    data = motif_data(rox1_sites())
    assert (data["num_motifs"], data["num_positions"]) == (8, 12)
    assert data["y"].sel(motif="ROX1").values.tolist() == ["ACTG".index(letter) for letter in "CCAATTGTTTTG"]
    assert data["alpha"]["letter"].values.tolist() == list("ACTG")


def draws(w: np.ndarray, data: xr.Dataset, **others: float) -> xr.DataTree:
    """A posterior of two chains of three draws, all equal."""
    labels = {"chain": np.arange(2), "draw": np.arange(3)}
    values = {name: xr.DataArray(np.full((2, 3), value), labels) for name, value in others.items()}
    features = labels | {"feature": data["feature"].values}
    posterior = xr.Dataset({"w": xr.DataArray(np.broadcast_to(w, (2, 3, len(w))), features)} | values)
    return xr.DataTree.from_dict({"/posterior": posterior})


def changed(**columns: Any) -> pd.DataFrame:
    return houses().assign(**columns)


DATA = regression_data(houses(), "rent")
CENTRED = regression_data(houses(), "rent", intercept=False)
PLAIN = regression_data(houses(), "rent", standardise=False)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: regression_data({"rent": [1.0]}, "rent"), TypeError, "pandas DataFrame, got dict"),
        (lambda: regression_data(houses().iloc[:0], "rent"), ValueError, "no rows"),
        (lambda: regression_data(houses(), "rnet"), ValueError, "'rnet'; did you mean 'rent'?"),
        (lambda: regression_data(houses(), "zzz"), ValueError, "'zzz'; there is 'area', 'garden'"),
        (lambda: regression_data(houses(), "quarter"), ValueError, "target 'quarter' is not numeric"),
        (
            lambda: regression_data(houses(), "garden"),
            ValueError,
            "target 'garden' is not numeric: it holds bool",
        ),
        (lambda: regression_data(changed(rent=np.nan), "rent"), ValueError, "target 'rent' has no value"),
        (lambda: regression_data(changed(rent=0.1), "rent"), ValueError, "target 'rent' is constant"),
        (lambda: regression_data(changed(area=0.1), "rent"), ValueError, "column 'area' is constant"),
        (lambda: regression_data(changed(garden=True), "rent"), ValueError, "column 'garden' is constant"),
        (
            lambda: regression_data(changed(area=[1, 2, np.nan, 4, np.nan, 6]), "rent"),
            ValueError,
            "column 'area' is missing in row 'c'",
        ),
        (
            lambda: regression_data(changed(quarter=["n", None, "s", "s", "n", "n"]), "rent"),
            ValueError,
            "column 'quarter' is missing in row 'b'",
        ),
        (
            lambda: regression_data(changed(area=[1, 2, 3, np.inf, 4, 5]), "rent"),
            ValueError,
            "column 'area' is infinite in row 'd'",
        ),
        (
            lambda: regression_data(changed(rent=[1, -np.inf, 3, 3, 4, 5]), "rent"),
            ValueError,
            "column 'rent' is infinite in row 'b'",
        ),
        (
            lambda: regression_data(changed(age=pd.date_range("2020", periods=6)), "rent"),
            ValueError,
            "column 'age' holds times",
        ),
        (
            lambda: regression_data(changed(age=np.arange(6) * 1j), "rent"),
            ValueError,
            "column 'age' is not numeric: it holds complex128",
        ),
        (
            lambda: regression_data(houses()[["rent"]], "rent", intercept=False),
            ValueError,
            "nothing to regress on",
        ),
        (
            lambda: regression_data(houses().rename(columns={"age": "intercept"}), "rent"),
            ValueError,
            "two features would be named 'intercept'",
        ),
        (
            lambda: regression_data(houses().rename(columns={"age": "area"}), "rent"),
            ValueError,
            "two columns are named 'area'",
        ),
        (lambda: new_rows([1, 2], DATA), TypeError, "pandas DataFrame, got list"),
        (
            lambda: new_rows(houses().rename(columns={"area": "areas"}), DATA),
            ValueError,
            "no column 'area'; did you mean 'areas'?",
        ),
        (
            lambda: new_rows(changed(quarter=["north"] * 4 + ["hill", "sea"]), DATA),
            ValueError,
            "column 'quarter' has the unknown level 'hill' in row 'e'; there is 'harbour', 'north', 'south'",
        ),
        (
            lambda: new_rows(changed(quarter="nort"), DATA),
            ValueError,
            "unknown level 'nort' in row 'a'; did you mean 'north'?",
        ),
        (
            lambda: new_rows(changed(area=list("123456")), DATA),
            ValueError,
            "column 'area' is not numeric",
        ),
        (
            lambda: new_rows(changed(area=[1, np.nan, 1, 1, 1, 1]), DATA),
            ValueError,
            "column 'area' is missing in row 'b'",
        ),
        (
            lambda: new_rows(houses(), {"x": np.ones((6, 2))}),
            ValueError,
            "make it with regression_data",
        ),
        (
            lambda: original_scale(draws(np.ones(7), CENTRED), CENTRED),
            ValueError,
            "no intercept to take up the shift",
        ),
        (
            lambda: original_scale(draws(np.ones(7), CENTRED), PLAIN),
            ValueError,
            "the features of w are not those of data",
        ),
        (
            lambda: original_scale(xr.DataTree.from_dict({"/posterior": xr.Dataset({"mu": 1.0})}), DATA),
            ValueError,
            "no coefficients 'w': it has mu",
        ),
        (lambda: original_scale(xr.DataTree(), DATA), ValueError, "no group posterior"),
        (lambda: motif_data({}), ValueError, "no motif"),
        (lambda: motif_data({"one": "", "two": ""}), ValueError, "'one' is empty"),
        (lambda: motif_data({"one": "ACT", "two": "AC"}), ValueError, "'two' has 2 letters but 'one' has 3"),
        (lambda: motif_data({"one": "ACNU"}), ValueError, "'one' has 'N' at position 3"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        call()
    assert "\n" not in str(caught.value)
