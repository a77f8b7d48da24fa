"""From the columns of a file to the data of a model, for the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslab.command_line.tables.coding import FileCoding, Reading
from bayeslab.command_line.tables.columns import (
    column,
    first_day,
    found_out,
    is_levels,
    refuse_empty,
    require_few_levels,
    require_known,
)
from bayeslab.command_line.tables.table_file import TextTable
from bayeslab.command_line.values import number_or_list
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
    values: for an argument a number or a list, as text. The number of rows is counted.
    Raises ValueError for what names nothing, and for columns that hold other things than the model takes.
    """
    require_known(table, reading.categorical, "--categorical")
    require_known(table, reading.dates, "--date")
    require_known(table, reading.drop, "--drop")
    sites = _sites(lecture)
    known = _known_names(lecture, sites)
    for name in [*columns, *values]:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{model_label(lecture)} has no argument or site '{name}'.{hint} It has {known}")
    reading = _with_first_days(table, reading)
    days = tuple(f"{name} is in days since {origin}" for name, origin in reading.dates.items())
    mapped = {name: mapped_columns(table, text, reading, sites.get(name)) for name, text in columns.items()}
    arguments = {name: number_or_list(name, text) for name, text in values.items()}
    coding = FileCoding(str(table.path), reading, dict(columns))
    if _is_regression(known, columns):
        others = _covariates_and_target(table, reading, columns)
        regression = _regression(lecture, table, others, target, coding, sites)
        data, notes = regression.data | mapped | arguments, (*days, *regression.notes)
        return FileData(data, _with_found(regression.coding, table), notes)
    if target is not None:
        raise ValueError(f"a target is for regressions on the rest; {model_label(lecture)} takes {known}: map these")
    named = _columns_by_name(table, reading, known, [*mapped, *values])
    if not mapped and not named:
        raise ValueError(
            f"no column is named like one of {known}; map one with --column NAME=COLUMN; "
            f"the columns are {list(table.columns)}"
        )
    by_name = {name: mapped_columns(table, name, reading, sites.get(name)) for name in named}
    coding = FileCoding(str(table.path), reading, {name: name for name in named} | dict(columns))
    return FileData(counted(lecture, table) | by_name | mapped | arguments, _with_found(coding, table), days)


def used_columns(
    lecture: ModuleType, table: TextTable, reading: Reading, columns: Mapping[str, str], values: Mapping[str, str]
) -> list[str]:
    """The columns that `model_data` makes the data of."""
    known = _known_names(lecture, _sites(lecture))
    mapped = [each for text in columns.values() for each in column_names(table, text)]
    if _is_regression(known, columns):
        return [*mapped, *_covariates_and_target(table, reading, columns)]
    return [*mapped, *_columns_by_name(table, reading, known, [*columns, *values])]


def counted(lecture: ModuleType, table: TextTable) -> dict[str, int]:
    """The argument of a model that is the number of rows, or of the steps of one sequence, with a row each."""
    parameters = signature(lecture.model).parameters
    names = ("num_rows",) if "num_sequences" in parameters else ("num_rows", "num_steps")
    return {name: table.num_rows for name in names if name in parameters}


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

    frame = pandas.DataFrame(index=table.labels if table.labels is not None else pandas.RangeIndex(table.num_rows))
    for name in names:
        frame[name] = column(table, name, coding.reading)
        if levels:
            refuse_empty(table, frame[name])
        if frame[name].isna().any():
            raise ValueError(
                f"column '{name}' of '{table.path}' is missing {_lines_of_missing(table, frame[name])}: fill it in, or "
                f"leave out the column with --drop {name} or such rows with --drop-missing"
            )
        if levels and is_levels(frame[name]):
            require_few_levels(frame[name], coding.reading)
    return frame


def _lines_of_missing(table: TextTable, series: "Series") -> str:
    """Where the first missing value of a column is, and how many more there are."""
    is_missing = series.isna().to_numpy()
    more = int(is_missing.sum()) - 1
    return f"in line {table.lines[int(is_missing.argmax())]}" + (f" and {more} more" if more else "")


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


def _known_names(lecture: ModuleType, sites: Mapping[str, Any]) -> list[str]:
    """The arguments and the sites of a lecture model."""
    return list(dict.fromkeys([*signature(lecture.model).parameters, *sites]))


def _is_regression(known: Iterable[str], columns: Mapping[str, str]) -> bool:
    """Whether x is made of all columns that are not mapped."""
    return "x" in known and "x" not in columns


def _covariates_and_target(table: TextTable, reading: Reading, columns: Mapping[str, str]) -> list[str]:
    """The columns of a regression: those neither mapped nor left out."""
    mapped = [each for text in columns.values() for each in column_names(table, text)]
    return [name for name in table.columns if name not in (*mapped, *reading.drop)]


def _columns_by_name(table: TextTable, reading: Reading, known: Iterable[str], given: Iterable[str]) -> list[str]:
    """The columns that are named like an argument or a site that has no values yet."""
    return [name for name in table.columns if name in known and name not in (*given, *reading.drop)]


def _with_first_days(table: TextTable, reading: Reading) -> Reading:
    """The reading with the first day of every column of dates."""
    return replace(reading, dates={name: first_day(table, name, reading) for name in reading.dates})


def _with_found(coding: FileCoding, table: TextTable) -> FileCoding:
    """The coding with what the cells of columns of numbers and dates told."""
    mapped = [name for text in coding.columns.values() for name in column_names(table, text)]
    others = [*mapped, coding.target] if coding.target else mapped
    names = [feature[1] for feature in coding.features if feature[0] == "number"]
    names += [name for name in others if not is_levels(column(table, name, coding.reading))]
    return replace(coding, reading=replace(coding.reading, found=found_out(table, names, coding.reading)))


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
    for name in covariates:
        if (standardise or is_levels(frame[name])) and _is_constant(frame[name]):
            same = table.columns[name][0].strip()
            raise ValueError(
                f"column '{name}' of '{table.path}' is constant, {same} in every row: leave it out with --drop {name}"
            )
    if is_classes:
        if response.isna().any():
            raise ValueError(
                f"target '{target}' of '{table.path}' is missing {_lines_of_missing(table, response)}: fill it in, or "
                "leave out such rows with --drop-missing"
            )
        _require_classes(lecture, response, support, coding.reading)
        if any(site.support == "ordered vector" for site in sites.values()) and is_levels(response):
            raise ValueError(_text_in_an_order(lecture, response))
        rows = classification_data(frame.assign(**{target: response}), target, **options)
    else:
        if is_levels(response):
            raise ValueError(_text_target(lecture, response))
        is_real = support == "real"  # counts and the like are no numbers of another unit
        if is_real and standardise and _is_constant(response):
            raise ValueError(f"target '{target}' of '{table.path}' is constant; expected numbers that differ")
        options["standardise_target"] = standardise and is_real
        rows = regression_data(frame.assign(**{target: response}), target, **options)
    x, y = rows["x"], rows["y"]
    classes = tuple(y.attrs.get("classes", ())) if is_classes else ()
    centre, scale = (0.0, 1.0) if is_classes else (float(x["y_centre"]), float(x["y_scale"]))
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
    coding = replace(coding, target=target, features=features, y_centre=centre, y_scale=scale, classes=classes,
                     signed=signed, is_vector=is_vector)  # fmt: skip
    codes = ", ".join(f"{code * 2 - 1 if signed else code} is {name}" for code, name in enumerate(classes))
    return FileData(data, coding, (f"classes of {target}: {codes}",) if classes else ())


def _is_constant(series: "Series") -> bool:
    """Whether a column has one level, or numbers that differ by no more than rounding."""
    present = series.dropna()
    if is_levels(series) or present.empty:
        return present.nunique() == 1
    numbers = present.to_numpy(float)
    return bool(numbers.std() <= 8 * np.finfo(float).eps * abs(numbers).max())


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
    is_whole = values.dtype.kind == "f" and np.isfinite(values).all() and (values % 1 == 0).all()
    return series.astype(int) if is_whole and (abs(values) < 2**53).all() else series
