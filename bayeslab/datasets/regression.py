"""From a table to the data of a regression, and from draws of its coefficients back to the table's units.

How each column of x was made travels with it as coordinates along `feature`, so that new rows are coded
in the same way and coefficients find their way back.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from bayeslab.datasets.arguments import require_flags


def regression_data(
    frame: pd.DataFrame, target: str, *, intercept: bool = True, standardise: bool = True
) -> xr.Dataset:
    """The data of a regression of one column of a table on all others: x (row, feature) and y (row,).

    frame: numeric columns are taken as they are; columns of text, categories and truth values become one
        column of zeros and ones for each level but the first, named "column[level]". Its index labels
        the rows. Missing values of the target stay missing responses; no covariate may be missing.
    target: the name of the response, a numeric column.
    intercept: put a column of ones first, named "intercept".
    standardise: give the numeric columns and y mean 0 and standard deviation 1 (with divisor n).
    Along feature, the coordinates kind, column, level, baseline, centre and scale say what was done;
    y_centre and y_scale say it for y. Weights of the rows: data.assign(weights=("row", numbers)).
    Raises TypeError for what is no DataFrame, ValueError for a table that cannot be coded.
    """
    require_flags(intercept=intercept, standardise=standardise)
    frame = checked_frame(frame)
    require_columns(frame, [str(target)], "target ")
    response = _numbers(frame[str(target)], "target")
    if np.isnan(response).all():
        raise ValueError(f"target {target!r} has no value: all its rows are missing.")
    y_centre, y_scale = _centre_and_scale(response, f"target {str(target)!r}", standardise)

    features = [Feature("intercept")] if intercept else []
    for name in frame.columns.drop(str(target)):
        features += _features(frame[name], standardise)
    names = [feature.name for feature in features]
    if not names:
        raise ValueError("there is nothing to regress on: give a covariate, or keep the intercept.")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two features would be named {repeated[0]!r}: rename a column.")

    how = {field: ("feature", [getattr(feature, field) for feature in features]) for field in Feature._fields}
    return xr.Dataset(
        {"x": (("row", "feature"), _design_matrix(frame, features)), "y": ("row", (response - y_centre) / y_scale)},
        coords={"row": _row_labels(frame), "feature": names, "y_centre": y_centre, "y_scale": y_scale} | how,
    )


def new_rows(frame: pd.DataFrame, data: Mapping[Any, Any]) -> xr.Dataset:
    """The covariates x (row, feature) of new rows, coded as those of `data`, for predictions.

    frame: the columns that `data` was made from, in any order; others, as the target, are ignored.
    data: what `regression_data` returned.
    Raises ValueError for a missing column, a missing value or a level that `data` has not seen.
    """
    frame, features = checked_frame(frame), _features_of(data)
    require_columns(frame, dict.fromkeys(feature.column for feature in features if feature.kind != "intercept"), "")
    for column in dict.fromkeys(feature.column for feature in features if feature.kind == "level"):
        known = [feature.level for feature in features if (feature.kind, feature.column) == ("level", column)]
        baseline = next(feature.baseline for feature in features if (feature.kind, feature.column) == ("level", column))
        unknown = ~_levels(frame[column]).isin([baseline, *known])
        if unknown.any():
            row, level = unknown.idxmax(), _levels(frame[column])[unknown].iloc[0]
            hint = _suggestion(level, [baseline, *known])
            raise ValueError(f"column {column!r} has the unknown level {level!r} in row {row!r}{hint}")
    return xr.Dataset(
        {"x": (("row", "feature"), _design_matrix(frame, features))},
        coords={"row": _row_labels(frame)} | dict(data["x"].coords["feature"].coords),
    )


def original_scale(tree: xr.DataTree, data: Mapping[Any, Any]) -> xr.Dataset:
    """Draws of the coefficients w (chain, draw, feature) in the units of the table.

    tree: the result of a fit, whose posterior has w and perhaps the noise precision tau.
    data: what `regression_data` returned and the fit was given.
    With tau there is also sigma (chain, draw), the standard deviation of the noise (of a row of weight 1).
    Raises ValueError where columns were centred but no intercept can take up the shift.
    """
    features = _features_of(data)
    if not isinstance(tree, xr.DataTree):
        raise TypeError(f"original_scale takes a DataTree, such as fit() returns, not {type(tree).__name__}.")
    if "posterior" not in tree.children:
        raise ValueError("the tree has no group posterior: give the result of a fit.")
    posterior = tree.children["posterior"].to_dataset()
    if "w" not in posterior:
        raise ValueError(f"the posterior has no coefficients 'w': it has {', '.join(map(str, posterior))}.")
    names = [feature.name for feature in features]
    draws = posterior["w"]
    if "feature" not in draws.dims or draws["feature"].values.tolist() != names:
        raise ValueError("the features of w are not those of data: give the data of the fit, with its labels.")

    y_centre, y_scale = float(data["x"].coords["y_centre"]), float(data["x"].coords["y_scale"])
    centre, scale = (
        xr.DataArray([getattr(feature, field) for feature in features], {"feature": names})
        for field in ("centre", "scale")
    )
    intercept = xr.DataArray([feature.kind == "intercept" for feature in features], {"feature": names})
    if not intercept.any() and (y_centre != 0 or (centre != 0).any()):
        raise ValueError(
            "the data were centred and have no intercept to take up the shift: "
            "make them with intercept=True or standardise=False."
        )
    slopes = draws.drop_vars([name for name in draws.coords if name not in draws.dims]) * y_scale / scale
    shift = y_centre - (slopes * centre).sum("feature")
    result: dict[str, Any] = {"w": (slopes + intercept * shift).transpose(*draws.dims)}
    if "tau" in posterior:
        result["sigma"] = y_scale / np.sqrt(posterior["tau"])
    return xr.Dataset(result)


class Feature(NamedTuple):
    """How a column of x is made; its kind is "intercept", "number" or "level"."""

    kind: str
    column: str = ""  # of the table
    level: str = ""  # coded as one
    baseline: str = ""  # the level without a column
    centre: float = 0.0
    scale: float = 1.0

    @property
    def name(self) -> str:
        return {"intercept": "intercept", "number": self.column, "level": f"{self.column}[{self.level}]"}[self.kind]

    @property
    def is_valid(self) -> bool:
        """Whether its fields are possible: they may have been read from anything."""
        is_text = all(isinstance(text, str) for text in self[:4]) and self.kind in ("intercept", "number", "level")
        is_number = all(isinstance(number, float) and np.isfinite(number) for number in self[4:])
        return is_text and is_number and self.scale > 0

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The column of x (row,) for the rows of a table."""
        if self.kind == "intercept":
            return np.ones(len(frame))
        if self.kind == "level":
            return (_levels(frame[self.column]) == self.level).to_numpy(float)
        numbers = _numbers(frame[self.column], "column")
        _refuse(np.isnan(numbers), frame[self.column], "is missing")
        return (numbers - self.centre) / self.scale


def _features(column: pd.Series, standardise: bool) -> list[Feature]:
    """The features, columns of x, that a column of the table gives."""
    name = str(column.name)
    if _is_number(column):
        numbers = _numbers(column, "column")
        _refuse(np.isnan(numbers), column, "is missing")
        return [Feature("number", name, "", "", *_centre_and_scale(numbers, f"column {name!r}", standardise))]
    present = _levels(column)
    levels = sorted(set(present))
    if isinstance(column.dtype, pd.CategoricalDtype):
        levels = [level for level in map(str, column.cat.categories) if level in set(present)]
    if len(levels) == 1:
        raise ValueError(f"column {name!r} is constant: all its rows are {levels[0]!r}; drop it.")
    return [Feature("level", name, level, levels[0]) for level in levels[1:]]


def _features_of(data: Mapping[Any, Any]) -> list[Feature]:
    """How the columns of data["x"] were made, from its coordinates."""
    if not isinstance(data, Mapping):
        raise TypeError(f"data are what regression_data returned, not {type(data).__name__}.")
    coords = data["x"].coords if isinstance(data.get("x"), xr.DataArray) else {}
    dims = dict.fromkeys(Feature._fields, ("feature",)) | dict.fromkeys(("y_centre", "y_scale"), ())
    if all(name in coords and coords[name].dims == axes for name, axes in dims.items()):
        columns = (coords[name].values.tolist() for name in Feature._fields)
        features = [Feature(*feature) for feature in zip(*columns, strict=True)]
        scales = Feature("number", centre=coords["y_centre"].item(), scale=coords["y_scale"].item())
        if all(feature.is_valid for feature in (*features, scales)):
            return features
    raise ValueError("data does not say how its x was coded: make it with regression_data.")


def _design_matrix(frame: pd.DataFrame, features: list[Feature]) -> np.ndarray:
    return np.stack([feature.values(frame) for feature in features], axis=1)


def checked_frame(frame: Any) -> pd.DataFrame:
    """The table with text for column names, if it is one and has rows."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"expected a pandas DataFrame, got {type(frame).__name__}.")
    if len(frame) == 0:
        raise ValueError("the table has no rows.")
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    if frame.columns.has_duplicates:
        name = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"two columns are named {name!r}: rename one.")
    return frame.assign(**{name: _floats(frame[name]) for name in frame.columns if _holds_number_objects(frame[name])})


def _holds_number_objects(column: pd.Series) -> bool:
    """Whether a column holds numbers as Python objects, perhaps with gaps."""
    kinds = ("integer", "floating", "mixed-integer-float", "decimal")
    return column.dtype == np.dtype(object) and pd.api.types.infer_dtype(column, skipna=True) in kinds


def _floats(column: pd.Series) -> pd.Series:
    try:
        return column.astype(float)
    except OverflowError:
        raise ValueError(f"column {column.name!r} has integers too large for a number: rescale it.") from None


def require_columns(frame: pd.DataFrame, names: Iterable[str], role: str) -> None:
    """Raises ValueError for a name that is no column of a table. role: what the column is, for the message."""
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"there is no {role}column {repr(name)[:100]}{_suggestion(name, list(frame.columns))}")


def _suggestion(name: str, known: list[str]) -> str:
    """The end of a sentence about an unknown name."""
    if nearest := get_close_matches(name, known, 1):
        return f"; did you mean {nearest[0]!r}?"
    return f"; there is {', '.join(map(repr, known)) or 'none'}."


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(column: pd.Series, role: str) -> np.ndarray:
    """The finite values of a numeric column, NaN where missing."""
    if not _is_number(column) or pd.api.types.is_complex_dtype(column):
        raise ValueError(f"{role} {column.name!r} is not numeric: it holds {column.dtype}.")
    numbers = column.to_numpy(float, na_value=np.nan)
    _refuse(np.isinf(numbers), column, "is infinite")
    return numbers


def _levels(column: pd.Series) -> pd.Series:
    """The levels of a column of text, categories or truth values, as text."""
    _refuse(column.isna().to_numpy(), column, "is missing")
    if pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column):
        raise ValueError(f"column {column.name!r} holds times: turn them into numbers or categories.")
    return column.astype(object).map(str)


def _refuse(bad: np.ndarray, column: pd.Series, what: str) -> None:
    if bad.any():
        row = column.index[int(bad.argmax())]
        raise ValueError(f"column {column.name!r} {what} in row {row!r}: drop the row or fill the value in.")


def _centre_and_scale(numbers: np.ndarray, place: str, standardise: bool) -> tuple[float, float]:
    if not standardise:
        return 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        centre, scale = float(np.nanmean(numbers)), float(np.nanstd(numbers))
    if not np.isfinite(scale):
        raise ValueError(f"{place} has numbers too large to be standardised: give it in another unit.")
    if scale <= 8 * np.finfo(float).eps * np.nanmax(np.abs(numbers)):
        raise ValueError(f"{place} is constant and cannot be standardised: drop it, or use standardise=False.")
    return centre, scale


def _row_labels(frame: pd.DataFrame) -> np.ndarray:
    """The index in a form that files can hold: numbers and times as they are, the rest as text."""
    labels = frame.index.to_numpy()
    return labels if labels.dtype.kind in "biufM" else np.array([str(label) for label in labels])
