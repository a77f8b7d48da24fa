"""From the columns of a CSV file to the data of a model, for the command line."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bayeslab.programs.arguments import signature
from bayeslab.programs.binding import bind, suggestion
from bayeslab.programs.program import precision_scope

if TYPE_CHECKING:
    from pandas import DataFrame


def read_table(path: Path) -> "DataFrame":
    """The table of a CSV file; a first column without a name labels the rows.

    Raises OSError for a file that is not there, ValueError for one that is no table or has no rows.
    """
    import pandas

    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'")
    try:
        frame = pandas.read_csv(path)
    except ValueError as error:
        raise ValueError(f"cannot read '{path}' as CSV: {error}") from error
    if frame.empty:
        raise ValueError(f"'{path}' has no rows")
    if frame.columns[0] == "Unnamed: 0":
        frame = frame.set_index("Unnamed: 0").rename_axis(None)
    return frame


def model_data(
    lecture: ModuleType, frame: "DataFrame", target: str | None, columns: Mapping[str, str], values: Mapping[str, str]
) -> dict[str, Any]:
    """The data of a lecture model: columns named like its arguments and sites, or mapped to them.

    target: the response of a regression, on all columns that are not mapped.
    columns: for an argument or a site its column, or its columns separated by commas.
    values: for an argument a number or a list, as text. `num_rows` is counted.
    Raises ValueError for what names nothing.
    """
    with precision_scope():
        sites = list(bind(lecture.model, lecture.example()).sites)
    known = [*signature(lecture.model).parameters, *sites]
    for name in [*columns, *values]:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{_model_label(lecture)} has no argument or site '{name}'.{hint} It has {known}")
    mapped = {name: _read_columns(frame, text) for name, text in columns.items()}
    arguments = {name: _parse_value(name, text) for name, text in values.items()}
    if "x" in known and "x" not in mapped:
        other_columns = frame.drop(columns=[column for table in mapped.values() for column in _column_names(table)])
        return _regression(other_columns, target) | mapped | arguments
    if target is not None:
        raise ValueError(f"a target is for regressions; {_model_label(lecture)} takes {known}: map columns to those")
    named_columns = {str(name): frame[name] for name in frame.columns if name in known and name not in mapped}
    if not mapped | named_columns:
        raise ValueError(
            f"no column is named like one of {known}; map one with --column NAME=COLUMN; "
            f"the columns are {list(frame.columns)}"
        )
    sizes = {"num_rows": len(frame)} if "num_rows" in known else {}
    return sizes | named_columns | mapped | arguments


def _regression(frame: "DataFrame", target: str | None) -> dict[str, Any]:
    """The inputs and the response of a regression. Raises ValueError without a target."""
    from bayeslab.datasets import regression_data

    if target is None:
        raise ValueError(f"name the response with --target COLUMN; the columns are {list(frame.columns)}")
    table = regression_data(frame, target)
    return {"x": table["x"], "y": table["y"]}


def _read_columns(frame: "DataFrame", text: str) -> Any:
    """One column as a Series, or several numeric ones as a table."""
    names = [text] if text in frame.columns else text.split(",")
    for name in names:
        if name not in frame.columns:
            columns = list(map(str, frame.columns))
            raise ValueError(f"there is no column '{name}'.{suggestion(name, columns)} The columns are {columns}")
    if len(names) == 1:
        return frame[names[0]]
    if wrong := [name for name in names if frame[name].dtype.kind not in "iuf"]:
        raise ValueError(f"column '{wrong[0]}' does not hold numbers; columns that form a table must")
    return frame[names].rename_axis(columns=None)


def _column_names(table: Any) -> list[str]:
    """The columns that a Series or a table is made of."""
    return [table.name] if table.ndim == 1 else list(table.columns)


def _parse_value(name: str, text: str) -> Any:
    """The number or list of numbers that a text stands for. Raises ValueError where it stands for none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"'{name}' takes a number or a list of numbers such as [1, 2], not '{text}'") from None


def _model_label(lecture: ModuleType) -> str:
    """A model as messages name it."""
    return f"model '{lecture.__name__.rpartition('.')[2]}'"
