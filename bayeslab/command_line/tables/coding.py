"""How a file became the data of a fit, kept in its result, so that new files are read the same and numbers find their
way back to the units of the file."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.command_line.tables.table_file import TextTable

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree

ATTRIBUTE = "table_coding"
"""The attribute of a result that has the coding as JSON."""
DAY_FIRST, MONTH_FIRST = "day first", "month first"
"""The orders of dates that do not begin with the year."""
LISTS = ("missing", "categorical", "drop")
"""What `Reading` has several of, in any order."""
PARTS = {
    "columns": "the columns that arguments and sites take",
    "target": "the target",
    "features": "the units or the levels of covariates",
    "y_centre": "the units of the target",
    "y_scale": "the units of the target",
    "classes": "the classes of the target",
    "signed": "the codes of classes",
    "is_vector": "the axes of x",
    "reading": "what was said of columns",
}
"""What a coding consists of, and what messages call it."""
ENTRY_PATTERN = re.compile(r"(?:entry|argument) '([^']+)'")
POSITION_PATTERN = re.compile(r"at position \((\d+),?(?: (\d+))?\)")
"""What messages on data in Python say of where something is."""


@dataclass(frozen=True)
class Reading:
    """What the user says of columns.

    missing: cells that are missing values. categorical: columns of levels whatever is in them. dates: columns of dates,
    by their names, and the day from which days are counted, None for the first. drop: columns that are left out.
    decimal, thousands: the signs in numbers, empty to find out. found: by column, what a fit found out, for the columns
    of new rows: of numbers the decimal sign, empty where there was none; of dates `DAY_FIRST` or `MONTH_FIRST`.
    """

    missing: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    dates: Mapping[str, str | None] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    decimal: str = ""
    thousands: str = ""
    found: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileCoding:
    """How the columns of a file became the data of a model.

    reading: what was said of the columns. columns: of arguments and sites. target: of a regression, empty elsewhere.
    features: of x, the fields of `bayeslab.datasets.regression.Feature`. y_centre, y_scale: of the target; y in the
    fit is (y - y_centre) / y_scale. classes: of the target, by their codes. signed: whether the codes are -1 and 1.
    is_vector: x has no axis of features.
    """

    table: str
    reading: Reading
    columns: dict[str, str] = field(default_factory=dict)
    target: str = ""
    features: tuple[tuple[Any, ...], ...] = ()
    y_centre: float = 0.0
    y_scale: float = 1.0
    classes: tuple[str, ...] = ()
    signed: bool = False
    is_vector: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def names(self) -> list[str]:
        """The names of features."""
        from bayeslab.datasets.regression import Feature

        return [Feature(*feature).name for feature in self.features]

    @property
    def covariates(self) -> list[str]:
        """The columns that x is made of."""
        return list(dict.fromkeys(feature[1] for feature in self.features if feature[0] != "intercept"))

    @property
    def levels(self) -> dict[str, list[str]]:
        """The levels of the columns that have some, the one without a coefficient first."""
        found: dict[str, list[str]] = {}
        for kind, name, level, baseline, *_ in self.features:
            if kind == "level":
                found.setdefault(name, [baseline]).append(level)
        return found

    @property
    def is_standardised(self) -> bool:
        """Whether a number of the fit is another one in the file."""
        features = any((feature[4], feature[5]) != (0.0, 1.0) for feature in self.features)
        return features or (self.y_centre, self.y_scale) != (0.0, 1.0)

    def coded_data(self) -> dict[str, "DataArray"]:
        """What `bayeslab.datasets.new_rows` takes as the data of the fit."""
        from xarray import DataArray

        from bayeslab.datasets.regression import Feature

        fields = zip(*self.features, strict=True)
        coords = {name: ("feature", list(values)) for name, values in zip(Feature._fields, fields, strict=True)}
        scales = {"y_centre": self.y_centre, "y_scale": self.y_scale}
        x = DataArray(
            np.zeros((0, len(self.features))), {"feature": self.names, **coords, **scales}, dims=("row", "feature")
        )
        return {"x": x}


def file_coding_of(tree: "DataTree") -> FileCoding | None:
    """The coding that a result holds, None where it has none."""
    if ATTRIBUTE not in tree.attrs:
        return None
    saved = json.loads(tree.attrs[ATTRIBUTE])
    reading = saved.pop("reading")
    lists = {name: tuple(reading[name]) for name in LISTS}
    saved["features"] = tuple(map(tuple, saved["features"]))
    return FileCoding(**saved | {"reading": Reading(**reading | lists), "classes": tuple(saved["classes"])})


def common_coding(codings: Mapping[str, FileCoding | None]) -> FileCoding | None:
    """The coding of several results by name, apart from the paths of their files. Raises ValueError where they differ.

    What was said of columns in another order is the same.
    """
    first, *others = codings
    for other in others:
        one, another = codings[first], codings[other]
        if one is None and another is None:
            continue
        if one is None or another is None:
            lacking = first if one is None else other
            raise ValueError(f"{lacking} does not say how its columns were read, as other results to join do")
        if different := _differing(one, another):
            raise ValueError(
                f"{first} and {other} differ in {different[0]}; chains to join are of the same columns in the same "
                "units, read with the same options"
            )
    return codings[first]


def _differing(one: FileCoding, another: FileCoding) -> list[str]:
    """What differs between two codings, apart from the paths of the files."""
    parts = [asdict(coding) for coding in (one, another)]
    for part in parts:
        part["reading"] |= {name: set(part["reading"][name]) for name in LISTS}
    return [said for name, said in PARTS.items() if parts[0][name] != parts[1][name]]


def in_terms_of_file(message: str, table: TextTable, coding: FileCoding) -> str:
    """A message of a fit or a prediction with the column and the line of what it calls an entry at a position."""
    entry, position = ENTRY_PATTERN.search(message), POSITION_PATTERN.search(message)
    if entry is None or position is None:
        return message
    of_regression = {"y": [coding.target], "x": [feature[1] for feature in coding.features]} if coding.features else {}
    mapped = {name: [text] if text in table.columns else text.split(",") for name, text in coding.columns.items()}
    names = (of_regression | mapped).get(entry[1], [])
    row, place = int(position[1]), int(position[2] or 0)
    if row >= table.num_rows or place >= len(names):
        return message
    column, where = f"column '{names[place]}' of '{table.path}'", f"in line {table.lines[row]}"
    if "missing entry" in message:
        return f"{column} is missing {where}: fill it in, or leave out such rows with --drop-missing"
    return message.replace(position[0], where, 1).replace(entry[0], column, 1)


def in_original_units(posterior: "Dataset", coding: FileCoding) -> "Dataset | None":
    """The coefficients, and the standard deviation of the noise, in the units of the file.

    w (..., feature) of a linear predictor, with what takes up the shift of columns: the intercept among features, the
    site intercept, the cuts of an ordered regression, or an intercept of its own. None where nothing was standardised,
    or the posterior has no such coefficients.
    """
    from xarray import Dataset

    from bayeslab.datasets.regression import Feature, coefficients_in_units

    names = coding.names
    if not coding.is_standardised or "w" not in posterior or "feature" not in posterior["w"].dims:
        return None
    w = posterior["w"]
    if w["feature"].values.tolist() != names:
        return None
    features = [Feature(*feature) for feature in coding.features]
    slopes, shift = coefficients_in_units(w, features, coding.y_centre, coding.y_scale)
    result: dict[str, Any] = {"w": slopes}
    has_intercept = any(feature.is_intercept for feature in features)
    if not has_intercept and "cuts" in posterior:
        result["cuts"] = posterior["cuts"] - shift
    elif not has_intercept:
        own = posterior["intercept"] * coding.y_scale if "intercept" in posterior else 0.0
        result["intercept"] = own + shift
    if "tau" in posterior and posterior["tau"].dims == ("chain", "draw"):
        result["sigma"] = coding.y_scale / np.sqrt(posterior["tau"])
    return Dataset(result)
