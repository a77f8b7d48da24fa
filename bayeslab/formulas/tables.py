"""Checks of tables, and what their columns hold: numbers or levels.

Each check raises ValueError with the column, the row and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

TIMES = ("datetime64", "datetime", "date", "time", "timedelta64", "timedelta", "period")
"""What pandas calls values that are times."""


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
    texts = {
        name: frame[name].astype(object) for name in frame.columns if isinstance(frame[name].dtype, pd.StringDtype)
    }
    numbers = {name: _floats(frame[name]) for name in frame.columns if _holds_number_objects(frame[name])}
    return frame.assign(**numbers, **texts)


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
            raise ValueError(f"there is no {role}column {repr(name)[:100]}{suggestion(name, list(frame.columns))}")


def suggestion(name: str, known: list[str]) -> str:
    """The end of a sentence about an unknown name."""
    if nearest := get_close_matches(name, known, 1):
        return f"; did you mean {nearest[0]!r}?"
    return f"; there is {', '.join(map(repr, known)) or 'none'}."


def is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def numbers_of(column: pd.Series, role: str) -> np.ndarray:
    """The finite values of a numeric column, NaN where missing."""
    if not is_number(column) or pd.api.types.is_complex_dtype(column):
        raise ValueError(f"{role} {column.name!r} is not numeric: it holds {column.dtype}.")
    numbers = column.to_numpy(float, na_value=np.nan)
    refuse_rows(np.isinf(numbers), column, "is infinite")
    return numbers


def levels_of(column: pd.Series) -> pd.Series:
    """The levels of a column of text, categories or truth values, as text."""
    refuse_rows(column.isna().to_numpy(), column, "is missing")
    if pd.api.types.infer_dtype(column) in TIMES:
        raise ValueError(f"column {column.name!r} holds times: turn them into numbers or categories.")
    return column.astype(object).map(str)


def refuse_rows(bad: np.ndarray, column: pd.Series, what: str) -> None:
    if bad.any():
        row = column.index[int(bad.argmax())]
        raise ValueError(f"column {column.name!r} {what} in row {row!r}: drop the row or fill the value in.")


def centre_and_scale(numbers: np.ndarray, place: str, standardise: bool) -> tuple[float, float]:
    if not standardise:
        return 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        centre, scale = float(np.nanmean(numbers)), float(np.nanstd(numbers))
    if not np.isfinite(scale):
        raise ValueError(f"{place} has numbers too large to be standardised: give it in another unit.")
    if scale <= 8 * np.finfo(float).eps * np.nanmax(np.abs(numbers)):
        raise ValueError(f"{place} is constant and cannot be standardised: drop it, or use standardise=False.")
    return centre, scale


def row_labels(frame: pd.DataFrame) -> np.ndarray:
    """The index in a form that files can hold: numbers and times as they are, the rest as text."""
    labels = frame.index.to_numpy()
    return labels if labels.dtype.kind in "biufM" else np.array([str(label) for label in labels])
