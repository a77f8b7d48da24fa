"""From the columns of a file to the data of a model, for the command line."""

import json
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslab.command_line.coding import FileCoding
from bayeslab.command_line.columns import (
    Reading,
    column,
    first_day,
    is_levels,
    refuse_empty,
    require_few_levels,
    require_known,
)
from bayeslab.command_line.table_file import TextTable
from bayeslab.programs.arguments import signature
from bayeslab.programs.binding import bind, suggestion
from bayeslab.programs.program import precision_scope

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MODELS_OF_CLASSES = "logistic_regression (2 classes) or softmax_regression"
"""The models that a message names to those whose target holds classes."""
MAX_CLASSES_NAMED = 6
"""The most classes that a message names."""


class FileData(NamedTuple):
    """The data of a model, how they were made, and sentences on it."""

    data: dict[str, Any]
    coding: FileCoding
    notes: tuple[str, ...] = ()


def model_data(
    lecture: ModuleType,
    table: TextTable,
    reading: Reading,
    target: str | None,
    columns: Mapping[str, str],
    values: Mapping[str, str],
) -> FileData:
    """The data of a lecture model: columns named like its arguments and sites, or mapped to them.

    target: the response of a regression, on all columns that are not mapped.
    columns: for an argument or a site its column, or its columns separated by commas.
    values: for an argument a number or a list, as text. `num_rows` is counted.
    Raises ValueError for what names nothing, and for columns that hold other things than the model takes.
    """
    require_known(table, reading.categorical, "--categorical")
    require_known(table, reading.dates, "--date")
    require_known(table, reading.drop, "--drop")
    sites = _sites(lecture)
    known = list(dict.fromkeys([*signature(lecture.model).parameters, *sites]))
    for name in [*columns, *values]:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{model_label(lecture)} has no argument or site '{name}'.{hint} It has {known}")
    reading = _with_first_days(table, reading)
    days = tuple(f"{name} is in days since {origin}" for name, origin in reading.dates.items())
    mapped = {name: mapped_columns(table, text, reading, sites.get(name)) for name, text in columns.items()}
    arguments = {name: _parse_value(name, text) for name, text in values.items()}
    coding = FileCoding(str(table.path), reading, dict(columns))
    used = [each for text in columns.values() for each in column_names(table, text)]
    if "x" in known and "x" not in mapped:
        others = [name for name in table.columns if name not in (*used, *reading.drop)]
        regression = _regression(lecture, table, others, target, coding, sites)
        return regression._replace(data=regression.data | mapped | arguments, notes=(*days, *regression.notes))
    if target is not None:
        raise ValueError(f"a target is for regressions; {model_label(lecture)} takes {known}: map columns to those")
    named = [name for name in table.columns if name in known and name not in (*mapped, *values, *reading.drop)]
    if not mapped and not named:
        raise ValueError(
            f"no column is named like one of {known}; map one with --column NAME=COLUMN; "
            f"the columns are {list(table.columns)}"
        )
    by_name = {name: mapped_columns(table, name, reading, sites.get(name)) for name in named}
    sizes = {"num_rows": table.num_rows} if "num_rows" in known else {}
    coding = FileCoding(str(table.path), reading, {name: name for name in named} | dict(columns))
    return FileData(sizes | by_name | mapped | arguments, coding, days)


def mapped_columns(table: TextTable, text: str, reading: Reading, site: Any = None) -> Any:
    """One column as a Series, or several numeric ones as a table.

    site: that it gives values to. Raises ValueError for text where numbers that are no codes are expected.
    """
    import pandas

    names = column_names(table, text)
    read = [column(table, name, reading) for name in names]
    if len(read) == 1:
        if is_levels(read[0]) and site is not None and not site.is_discrete:
            raise ValueError(f"column '{names[0]}' holds text, and site '{site.name}' of the model takes numbers")
        return _without_gaps_as_integers(read[0])
    if wrong := [name for name, series in zip(names, read, strict=True) if is_levels(series)]:
        raise ValueError(f"column '{wrong[0]}' does not hold numbers; columns that form a table must")
    return pandas.DataFrame(dict(zip(names, map(_without_gaps_as_integers, read), strict=True)))


def column_names(table: TextTable, text: str) -> list[str]:
    """The columns that NAME=text names."""
    names = [text] if text in table.columns else text.split(",")
    require_known(table, names)
    return names


def covariate_frame(table: TextTable, names: list[str], coding: FileCoding, *, levels: bool = True) -> "DataFrame":
    """The covariates as a DataFrame.

    levels: whether columns without a value, and those of many levels, are refused, as at a fit.
    """
    import pandas

    index = table.labels if table.labels is not None else pandas.RangeIndex(table.num_rows)
    frame = pandas.DataFrame(index=index)
    for name in names:
        frame[name] = column(table, name, coding.reading)
        if levels:
            refuse_empty(table, frame[name])
        if frame[name].isna().any():
            line, more = table.lines[int(frame[name].isna().to_numpy().argmax())], int(frame[name].isna().sum()) - 1
            raise ValueError(
                f"column '{name}' of '{table.path}' is missing in line {line}{f' and {more} more' if more else ''}: "
                f"fill it in, or leave out the column with --drop {name} or such rows with --drop-missing"
            )
        if levels and is_levels(frame[name]):
            require_few_levels(frame[name], coding.reading)
    return frame


def without_missing(table: TextTable, names: list[str], reading: Reading) -> tuple[TextTable, str]:
    """The rows that have all of these columns, and a sentence on how many have not."""
    kept = np.ones(table.num_rows, bool)
    for name in names:
        series = column(table, name, reading)
        refuse_empty(table, series)
        kept &= series.notna().to_numpy()
    if kept.all():
        return table, "no row has missing values"
    if not kept.any():
        raise ValueError(f"every row of '{table.path}' has a missing value, so --drop-missing leaves none")
    places = np.flatnonzero(kept)
    columns = {name: [cells[place] for place in places] for name, cells in table.columns.items()}
    labels = None if table.labels is None else [table.labels[place] for place in places]
    lines = [table.lines[place] for place in places]
    said = f"{table.num_rows - len(places)} of {table.num_rows} rows have a missing value and are left out"
    return table._replace(columns=columns, labels=labels, lines=lines), said


def model_label(lecture: ModuleType) -> str:
    """A model as messages name it."""
    return f"model '{lecture.__name__.rpartition('.')[2]}'"


def _sites(lecture: ModuleType) -> Mapping[str, Any]:
    """The sites of a lecture model on its example."""
    with precision_scope():
        return bind(lecture.model, lecture.example()).plain.sites


def _with_first_days(table: TextTable, reading: Reading) -> Reading:
    """The reading with the first day of every column of dates."""
    from dataclasses import replace

    return replace(reading, dates={name: first_day(table, name, reading) for name in reading.dates})


def _regression(
    lecture: ModuleType, table: TextTable, names: list[str], target: str | None, coding: FileCoding, sites: Any
) -> FileData:
    """The inputs and the response of a regression or a classifier."""
    from bayeslab.datasets import classification_data, regression_data

    if target is None:
        raise ValueError(f"name the response with --target COLUMN; the columns are {list(table.columns)}")
    require_known(table, [target], "--target")
    covariates = [name for name in names if name != target]
    frame, response = covariate_frame(table, covariates, coding), column(table, target, coding.reading)
    example, parameters = lecture.example(), signature(lecture.model).parameters
    support = sites["y"].support if "y" in sites else "boolean"
    inputs_are_drawn = "x" in sites
    standardise = not (inputs_are_drawn and sites["x"].is_discrete)
    options = {"intercept": _has_intercept(example, sites, support), "standardise": standardise}
    is_classes = support in ("boolean", "integer interval")
    if is_classes:
        _require_classes(lecture, response, support, coding.reading)
        if any(site.support == "ordered vector" for site in sites.values()) and is_levels(response):
            raise ValueError(_text_in_an_order(lecture, response))
        rows = classification_data(frame.assign(**{target: response}), target, **options)
    else:
        if is_levels(response):
            raise ValueError(_text_target(lecture, response))
        rows = regression_data(frame.assign(**{target: response}), target, **options)
    x, y = rows["x"], rows["y"]
    classes = tuple(y.attrs.get("classes", ())) if is_classes else ()
    centre, scale = (0.0, 1.0) if is_classes else (float(x["y_centre"]), float(x["y_scale"]))
    if not is_classes and support != "real":  # counts and the like are no numbers of another unit
        y, centre, scale = y.copy(data=response.to_numpy(float)), 0.0, 1.0
    signed = is_classes and set(np.unique(example["y"])) == {-1.0, 1.0}
    if signed:
        y = 2.0 * y - 1.0
    from bayeslab.datasets.regression import Feature

    features = tuple(zip(*(x[name].values.tolist() for name in Feature._fields), strict=True))
    is_vector = np.ndim(example["x"]) == 1 and len(features) == 1
    if is_vector:
        x = x.isel(feature=0, drop=True)
    sizes = {"num_rows": len(y), "num_features": len(features), "num_classes": len(classes)}
    data = {"x": x, "y": y} | {name: size for name, size in sizes.items() if name in parameters and size}
    coding = FileCoding(**vars(coding) | {
        "target": target, "features": features, "y_centre": centre, "y_scale": scale, "classes": classes,
        "signed": signed, "is_vector": is_vector,
    })  # fmt: skip
    codes = ", ".join(f"{code * 2 - 1 if signed else code} is {name}" for code, name in enumerate(classes))
    return FileData(data, coding, (f"classes of {target}: {codes}",) if classes else ())


def _has_intercept(example: Mapping[str, Any], sites: Mapping[str, Any], support: str) -> bool:
    """Whether x gets a column of ones: as in the example, and for classes where the model has no intercept itself."""
    if "x" in sites or {"intercept", "cuts"} & sites.keys() or "w" not in sites:
        return False
    x = np.asarray(example["x"])
    return x.ndim == 2 and (bool((x == 1).all(0).any()) or support == "boolean")


def _require_classes(lecture: ModuleType, response: "Series", support: str, reading: Reading) -> None:
    """Raise ValueError for a target that does not hold the classes that a model takes."""
    classes = sorted(map(str, response.dropna().unique()))
    named = ", ".join(classes[:MAX_CLASSES_NAMED]) + (", ..." if len(classes) > MAX_CLASSES_NAMED else "")
    what = f"target '{response.name}' has {len(classes)} different values ({named})"
    if support == "boolean" and len(classes) != 2:
        raise ValueError(
            f"{what}; {model_label(lecture)} takes two classes: softmax_regression takes several, linear_regression "
            "takes numbers"
        )
    if is_levels(response):
        require_few_levels(response, reading)
    elif len(classes) > 20 and response.name not in reading.categorical:
        raise ValueError(
            f"{what}, too many for classes: linear_regression takes numbers; --categorical {response.name} takes each "
            "for a class"
        )


def _named(response: "Series") -> str:
    """The first classes of a target of text."""
    classes = sorted(response.dropna().unique())
    return ", ".join(map(repr, classes[:MAX_CLASSES_NAMED])) + (", ..." if len(classes) > MAX_CLASSES_NAMED else "")


def _text_in_an_order(lecture: ModuleType, response: "Series") -> str:
    """The sentence on a target of text whose classes have an order."""
    return (
        f"target '{response.name}' holds text ({_named(response)}), and {model_label(lecture)} is of classes in an "
        "order, which letters do not tell; write them as numbers, from 0 for the lowest"
    )


def _text_target(lecture: ModuleType, response: "Series") -> str:
    """The sentence on a target of text where numbers are needed."""
    return (
        f"target '{response.name}' holds text, {response.nunique()} classes: {_named(response)}; "
        f"{model_label(lecture)} takes numbers, and classes are for {MODELS_OF_CLASSES}"
    )


def _without_gaps_as_integers(series: "Series") -> "Series":
    """Whole numbers as integers, which counts and codes are."""
    values = series.to_numpy()
    if (
        values.dtype.kind == "f"
        and np.isfinite(values).all()
        and (values % 1 == 0).all()
        and (abs(values) < 2**53).all()
    ):
        return series.astype(int)
    return series


def _parse_value(name: str, text: str) -> Any:
    """The number or list of numbers that a text stands for. Raises ValueError where it stands for none."""
    with suppress(json.JSONDecodeError):
        if _is_numeric(value := json.loads(text)):
            return value
    raise ValueError(f"'{name}' takes a number or a list of numbers such as [1, 2], not '{text}'")


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number, true or false, or a list of such values."""
    return all(map(_is_numeric, value)) if isinstance(value, list) else isinstance(value, int | float)
