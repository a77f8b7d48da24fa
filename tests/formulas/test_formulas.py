"""Formulas make design matrices of tables: against statsmodels and algebra, with mistakes named in a sentence."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.interpolate import BSpline

from bayeslab.datasets import classification_data, new_rows, original_scale, regression_data
from bayeslab.formulas.coding import coded_rows, coding_from_text, coding_of
from bayeslab.formulas.parsing import GroupTerm, ParsedFormula, parse_formula


def plots(rows: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "x1": rng.normal(5.0, 2.0, rows),
            "x2": rng.normal(size=rows),
            "age": rng.uniform(20.0, 80.0, rows),
            "site": rng.choice(list("abc"), rows),
            "watered": rng.random(rows) < 0.5,
            "row of trees": rng.integers(1, 4, rows),
            "person": rng.choice(["ann", "bob", "eve"], rows),
        }
    )
    noise = rng.normal(size=rows)
    return frame.assign(y=10 + 2 * frame["x1"] * frame["x2"] + frame["site"].map({"a": 0, "b": 3, "c": -1}) + noise)


PLOTS = plots()
FORMULA = "y ~ x1 * x2 + bs(age, 4) + C(site)"


def test_a_formula_is_taken_apart() -> None:
    parsed = parse_formula("log(y) ~ x - 1 + (1 + x | site) + bs(age, df=4) + (0 + z | `a b`:site)")
    terms = (GroupTerm("1 + x", ("site",)), GroupTerm("0 + z", ("a b", "site")))
    assert parsed == ParsedFormula("log(y)", "x - 1 + bs(age, df=4)", terms)
    assert parse_formula("y ~ (1 | site)").fixed == "1"


def test_columns_are_those_that_the_formula_says() -> None:
    data = regression_data(PLOTS, FORMULA, standardise=False)
    splines = [f"bs(age, 4)[{i}]" for i in (1, 2, 3, 4)]
    names = ["intercept", "x1", "x2", "x1:x2", *splines, "C(site)[b]", "C(site)[c]"]
    assert sorted(data["feature"].values.tolist()) == sorted(names)
    x = data["x"].to_series().unstack()
    age = PLOTS["age"].to_numpy()
    ends, middle = [age.min()] * 4, np.median(age)
    basis = BSpline.design_matrix(age, [*ends, middle, *[age.max()] * 4], 3).toarray()[:, 1:]
    np.testing.assert_allclose(x[splines], basis, atol=1e-12)
    np.testing.assert_allclose(x["x1:x2"], PLOTS["x1"] * PLOTS["x2"])
    np.testing.assert_array_equal(x["C(site)[c]"], PLOTS["site"] == "c")
    np.testing.assert_array_equal(data["y"], PLOTS["y"])


def test_texts_of_pandas_are_levels() -> None:
    expected = regression_data(PLOTS, "y ~ x1 + site")["x"]
    found = regression_data(PLOTS.astype({"site": "string"}), "y ~ x1 + site")["x"]
    xr.testing.assert_equal(found, expected)


def test_what_is_not_made_of_levels_is_standardised() -> None:
    data = regression_data(PLOTS, "y ~ x1:C(site) + watered + C(site)")
    of_levels = ["intercept", "watered", "C(site)[b]", "C(site)[c]"]
    others = data["x"].drop_sel(feature=of_levels)
    assert others.sizes["feature"] == 3
    np.testing.assert_allclose(others.mean("row"), 0.0, atol=1e-12)
    np.testing.assert_allclose(others.std("row"), 1.0)
    assert np.isin(data["x"].sel(feature=of_levels), [0.0, 1.0]).all()
    free = regression_data(PLOTS, "y ~ 0 + x1 + C(site)")
    assert free["y_centre"] == 0.0
    np.testing.assert_allclose(free["x"].sel(feature="x1"), PLOTS["x1"] / PLOTS["x1"].std(ddof=0))


@pytest.mark.parametrize("formula", [FORMULA, "log(y + 40) ~ 0 + x1 + C(site)", "y ~ np.abs(x2) + poly(x1, 2)"])
def test_coefficients_in_units_of_the_table_are_least_squares(formula: str) -> None:
    """Standardising changes no prediction: the coefficients are those of the columns as the formula has them."""
    scaled, plain = regression_data(PLOTS, formula), regression_data(PLOTS, formula, standardise=False)
    w = np.linalg.lstsq(scaled["x"].values, scaled["y"].values)[0]
    expected = np.linalg.lstsq(plain["x"].values, plain["y"].values)[0]
    draws = xr.DataArray(w[None, None], {"chain": [0], "draw": [0], "feature": scaled["feature"].values})
    tree = xr.DataTree.from_dict({"/posterior": xr.Dataset({"w": draws})})
    np.testing.assert_allclose(original_scale(tree, scaled)["w"].values[0, 0], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "formula", [FORMULA, "y ~ poly(x1, 2) + scale(x2) + C(site, Sum) + watered + C(`row of trees`)"]
)
def test_new_rows_have_the_knots_the_levels_and_the_means_of_the_fit(formula: str) -> None:
    data = regression_data(PLOTS, formula)
    some = PLOTS.iloc[[7, 3]].drop(columns="y")
    x = new_rows(some, data)["x"]
    assert x["feature"].values.tolist() == data["feature"].values.tolist()
    np.testing.assert_allclose(x, data["x"].isel(row=[7, 3]), atol=1e-12)


def test_a_coding_survives_as_text() -> None:
    coding = coding_of(FORMULA + " + (1 + x2 | person)", PLOTS, (True, True))
    read = coding_from_text(coding.as_text())
    first, second = coded_rows(coding, PLOTS), coded_rows(read, PLOTS)
    xr.testing.assert_equal(first["x"], second["x"])
    xr.testing.assert_equal(first["design"]["person"], second["design"]["person"])
    assert read.as_text() == coding.as_text()


def test_groups_have_codes_of_their_own() -> None:
    data = regression_data(PLOTS, "y ~ x1 + (1 + x1 | person) + (1 | site:person)")
    assert data["num_groups"] == {"person": 3, "site:person": PLOTS.groupby(["site", "person"]).ngroups}
    assert data["group"]["person"].tolist() == PLOTS["person"].tolist()
    assert data["design"]["person"]["person_term"].values.tolist() == ["intercept", "x1"]
    rows = new_rows(PLOTS.iloc[:3].assign(person=["zoe", "bob", "zoe"]), data)
    assert rows["group"]["person"].cat.codes.tolist() == [3, 1, 3]
    assert rows["num_groups"]["person"] == 4


def test_counts_are_not_standardised_on_request() -> None:
    data = regression_data(PLOTS.assign(y=np.arange(40)), "y ~ x1", standardise_target=False)
    np.testing.assert_array_equal(data["y"], np.arange(40))
    assert abs(data["x"].sel(feature="x1").mean()) < 1e-12


def test_classes_by_a_formula() -> None:
    data = classification_data(PLOTS, "site ~ x1 * x2")
    assert data["y"].attrs["classes"] == ["a", "b", "c"]
    assert data["feature"].values.tolist() == ["intercept", "x1", "x2", "x1:x2"]
    np.testing.assert_array_equal(data["y"], pd.Categorical(PLOTS["site"]).codes)


def changed(**columns: Any) -> pd.DataFrame:
    return PLOTS.assign(**columns)


SMALL = regression_data(PLOTS, "y ~ x1 + C(site) + bs(age, 4)")
NEVER = pd.Categorical(PLOTS["site"], categories=list("abcz"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: regression_data(changed(x1=pd.period_range("2020-01", periods=len(PLOTS), freq="M")), "y"),
            "column 'x1' holds times",
        ),
        (
            lambda: regression_data(changed(x1=pd.date_range("2020-01-01", periods=len(PLOTS)).date), "y"),
            "column 'x1' holds times",
        ),
        (lambda: regression_data(PLOTS, "~ x1"), "is no formula; expected 'response ~ terms'"),
        (lambda: regression_data(PLOTS, "y ~ x1 + ages"), "there is no column 'ages'; did you mean 'age'?"),
        (lambda: regression_data(PLOTS, "z ~ x1"), "there is no target column 'z'"),
        (lambda: regression_data(PLOTS, "y ~ x1 +"), "formula 'x1 +' is not understood"),
        (lambda: regression_data(PLOTS, "y ~ lgo(x1)"), "calls 'lgo'; did you mean 'log'?"),
        (lambda: regression_data(PLOTS, "y ~ x1.mean()"), "which formulas may not"),
        (lambda: regression_data(PLOTS, "y ~ np.load('file')"), "'np.load', which formulas may not"),
        (lambda: regression_data(PLOTS, "y ~ I((lambda: x1)())"), "which formulas may not"),
        (lambda: regression_data(PLOTS, "y ~ log(x2)"), "formula term 'log(x2)' is nan in row"),
        (lambda: regression_data(PLOTS, "y ~ x1 | x2"), "is not understood; expected (1 | site)"),
        (lambda: regression_data(PLOTS, "y ~ (1 || site)"), "two bars"),
        (lambda: regression_data(PLOTS, "y ~ (1 | site/person)"), "nested: write (1 | site) + (1 | site:person)"),
        (lambda: regression_data(PLOTS, "y ~ (1 | site) + (0 + x1 | site)"), "two group terms are of 'site'"),
        (lambda: regression_data(PLOTS, "y ~ x1 - (1 | site)"), "takes the group term"),
        (lambda: regression_data(PLOTS, "y ~ (1 | zone)"), "no grouping column 'zone'"),
        (lambda: regression_data(changed(site="a"), "y ~ (1 | site)"), "has one group, 'a'"),
        (lambda: regression_data(PLOTS, "y ~ 0 + (1 | site)"), "no term that rows share"),
        (lambda: regression_data(PLOTS, "y ~ x1", intercept=False), "add 0 to its right side"),
        (
            lambda: regression_data(changed(x1=np.where(PLOTS.index == 5, np.nan, 1.0)), "y ~ x1"),
            "'x1' is missing in row 5",
        ),
        (lambda: regression_data(changed(x1=np.inf), "y ~ x1"), "column 'x1' is infinite in row 0"),
        (lambda: regression_data(changed(site=[None, *"b" * 39]), "y ~ site"), "column 'site' is missing in row 0"),
        (
            lambda: regression_data(changed(x1=2.0), "y ~ x1"),
            "column 'x1' of the formula is constant: all its rows are 2",
        ),
        (
            lambda: regression_data(changed(site=NEVER), "y ~ site"),
            "'site[z]' of the formula is constant: its level never",
        ),
        (lambda: regression_data(changed(x2=3 - PLOTS["x1"]), "y ~ x1 + x2"), "'x2' of the formula is a combination"),
        (lambda: regression_data(PLOTS, "y ~ C(site) + site"), "is a combination of those before it"),
        (lambda: regression_data(PLOTS.iloc[:1], "y ~ x1"), "the table has one row"),
        (lambda: regression_data(changed(y=1.0), "y ~ x1"), "target 'y' is constant"),
        (lambda: regression_data(changed(y=np.nan), "y ~ x1"), "target 'y' has no value"),
        (lambda: regression_data(PLOTS, "site ~ x1"), "target 'site' is not numeric"),
        (lambda: classification_data(changed(site=NEVER), "site ~ x1"), "class 'z' of 'site' never occurs"),
        (lambda: classification_data(changed(site="a"), "site ~ x1"), "has one class, 'a'"),
        (lambda: new_rows(PLOTS.drop(columns="site"), SMALL), "there is no column 'site'"),
        (
            lambda: new_rows(changed(site="bb"), SMALL),
            "column 'site' has the unknown level 'bb' in row 0; did you mean 'b'?",
        ),
        (lambda: new_rows(changed(x1=np.nan), SMALL), "column 'x1' is missing in row 0"),
        (lambda: new_rows(changed(age=100.0), SMALL), "extend beyond upper and/or lower bounds"),
        (lambda: new_rows(changed(x1="a"), SMALL), "column 'x1' is not numeric"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_formula_of_a_file_computes_nothing_else() -> None:
    """A result may come from anywhere, and predict computes what its formula says."""
    text = regression_data(PLOTS, "y ~ x1")["x"].attrs["formula"].replace('["x1", ["x1"]', '["{__import__(1)}", ["x1"]')
    with pytest.raises(ValueError, match="calls '__import__'"):
        coded_rows(coding_from_text(text), PLOTS)
    with pytest.raises(ValueError, match="cannot be read"):
        coding_from_text("{}")
