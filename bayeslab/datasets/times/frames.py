"""Tables with times as the data of hidden chains, of state-space models, and of Gaussian processes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import checked_labels, short_repr
from bayeslab.datasets.corpora.document_forms import as_frame
from bayeslab.datasets.times.grid import regular_grid

if TYPE_CHECKING:
    import pandas as pd

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "D": 86400.0, "W": 604800.0, "Y": 365.2425 * 86400.0}
"""Units of time, in seconds; a year is that of the calendar on average."""


TIME_NAMES = ("time", "times", "date", "dates", "datetime", "timestamp", "year", "years", "month", "day", "step")
"""What columns and dimensions with times are called, in small letters."""


class TimedColumns(NamedTuple):
    """Columns of a table. times: of the rows, dates or numbers. values: (row, feature), NaN where missing. names: of
    the features. several: whether features are an axis of the result. whole: whether all columns hold integers."""

    times: pd.Index[Any]
    values: np.ndarray
    names: list[Hashable]
    several: bool
    whole: bool


def series_data(
    source: Any,
    columns: Hashable | Sequence[Hashable] | None = None,
    *,
    by: Hashable | None = None,
    time: Hashable | None = None,
    freq: str | None = None,
) -> dict[str, Any]:
    """The data of a model of sequences, `hmm` or `gaussian_hmm` for example: num_sequences, num_steps and y.

    source: a DataFrame or Series of pandas, or a table of polars or Arrow. Its index has the times, or the column
        `time`: dates, periods, texts of ISO dates, or whole numbers.
    columns: the column of values, or a list of them, whose values are then features; by default all others.
    by: a column with the name of the series that a row is of. All series have the steps from the first to the last
        time of any of them.
    freq: of the steps, as pandas has it, such as "D" or "MS"; by default found from the times. A time between two steps
        belongs to the period that `freq` says, which is named by its first moment.
    y (sequence, step[, feature]) is labelled with names and times, and NaN where a step has no row or no value, so that
    whole numbers stay so only where none is missing. Rows may have any order.
    Raises ValueError for a time that a series has twice or that is missing, for times on no grid, for values that are
    infinite, for no value at all, and for columns that are not there; TypeError for times and values of another kind.
    """
    import pandas as pd

    frame = _as_table(source)
    if freq is not None and not isinstance(freq, str):
        raise TypeError(f"freq is {short_repr(freq)}; expected a frequency of pandas as text, such as 'MS'")
    if by is not None:
        _require_column(frame, "by", by)
    if by is not None and frame[by].isna().any():
        raise ValueError(f"column {by!r} has no name of a series in row {frame.index[frame[by].isna()][0]!r}")
    if by is not None and time is None and isinstance(frame.index, pd.RangeIndex):
        raise ValueError("the index numbers the rows of all series; say with `time` which column has their times")
    parts = _timed_columns(frame, columns, time, () if by is None else (by,))
    own_name = "series" if parts.several else str(parts.names[0])
    names = [own_name] * len(frame) if by is None else frame[by].tolist()
    labels = list(dict.fromkeys(names))
    if len(set(map(str, labels))) < len(labels):
        raise ValueError(f"column {by!r} has names that differ in their type alone, such as 1 and '1'; rename one")
    y, grid = _on_grid(parts, np.array([labels.index(name) for name in names]), labels, freq)
    axes = {"sequence": checked_labels("a sequence", labels), "step": grid}
    dims = ["sequence", "step"]
    if parts.several:
        axes, dims = axes | {"feature": list(map(str, parts.names))}, [*dims, "feature"]
    array = xr.DataArray(y if parts.several else y[..., 0], axes, dims)
    return {"num_sequences": len(labels), "num_steps": len(grid), "y": array}


def state_space_data(
    source: Any,
    columns: Hashable | Sequence[Hashable] | None = None,
    *,
    time: Hashable | None = None,
    freq: str | None = None,
) -> dict[str, Any]:
    """The data of a model of one series, `local_level` for example: num_steps and y (step[, feature]).

    Arguments, and what raises, as for `series_data`.
    """
    data = series_data(source, columns, time=time, freq=freq)
    return {"num_steps": data["num_steps"], "y": data["y"].isel(sequence=0, drop=True)}


def process_data(source: Any, column: Hashable | None = None, *, time: Hashable | None = None, unit: str = "D") -> Any:
    """The data of a Gaussian process over time, at any times: x and y (row,), in the order of time.

    source, time: as for `series_data`; a time may be there more than once. column: of the values; rows without one are
    left out.
    unit: of x, which counts from the first time: "s", "min", "h", "D", "W" or "Y"; numbers stay as they are.
    x and y are labelled with the times, and x.attrs has origin and unit, for `process_times`.
    Raises what `series_data` raises, apart from what concerns grids, and ValueError for another unit.
    """
    import pandas as pd

    if not isinstance(unit, str) or unit not in UNITS:
        raise ValueError(f"unit is {short_repr(unit)}; expected one of {list(UNITS)}")
    parts = _timed_columns(_as_table(source), column, time, ())
    if parts.values.shape[1] != 1:
        raise ValueError(f"there are {parts.values.shape[1]} columns of values, {parts.names}; name one of them")
    kept = ~np.isnan(parts.values[:, 0])
    if not kept.any():
        raise ValueError(f"column {parts.names[0]!r} has no value")
    times, values = parts.times[kept], parts.values[kept, 0]
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    dated = isinstance(times, pd.DatetimeIndex)
    attrs = {"origin": str(times[0]), "unit": unit} if dated else {}
    inputs = _since(times, times[0], unit) if dated else times.to_numpy(float)
    x = xr.DataArray(inputs, {"row": times}, "row", attrs=attrs)
    return {"x": x, "y": xr.DataArray(values, {"row": times}, "row")}


def process_times(times: Any, data: Any) -> xr.DataArray:
    """Inputs x (row,) of a Gaussian process at other times, labelled with them, in the unit and from the origin of the
    data.

    times: dates, an index of pandas, or texts of ISO dates; numbers where the data have numbers. data: of
        `process_data`.
    """
    import pandas as pd

    x = data.get("x") if isinstance(data, Mapping) else None
    if not isinstance(x, xr.DataArray):
        raise TypeError(f"data are {short_repr(data)}; expected those of process_data, with x")
    if isinstance(times, str | bytes) or not isinstance(times, Iterable) or getattr(times, "ndim", 1) != 1:
        raise TypeError(f"times are {short_repr(times)}; expected a list of dates or numbers")
    attrs = x.attrs
    try:
        index = _as_times(pd.Series(list(times)), "times")
    except (ValueError, OverflowError) as error:
        raise ValueError(f"times are {short_repr(times)}, which are not all dates or numbers ({error})") from None
    if isinstance(index, pd.DatetimeIndex) != ("origin" in attrs):
        expected = "dates" if "origin" in attrs else "numbers"
        raise TypeError(f"times are {index.dtype}; expected {expected}, as in the data")
    x = _since(index, pd.Timestamp(attrs["origin"]), attrs["unit"]) if attrs else index.to_numpy(float)
    return xr.DataArray(x, {"row": index}, "row", attrs=attrs)


def _as_table(source: Any) -> pd.DataFrame:
    """The source as a DataFrame with rows; raises TypeError for what is no table, ValueError for one without rows."""
    import pandas as pd

    frame = as_frame(source)
    if isinstance(frame, xr.DataArray):
        frame = _times_first(frame).to_pandas()
    if isinstance(frame, pd.Series):
        frame = frame.to_frame("y" if frame.name is None else frame.name)
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"the source is a {type(source).__name__}; expected a table or a Series of pandas")
    if not len(frame):
        raise ValueError("the table has no rows")
    if frame.columns.has_duplicates:
        raise ValueError(f"the table has column {frame.columns[frame.columns.duplicated()][0]!r} twice; rename one")
    return frame


def _times_first(array: xr.DataArray) -> xr.DataArray:
    """The array with the dimension of times first, where one of two is called so or has dates."""
    if array.ndim > 2:
        raise ValueError(f"the array has dimensions {array.dims}; expected those of times, and of features if any")
    timed = [dim for dim in array.dims if str(dim).lower() in (*TIME_NAMES, "t") or array[dim].dtype.kind == "M"]
    if array.ndim == 2 and len(timed) != 1:
        raise ValueError(f"the array has dimensions {array.dims}; expected one of them to be 'time', and so named")
    return array.transpose(timed[0], ...) if array.ndim == 2 else array


def _refuse_numbered_rows(frame: pd.DataFrame, others: tuple[Hashable, ...]) -> None:
    """Raise ValueError where the index numbers the rows, while a column that is not among others has times."""
    import pandas as pd

    if not isinstance(frame.index, pd.RangeIndex):
        return
    for name in frame.columns:
        named = isinstance(name, str) and name.lower() in TIME_NAMES
        if (named or pd.api.types.is_datetime64_any_dtype(frame[name].dtype)) and name not in others:
            raise ValueError(
                f"the index numbers the rows, and column {name!r} looks like their times: pass time={name!r}, or leave "
                "that column out of the table"
            )


def _require_column(frame: pd.DataFrame, what: str, name: Any) -> None:
    """Raise TypeError for what is no name, ValueError for one that no column has."""
    if not isinstance(name, str | int | float | tuple):
        raise TypeError(f"{what} is {short_repr(name)}; expected the name of a column")
    if name not in frame.columns:
        raise ValueError(f"{what} is {short_repr(name)}, which is no column; the columns are {list(frame.columns)}")


def _timed_columns(
    frame: pd.DataFrame, columns: Any, time: Hashable | None, others: tuple[Hashable, ...]
) -> TimedColumns:
    """Times and values of a table. others: columns that are neither."""
    import pandas as pd

    if time is None:
        _refuse_numbered_rows(frame, (*others, *(columns if isinstance(columns, list | tuple) else [columns])))
    else:
        _require_column(frame, "time", time)
    times = _as_times(frame.index.to_series() if time is None else frame[time],
                      "the index" if time is None else f"column {time!r}")  # fmt: skip
    names = list(columns) if isinstance(columns, list | tuple) else [columns]
    if columns is None:
        names = [name for name in frame.columns if name != time and name not in others]
    listed = isinstance(columns, list | tuple) or len(names) > 1
    if not names:
        raise ValueError(f"there is no column of values; the columns are {list(frame.columns)}")
    for name in names:
        _require_column(frame, "one of columns", name)
    if len(set(names)) < len(names):
        raise ValueError(f"columns are {short_repr(names)}; expected each once")
    values = np.stack([_numbers(frame[name], name) for name in names], axis=1)
    whole = all(pd.api.types.is_integer_dtype(frame[name].dtype) for name in names)
    return TimedColumns(times, values, names, listed, whole)


def _numbers(column: pd.Series, name: Hashable) -> np.ndarray:
    """The values of a column as floats, NaN where they are missing."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_complex_dtype(column.dtype):
        raise TypeError(f"column {name!r} holds {column.dtype}; expected numbers, and times as the index or by `time`")
    values = column.to_numpy(dtype=float, na_value=np.nan)
    if np.isinf(values).any():
        where = column.index[np.isinf(values)][0]
        raise ValueError(
            f"column {name!r} is infinite at {where!r}; expected finite numbers, or NaN where there is none"
        )
    return values


def _as_times(given: pd.Series, what: str) -> pd.Index[Any]:
    """Times as dates without a zone, or as whole numbers; what: that has them, in words."""
    import pandas as pd

    if given.isna().any():
        raise ValueError(f"{what} has no time in row {int(np.flatnonzero(given.isna())[0]) + 1}")
    if isinstance(given.dtype, pd.PeriodDtype):
        return pd.DatetimeIndex(given.dt.to_timestamp()).rename(None)
    if pd.api.types.is_bool_dtype(given.dtype):
        raise TypeError(f"{what} holds truth values; expected dates or numbers")
    if pd.api.types.is_numeric_dtype(given.dtype):
        return _as_numbers(pd.Index(given.to_numpy()), what)
    if not pd.api.types.is_datetime64_any_dtype(given.dtype):
        try:
            given = pd.to_datetime(given, format="ISO8601")
        except (ValueError, TypeError):
            first = short_repr(given.iloc[0])
            raise TypeError(
                f"{what} holds {first} and the like; expected dates, which pandas.to_datetime makes of texts"
            ) from None
    index = pd.DatetimeIndex(given).rename(None)
    if index.tz is not None and str(index.tz) != "UTC":
        raise ValueError(f"{what} has times of the zone {index.tz}; expected none, or UTC: tz_convert('UTC')")
    return index.tz_localize(None)


def _as_numbers(times: pd.Index[Any], what: str) -> pd.Index[Any]:
    """Times that are numbers; raises ValueError for infinite ones, and for dates that are written as one number.

    As numbers, the day after 20200131 would be 70 steps later.
    """
    if not np.isfinite(times.to_numpy(float)).all():
        raise ValueError(f"{what} has an infinite time; expected dates or finite numbers")
    numbers = times.to_numpy(float)
    days = numbers % 100
    for form, months in (("%Y%m%d", np.where((days >= 1) & (days <= 31), numbers // 100, 0)), ("%Y%m", numbers)):
        month = months % 100
        if len(times) > 1 and ((months >= 180001) & (months <= 220012) & (month >= 1) & (month <= 12)).all():
            raise ValueError(
                f"{what} has {times[0]} and the like, which look like dates written as numbers; make them dates by "
                f"pandas.to_datetime(..., format={form!r})"
            )
    return times


def _on_grid(
    parts: TimedColumns, series: np.ndarray, labels: list[Hashable], freq: str | None
) -> tuple[np.ndarray, pd.Index[Any]]:
    """Values (series, step, feature), NaN where there are none, and the times of the steps."""
    import pandas as pd

    if not isinstance(parts.times, pd.DatetimeIndex) and parts.times.dtype.kind not in "iu":
        raise TypeError(f"times are {parts.times.dtype}; expected dates or whole numbers; for others take process_data")
    twice = pd.MultiIndex.from_arrays([series, parts.times]).duplicated()
    if twice.any():
        row = int(np.flatnonzero(twice)[0])
        hint = "average or sum its rows first" if len(labels) > 1 else "say with `by` which column names the series"
        raise ValueError(f"series {labels[series[row]]!r} has the time {parts.times[row]} twice; {hint}")
    unique = parts.times.unique().sort_values()
    grid, places = regular_grid(unique, freq)
    steps = grid.get_indexer(places)[unique.get_indexer(parts.times)]
    shared = pd.MultiIndex.from_arrays([series, steps]).duplicated()
    if shared.any():
        row = int(np.flatnonzero(shared)[0])
        other = int(np.flatnonzero((series == series[row]) & (steps == steps[row]))[0])
        raise ValueError(
            f"series {labels[series[row]]!r} has the times {parts.times[other]} and {parts.times[row]}, which freq "
            f"{freq!r} puts into one step; average or sum them first"
        )
    y = np.full((len(labels), len(grid), parts.values.shape[1]), np.nan)
    y[series, steps] = parts.values
    if np.isnan(y).all():
        raise ValueError(f"columns {parts.names} have no value")
    return (y.astype(np.int64) if parts.whole and not np.isnan(y).any() else y), grid


def _since(times: Any, origin: Any, unit: str) -> np.ndarray:
    """Times since an origin in a unit."""
    return np.asarray((times - origin).total_seconds()) / UNITS[unit]
