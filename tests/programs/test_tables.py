"""Arguments that are tables of pandas, and arguments for obs= whose missing entries pandas and NumPy mark."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import bayeslab as bl
from bayeslab.programs.binding import bind

PEOPLE = pd.DataFrame({"sex": ["m", "f", "m", "f", "f"], "height": [1.8, 1.6, 1.75, 1.7, np.nan]})


def heights(people: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(1.7, 0.2).expand([2]).to_event(1))
    group = (people.sex == "m").astype(int).to_numpy()
    with numpyro.plate("person", len(people)):
        numpyro.sample("height", dist.Normal(mean[group], 0.1), obs=people["height"].to_numpy())


def widths(people: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(1.7, 0.2))
    numpyro.sample("width", dist.Normal(mean, 0.1), obs=people["width"].to_numpy())


def plane(features: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(features @ w, 1.0))


def pairs(label: Any, x: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
    with numpyro.plate("row", len(x)):
        z = numpyro.sample("label", dist.Categorical(jnp.array([0.3, 0.7])), obs=label)
        numpyro.sample("x", dist.Normal(mean[z], 1.0), obs=x)


def looked_up(label: Any, x: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("x", dist.Normal(mean[label], 1.0), obs=x)


def test_a_program_reads_the_columns_of_a_table() -> None:
    """Normal means in closed form; a missing response is drawn, and new people are predicted."""
    tree = bl.fit(0, heights, {"people": PEOPLE}, progress=False)
    for group, sex in enumerate("fm"):
        known = PEOPLE.height[PEOPLE.sex == sex].dropna()
        precision = 1 / 0.04 + len(known) / 0.01
        right = (1.7 / 0.04 + known.sum() / 0.01) / precision
        drawn = tree["posterior"]["mean"].values[..., group]
        assert drawn.mean() == pytest.approx(right, abs=4 * (precision * drawn.size) ** -0.5)
    new = bl.predict(0, heights, {"people": PEOPLE.iloc[[0, 4]]}, tree)["predictions"]["height"]
    assert new.mean(("chain", "draw")).values == pytest.approx(
        tree["posterior"]["mean"].mean(("chain", "draw")).values[::-1], abs=0.03
    )
    assert "argument 'people': the program needs its values" in str(bl.explain(heights, {"people": PEOPLE}))


def test_a_table_of_numbers_is_a_matrix_where_that_will_do() -> None:
    """So its values are data, and what is wrong with a product of matrices is said of matrices."""
    features = PEOPLE[["height"]].iloc[:4].assign(one=1.0)
    assert bl.bind(plane, {"features": features, "y": np.zeros(4)}).arrays["features"].shape == (4, 2)
    with pytest.raises(TypeError, match=r"does not run \(.*contracting dimensions.*features: float\d\d \(4, 1\)"):
        bl.bind(plane, {"features": features[["one"]], "y": np.zeros(4)})
    with pytest.raises(ValueError, match=r"'widths' does not run \(KeyError: 'width'\); its arguments are people: "):
        bl.bind(widths, {"people": PEOPLE})
    with pytest.raises(TypeError, match="'y' is a frame of text with a column of numbers, 'height'"):
        bl.bind(plane, {"features": features, "y": PEOPLE})


@pytest.mark.parametrize(
    "marked",
    [
        pd.array([0, None, 1, None], dtype="Int64"),
        pd.Series([0, None, 1, None], dtype="Int64"),
        pd.Series(["a", None, "b", None], dtype="category"),
        np.ma.masked_array([0, 9, 1, 9], [False, True, False, True]),
    ],
    ids=["array", "series", "categories", "masked"],
)
def test_marks_of_missing_entries_are_those_of_the_site(marked: Any) -> None:
    """As NaN among floats is; what another use cannot do without is refused as before."""
    x = np.array([-1.2, 0.3, 1.5, -0.4])
    found = bl.bind(pairs, {"label": marked, "x": x})
    right = bl.bind(pairs, {"label": np.array([0, np.nan, 1, np.nan]), "x": x})
    assert found.imputed == right.imputed == ("label",)
    for name, value in right.observed.items():
        np.testing.assert_array_equal(found.observed[name], value)
    np.testing.assert_array_equal(found.present["label (given)"], [True, False, True, False])
    with pytest.raises(ValueError, match=r"argument 'label' has a missing entry at position \(1,\)"):
        bl.bind(looked_up, {"label": marked, "x": x})


def slope_through_zero(x: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, 0.1))


@pytest.mark.parametrize("index", [pd.RangeIndex(11, -1, -1), pd.Index(range(11, -1, -1))])
def test_rows_numbered_in_another_order_are_not_joined_by_position(index: pd.Index) -> None:
    x = pd.Series(np.arange(12.0) / 6 - 1)
    y = pd.Series(x.values[::-1], index=index)
    with pytest.raises(ValueError, match=r"entries 'x' and 'y' are joined by position, but position 0 is '0' in 'x'"):
        bind(slope_through_zero, {"x": x, "y": y})
    frame = pd.DataFrame({"x": x, "y": y}).iloc[::-1]  # one order for both
    assert bind(slope_through_zero, {"x": frame["x"], "y": frame["y"]}).observed["y"].shape == (12,)
    bind(slope_through_zero, {"x": x.values, "y": y})  # an array says nothing of its rows


def test_programs_may_read_series_by_their_own_methods() -> None:
    def program(s: Any, y: Any = None) -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mu * jnp.asarray(s.values), 1.0), obs=y)

    s, y = pd.Series(np.arange(6.0)), np.arange(6.0)
    tree = bl.fit(0, program, {"s": s, "y": y}, bl.Exact(num_samples=2000), progress=False)
    right = s.values @ y / (1 + s.values @ s.values)
    assert abs(float(tree.posterior["mu"].mean()) - right) < 5 / np.sqrt(2000 * (1 + s.values @ s.values))
    assert bl.predict(1, program, {"s": s[:3], "y": None}, tree)["predictions"]["y"].shape[-1] == 3
