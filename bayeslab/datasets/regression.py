"""From a table to the data of a regression, and from draws of its coefficients back to the table's units.

How each column of x was made travels with it as coordinates along `feature`, so that new rows are coded
in the same way and coefficients find their way back.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from bayeslab.datasets.arguments import require_flags
from bayeslab.formulas.coding import Coding, coded_rows, coding_from_text, coding_of
from bayeslab.formulas.design import Design
from bayeslab.formulas.parsing import is_formula
from bayeslab.formulas.tables import (
    centre_and_scale,
    checked_frame,
    is_number,
    levels_of,
    numbers_of,
    refuse_rows,
    require_columns,
    row_labels,
    suggestion,
)


def regression_data(
    frame: pd.DataFrame,
    target: str,
    *,
    intercept: bool = True,
    standardise: bool = True,
    standardise_target: bool | None = None,
) -> Any:
    """The data of a regression of one column of a table on others: x (row, feature) and y (row,).

    frame: numeric columns are taken as they are; columns of text, categories and truth values become one
        column of zeros and ones for each level but the first, named "column[level]". Its index labels
        the rows. Missing values of the target stay missing responses; no covariate may be missing.
    target: the name of the response, a numeric column, which is regressed on all others; or a formula, such as
        "y ~ x1 * x2 + bs(age, 4) + C(site)", as formulaic reads it. With group terms, as in
        "y ~ x + (1 + x | site)", the data are those of `mixed_regression` and `mixed_glm`.
    intercept: put a column of ones first, named "intercept"; a formula has one unless it adds 0.
    standardise: give the numeric columns and y mean 0 and standard deviation 1 (with divisor n); of a formula, the
        columns that are not made of levels alone, and without an intercept the deviation only.
    standardise_target: the same for y alone, where it differs: False for counts.
    Along feature, the coordinates kind, column, level, baseline, centre and scale say what was done;
    y_centre and y_scale say it for y. Weights of the rows: data.assign(weights=("row", numbers)).
    A fit of what a formula made remembers it: `bl.predict` takes a table with the columns of the formula.
    Returns a Dataset; with group terms a dict, in which group, num_groups and design have an entry for each factor.
    Raises TypeError for what is no DataFrame, ValueError for a table that cannot be coded.
    """
    standardise_target = standardise if standardise_target is None else standardise_target
    require_flags(intercept=intercept, standardise=standardise, standardise_target=standardise_target)
    frame = checked_frame(frame)
    if is_formula(str(target), frame.columns):
        refuse_no_intercept(intercept)
        return formula_data(coding_of(target, frame, (standardise, standardise_target)), frame)
    require_columns(frame, [str(target)], "target ")
    response = numbers_of(frame[str(target)], "target")
    if np.isnan(response).all():
        raise ValueError(f"target {target!r} has no value: all its rows are missing.")
    y_centre, y_scale = centre_and_scale(response, f"target {str(target)!r}", standardise_target)

    features = [Feature("intercept")] if intercept else []
    for name in frame.columns.drop(str(target)):
        features += _features(frame[name], standardise)
    names = [feature.name for feature in features]
    if not names:
        raise ValueError("there is nothing to regress on: give a covariate, or keep the intercept.")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two features would be named {repeated[0]!r}: rename a column.")

    return xr.Dataset(
        {"x": (("row", "feature"), _design_matrix(frame, features)), "y": ("row", (response - y_centre) / y_scale)},
        coords={"row": row_labels(frame), "feature": names, "y_centre": y_centre, "y_scale": y_scale}
        | _feature_coords(features),
    )


def formula_data(coding: Coding, frame: pd.DataFrame) -> Any:
    """The data that a formula makes of the table that it was learnt from, in the form of `regression_data`."""
    design, response = coding.fixed, coding.response
    features = _features_of_design(design)
    data = coded_rows(coding, frame)
    scales = {} if response.classes else {"y_centre": response.centre, "y_scale": response.scale}
    dataset = xr.Dataset({"x": data.pop("x"), "y": data.pop("y")}, coords=scales | _feature_coords(features))
    return {"x": dataset["x"], "y": dataset["y"]} | data if coding.groups else dataset


def _features_of_design(design: Design) -> "list[Feature]":
    """The columns that a formula makes."""
    return [
        Feature("intercept") if name == "intercept" else Feature("term", name, "", "", centre, scale)
        for name, centre, scale in zip(design.names, design.centre, design.scale, strict=True)
    ]


def refuse_no_intercept(intercept: bool) -> None:
    if not intercept:
        raise ValueError("a formula says itself that there is no intercept: add 0 to its right side.")


def _feature_coords(features: "list[Feature]") -> dict[str, Any]:
    return {field: ("feature", [getattr(feature, field) for feature in features]) for field in Feature._fields}


def new_rows(frame: pd.DataFrame, data: Mapping[Any, Any]) -> Any:
    """The covariates x (row, feature) of new rows, coded as those of `data`, for predictions.

    frame: the columns that `data` was made from, in any order; others, as the target, are ignored.
    data: what `regression_data` returned.
    Raises ValueError for a missing column, a missing value or a level that `data` has not seen. Of data that a formula
    made, all that it makes of the rows is returned, with new groups beside those of the fit.
    """
    if text := _formula_of(data):
        rows = coded_rows(coding_from_text(text), frame)
        return rows if "group" in rows else xr.Dataset({"x": rows["x"]})
    frame, features = checked_frame(frame), _features_of(data)
    require_columns(frame, dict.fromkeys(feature.column for feature in features if not feature.is_intercept), "")
    for column in dict.fromkeys(feature.column for feature in features if feature.kind == "level"):
        known = [feature.level for feature in features if (feature.kind, feature.column) == ("level", column)]
        baseline = next(feature.baseline for feature in features if (feature.kind, feature.column) == ("level", column))
        unknown = ~levels_of(frame[column]).isin([baseline, *known])
        if unknown.any():
            row, level = unknown.idxmax(), levels_of(frame[column])[unknown].iloc[0]
            hint = suggestion(level, [baseline, *known])
            raise ValueError(f"column {column!r} has the unknown level {level!r} in row {row!r}{hint}")
    return xr.Dataset(
        {"x": (("row", "feature"), _design_matrix(frame, features))},
        coords={"row": row_labels(frame)} | dict(data["x"].coords["feature"].coords),
    )


def original_scale(tree: xr.DataTree, data: Mapping[Any, Any]) -> xr.Dataset:
    """Draws of the coefficients w (chain, draw, feature), and of effects of groups, in the units of the table.

    tree: the result of a fit, whose posterior has w and perhaps the precision tau or the deviation sigma of the noise.
    data: what `regression_data` returned and the fit was given.
    With either there is also sigma (chain, draw), the standard deviation of the noise (of a row of weight 1).
    Of data that a formula with group terms made, FACTOR_effect (chain, draw, FACTOR, FACTOR_term) is what a group adds
    to the coefficients. What centring a column takes from a slope is in the intercept of the same group.
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

    y_centre, y_scale = (
        float(data["x"].coords[name]) if name in data["x"].coords else default
        for name, default in (("y_centre", 0.0), ("y_scale", 1.0))
    )
    has_intercept = any(feature.is_intercept for feature in features)
    if not has_intercept and (y_centre != 0 or any(feature.centre != 0 for feature in features)):
        raise ValueError(
            "the data were centred and have no intercept to take up the shift: "
            "make them with intercept=True or standardise=False."
        )
    draws = draws.drop_vars([name for name in draws.coords if name not in draws.dims])
    result: dict[str, Any] = {"w": coefficients_in_units(draws, features, y_centre, y_scale)[0]}
    if "tau" in posterior:
        result["sigma"] = y_scale / np.sqrt(posterior["tau"])
    elif "sigma" in posterior:
        result["sigma"] = y_scale * posterior["sigma"]
    return xr.Dataset(result | _effects_in_units(posterior, data, y_scale))


def _effects_in_units(posterior: xr.Dataset, data: Mapping[Any, Any], y_scale: float) -> dict[str, Any]:
    """The effects of the groups that a formula made, by site, in the units of the table."""
    groups = coding_from_text(text).groups if (text := _formula_of(data)) else {}
    effects = {}
    for factor, grouping in groups.items():
        site, term = f"{factor}_effect", f"{factor}_term"
        if site in posterior:
            features = _features_of_design(grouping.design)
            names = [feature.name for feature in features]
            draws = posterior[site]
            if draws.dims[-1] != term or draws[term].values.tolist() != names:
                raise ValueError(
                    f"the terms of {site} are not those of data: give the data of the fit, with its labels."
                )
            in_units = coefficients_in_units(draws.rename({term: "feature"}), features, 0.0, y_scale)[0]
            effects[site] = in_units.rename({"feature": term})
    return effects


def coefficients_in_units(
    w: xr.DataArray, features: "Sequence[Feature]", y_centre: float, y_scale: float
) -> tuple[xr.DataArray, xr.DataArray]:
    """Coefficients w (..., feature) in the units of the table, and the shift (...) that the centring of columns and of
    the response leaves, which the intercept among the features has in it already."""
    names = [feature.name for feature in features]
    centre, scale, intercept = (
        xr.DataArray([getattr(feature, field) for feature in features], {"feature": names})
        for field in ("centre", "scale", "is_intercept")
    )
    slopes = w * y_scale / scale
    shift = y_centre - (slopes * centre).sum("feature")
    return (slopes + intercept * shift).transpose(*w.dims), shift


KINDS = ("intercept", "number", "level", "term")


class Feature(NamedTuple):
    """How a column of x is made; its kind is "intercept", "number", "level" or "term"."""

    kind: str
    column: str = ""  # of the table, or the name of a term of a formula
    level: str = ""  # coded as one
    baseline: str = ""  # the level without a column
    centre: float = 0.0
    scale: float = 1.0

    @property
    def name(self) -> str:
        return {"intercept": "intercept", "level": f"{self.column}[{self.level}]"}.get(self.kind, self.column)

    @property
    def is_intercept(self) -> bool:
        return self.kind == "intercept"

    @property
    def is_valid(self) -> bool:
        """Whether its fields are possible: they may have been read from anything."""
        is_text = all(isinstance(text, str) for text in self[:4]) and self.kind in KINDS
        is_number = all(isinstance(number, float) and np.isfinite(number) for number in self[4:])
        return is_text and is_number and self.scale > 0

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The column of x (row,) for the rows of a table."""
        if self.is_intercept:
            return np.ones(len(frame))
        if self.kind == "level":
            return (levels_of(frame[self.column]) == self.level).to_numpy(float)
        numbers = numbers_of(frame[self.column], "column")
        refuse_rows(np.isnan(numbers), frame[self.column], "is missing")
        return (numbers - self.centre) / self.scale


def _features(column: pd.Series, standardise: bool) -> list[Feature]:
    """The features, columns of x, that a column of the table gives."""
    name = str(column.name)
    if is_number(column):
        numbers = numbers_of(column, "column")
        refuse_rows(np.isnan(numbers), column, "is missing")
        return [Feature("number", name, "", "", *centre_and_scale(numbers, f"column {name!r}", standardise))]
    present = levels_of(column)
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
    scaled = ("y_centre", "y_scale") if not _has_classes(data) else ()
    dims = dict.fromkeys(Feature._fields, ("feature",)) | dict.fromkeys(scaled, ())
    if all(name in coords and coords[name].dims == axes for name, axes in dims.items()):
        columns = (coords[name].values.tolist() for name in Feature._fields)
        features = [Feature(*feature) for feature in zip(*columns, strict=True)]
        centre, scale = (coords[name].item() for name in scaled) if scaled else (0.0, 1.0)
        scales = Feature("number", centre=centre, scale=scale)
        if all(feature.is_valid for feature in (*features, scales)):
            return features
    raise ValueError("data does not say how its x was coded: make it with regression_data.")


def _has_classes(data: Mapping[Any, Any]) -> bool:
    """Whether the response is one of classes, which have no units."""
    y = data.get("y")
    return isinstance(y, xr.DataArray) and "classes" in y.attrs


def _formula_of(data: Any) -> str:
    """The formula that made data, with what it learnt, as text; empty where none did."""
    x = data.get("x") if isinstance(data, Mapping) else None
    return x.attrs.get("formula", "") if isinstance(x, xr.DataArray) else ""


def _design_matrix(frame: pd.DataFrame, features: list[Feature]) -> np.ndarray:
    return np.stack([feature.values(frame) for feature in features], axis=1)
