"""Tables with times: gaps become missing steps, series keep their names, forecasts their dates."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab import plots
from bayeslab.datasets import process_data, process_times, series_data, state_space_data
from bayeslab.models import gp_regression, local_level
from bayeslab.states.longer_series import continue_labels

NAN = np.nan
GRIDS = {
    "years": ("YS", None),
    "fiscal years": ("YS-APR", None),
    "ends of years": ("YE", None),
    "quarters": ("QS", None),
    "months": ("MS", None),
    "ends of months": ("ME", None),
    "weeks": ("W-WED", None),
    "working days": ("B", None),
    "days": ("D", None),
    "ten minutes": ("10min", None),
    "given": ("3h", "3h"),
}


@pytest.mark.parametrize("name", GRIDS)
def test_gaps_become_missing_steps(name: str) -> None:
    """Whatever the order of the rows: a grid less some of its inner steps is found again."""
    freq, given = GRIDS[name]
    whole = pd.date_range("2019-01-01", periods=12, freq=freq)
    kept = np.array([0, 1, 2, 5, 6, 8, 10, 11])
    series = pd.Series(10.0 + kept, whole[kept], name="sales").sample(frac=1, random_state=0)
    data = series_data(series, freq=given)
    assert data["y"].indexes["step"].equals(whole)
    expected = np.full(12, NAN)
    expected[kept] = 10.0 + kept
    np.testing.assert_array_equal(data["y"].values, expected[None])
    assert data["y"].sequence.values.tolist() == ["sales"]
    assert (data["num_sequences"], data["num_steps"]) == (1, 12)


@pytest.mark.parametrize("name", GRIDS)
def test_the_steps_of_a_grid_go_on(name: str) -> None:
    whole = pd.date_range("2019-01-01", periods=12, freq=GRIDS[name][0])
    labels = whole.to_pydatetime().tolist()
    assert continue_labels(labels[:8], 12) == labels


def test_days_of_the_month_go_on() -> None:
    for months in (1, 3, 6, 12):
        whole = pd.date_range("2020-01-15", periods=12, freq=pd.DateOffset(months=months)).to_pydatetime().tolist()
        assert continue_labels(whole[:7], 12) == whole
    ends = pd.date_range("2020-01-31", periods=5, freq="ME").to_pydatetime().tolist()
    assert continue_labels(ends[:2], 5) == ends
    odd = pd.to_datetime(["2020-01-01", "2020-02-01", "2020-05-01"]).to_pydatetime().tolist()
    assert continue_labels(odd, 4)[3] == odd[2] + (odd[2] - odd[1])  # a month is missing there, so they are no months


def test_narrow_numbers_of_steps_do_not_overflow() -> None:
    found = series_data(pd.Series([1.0, 2.0], pd.Index([-100, 100], dtype="int8")))["y"]
    assert (found["step"].values.tolist(), found.values.tolist()) == ([-100, 100], [[1.0, 2.0]])


@pytest.mark.parametrize("dtype", ["int64", "Int64"])
def test_whole_numbers_stay_so_without_gaps(dtype: str) -> None:
    years = pd.Series([13, 14, 8], [1902, 1900, 1901], dtype=dtype)
    assert series_data(years)["y"].dtype.kind == "i"
    assert series_data(years)["y"].values.tolist() == [[14, 8, 13]]
    np.testing.assert_array_equal(series_data(years)["y"]["step"], [1900, 1901, 1902])
    assert series_data(years.set_axis([1904, 1900, 1901]))["y"].dtype.kind == "f"


LONG = pd.DataFrame(
    {
        "day": ["2020-03-02", "2020-03-01", "2020-03-04", "2020-03-02", "2020-03-05"],
        "town": ["b", "a", "a", "a", "b"],
        "rain": [1.0, 2.0, NAN, 4.0, 5.0],
        "sun": [9, 8, 7, 6, 5],
    }
)


def test_a_column_names_the_series() -> None:
    """All have the steps from the first to the last time of any, with features where there are several columns."""
    y = series_data(LONG, "rain", by="town", time="day")["y"]
    assert y.sequence.values.tolist() == ["b", "a"]
    np.testing.assert_array_equal(y.sel(sequence="a"), [2.0, 4.0, NAN, NAN, NAN])
    np.testing.assert_array_equal(y.sel(sequence="b"), [NAN, 1.0, NAN, NAN, 5.0])
    both = series_data(LONG, by="town", time="day")["y"]
    assert both.dims == ("sequence", "step", "feature")
    np.testing.assert_array_equal(both.sel(sequence="a", feature="sun"), [8, 6, NAN, 7, NAN])
    assert both.sel(feature="rain").equals(y.assign_coords(feature="rain"))


FORMS = {
    "periods": lambda frame: frame.set_axis(pd.PeriodIndex(frame.index, freq="M")),
    "UTC": lambda frame: frame.tz_localize("UTC"),
    "texts": lambda frame: frame.set_axis(frame.index.strftime("%Y-%m-%d")),
    "a series": lambda frame: frame["v"],
    "xarray": lambda frame: xr.DataArray(frame["v"].values, {"time": frame.index}, name="v"),
    "a named index": lambda frame: frame.rename_axis("month"),
}


@pytest.mark.parametrize("form", FORMS)
def test_times_come_in_many_forms(form: str) -> None:
    frame = pd.DataFrame({"v": [1.0, 2.0, 3.0]}, pd.to_datetime(["2020-01-01", "2020-02-01", "2020-04-01"]))
    data = state_space_data(FORMS[form](frame))
    assert data["y"].dims == ("step",)
    np.testing.assert_array_equal(data["y"], [1.0, 2.0, NAN, 3.0])
    assert data["y"].indexes["step"].equals(pd.date_range("2020-01-01", periods=4, freq="MS"))


def test_a_frequency_puts_times_into_periods() -> None:
    """By series: two towns may be measured on different days of a month."""
    frame = LONG.assign(day=["2020-01-07", "2020-01-03", "2020-02-20", "2020-04-01", "2020-02-11"])
    y = series_data(frame, "sun", by="town", time="day", freq="MS")["y"]
    assert y.indexes["step"].equals(pd.date_range("2020-01-01", periods=4, freq="MS"))
    np.testing.assert_array_equal(y, [[9, 5, NAN, NAN], [8, 7, NAN, 6]])


DAYS = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-04"])
ODD = pd.to_datetime(
    ["2020-01-01 00:00:00", "2020-01-01 00:00:07.1", "2020-02-03 07:11:00", "2020-07-01 00:00:00"], format="ISO8601"
)
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no table": (3, {}, "the source is a int; expected a table"),
    "no rows": (LONG[:0], {"time": "day"}, "the table has no rows"),
    "no such column": (LONG, {"columns": "snow", "time": "day"}, "'snow', which is no column; the columns are"),
    "no such time": (LONG, {"columns": "rain", "time": "date"}, "time is 'date', which is no column"),
    "no such by": (LONG, {"columns": "rain", "by": "city"}, "by is 'city', which is no column"),
    "by without times": (LONG, {"columns": "rain", "by": "town"}, "the index numbers the rows of all series"),
    "twice": (LONG, {"columns": "rain", "time": "day"}, "has the time 2020-03-02 00:00:00 twice; say with `by`"),
    "text": (LONG, {"columns": "town", "time": "day"}, "column 'town' holds"),
    "no dates": (LONG, {"columns": "rain", "time": "town"}, "holds 'b' and the like; expected dates"),
    "American dates": (pd.Series([1.0], ["1/31/2020"]), {}, "holds '1/31/2020' and the like"),
    "missing time": (pd.Series([1.0, 2.0], [DAYS[0], pd.NaT]), {}, "has no time in row 2"),
    "missing name": (LONG.assign(town=None), {"columns": "rain", "by": "town", "time": "day"}, "no name of a series"),
    "infinite": (pd.Series([1.0, np.inf, 2.0], DAYS), {}, "column 'y' is infinite at Timestamp('2020-01-02"),
    "nothing": (pd.Series([NAN] * 3, DAYS), {}, "have no value"),
    "no grid": (pd.Series(1.0, ODD), {}, "are on no regular grid of fewer than"),
    "no frequency": (pd.Series(1.0, DAYS), {"freq": "months"}, "freq is 'months'; expected one of pandas"),
    "off the frequency": (pd.Series(1.0, DAYS), {"freq": "2D"}, "is not on the grid of freq '2D'"),
    "one step": (pd.Series(1.0, DAYS), {"freq": "MS"}, "which freq 'MS' puts into one step"),
    "a zone": (pd.Series(1.0, DAYS.tz_localize("Europe/Rome")), {}, "has times of the zone Europe/Rome"),
    "fractions": (pd.Series(1.0, [0.5, 1.5]), {}, "times are float64; expected dates or whole numbers"),
    "freq of years": (pd.Series(1.0, [1900, 1901]), {"freq": "YS"}, "but times are whole numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables_are_refused(name: str) -> None:
    source, options, words = WRONG[name]
    with pytest.raises((TypeError, ValueError)) as error:
        series_data(source, **options)
    assert words in str(error.value)


def test_a_process_takes_irregular_times() -> None:
    """In any order, twice as well, without those that have no value; new times count from the same origin."""
    times = pd.to_datetime(["2021-01-02T12", "2020-12-31", "2021-01-02T12", "2021-02-01"], format="ISO8601")
    data = process_data(pd.Series([1.0, 2.0, 3.0, NAN], times), unit="h")
    np.testing.assert_allclose(data["x"], [0, 60, 60])
    np.testing.assert_array_equal(data["y"], [2.0, 1.0, 3.0])
    new = process_times(["2021-01-01T06:00", "2020-12-30"], data)
    np.testing.assert_allclose(new, [30, -24])
    assert new.indexes["row"][1] == pd.Timestamp("2020-12-30")
    plain = process_data(pd.Series([1.0, 2.0], [0.5, 0.1]))
    np.testing.assert_array_equal(process_times([3.0], plain), [3.0])
    with pytest.raises(TypeError, match="expected dates, as in the data"):
        process_times([3.0], data)
    with pytest.raises(ValueError, match="unit is 'month'"):
        process_data(pd.Series([1.0], times[:1]), unit="month")
    with pytest.raises(ValueError, match="2 columns of values"):
        process_data(LONG[["day", "rain", "sun"]], time="day")


def test_forecasts_have_dates(tmp_path: Path) -> None:
    """After the ends of months come ends of months, on the axis of a figure and in a file too."""
    whole = pd.date_range("2020-01-31", periods=12, freq="ME")
    series = pd.Series(np.sin(np.arange(12.0)), whole).drop(whole[[3, 7]])
    data = state_space_data(series)
    tree = bl.fit(0, local_level.model, data, bl.Gibbs(10, 20, 1), progress=False)
    tree = bl.states.forecast(1, local_level.model, data, tree, {"num_steps": 14})
    tree.to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    back = xr.load_datatree(tmp_path / "fit.nc", engine="h5netcdf")
    for found in (tree, back):
        steps = found["predictions"]["y"].to_dataset(name="y").indexes["step"]
        assert steps.equals(pd.date_range("2021-01-31", periods=2, freq="ME"))
    ax = plots.plot_forecast(back)
    low, high = ax.dataLim.intervalx
    np.testing.assert_allclose([low, high], [whole[0].timestamp() / 86400, steps[-1].timestamp() / 86400])
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "mean of the forecast"
    with pytest.raises(ValueError, match="no site 'x' in group observed_data"):
        plots.plot_forecast(tree, "x")


@pytest.mark.slow
def test_a_process_is_predicted_at_dates() -> None:
    data = process_data(pd.Series(np.arange(5.0), pd.date_range("2020-01-01", periods=5, freq="36h")))
    data |= {"kernel": bl.kernels.matern32(3.0), "sigma": 0.1}
    tree = bl.fit(0, gp_regression.model, data, progress=False)
    new = process_times(["2020-01-04", "2020-01-09"], data)
    found = bl.process_at(gp_regression.model, data, tree, {"x": new})
    assert found.indexes["row"].equals(pd.DatetimeIndex(["2020-01-04", "2020-01-09"]))
    assert abs(float(found["f"][0]) - 2.0) < 0.1
