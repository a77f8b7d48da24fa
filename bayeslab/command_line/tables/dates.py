"""Columns of dates of a text table, as days."""

import re
from typing import Any

import numpy as np

from bayeslab.command_line.tables.coding import DAY_FIRST, MONTH_FIRST, Reading
from bayeslab.command_line.tables.table_file import TextTable, line_of

DATE_PATTERN = re.compile(
    r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?(Z| ?[+-]\d{2}:?\d{2})?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( \d{1,2}:\d{2}(:\d{2})?)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
    r"|\d{1,2}[ -]?[A-Za-z]{3,9}\.?[ -]?,?\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}"
)
"""A date, a time or both, as people and programs write them."""
ISO_DATE_PATTERN = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?")
"""A date that begins with its year."""
DAY_MONTH_PATTERN = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
"""A date of day and month, or month and day, and year."""
COMPACT_PATTERN = re.compile(r"((?:18|19|20|21)\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
"""A date as one number: 20200131, after which 20200201 would be 70 days later."""
MIN_COMPACT_DATES = 3
"""The smallest number of different whole numbers that are taken for dates where all look so."""


def refuse_dates(table: TextTable, name: str, present: Any, is_number: Any, reading: Reading) -> None:
    """Raise ValueError where most of the cells that are there are dates, or all are dates written as numbers and the
    column is none of numbers of a fit."""
    dates = [text for text in present[~is_number] if DATE_PATTERN.fullmatch(text)]
    is_new = name not in reading.found
    if is_new and len({*present}) >= MIN_COMPACT_DATES and all(map(COMPACT_PATTERN.fullmatch, present)):
        dates = present
    if len(dates) and 2 * len(dates) >= len(present):
        raise ValueError(
            f"column '{name}' of '{table.path}' holds dates or times such as {dates[0]!r}: leave it out with "
            f"--drop {name}, make it days since its first with --date {name}, or take it as levels with "
            f"--categorical {name}"
        )


def is_day_first(table: TextTable, name: str, cells: Any, present: Any, reading: Reading) -> bool | None:
    """Whether dates begin with the day, else with the month; None where some begin with the year.

    Raises ValueError where nothing tells, or where it is another order than that of the fit.
    """
    pairs = [DAY_MONTH_PATTERN.fullmatch(cell) for cell in present]
    if not all(pairs) or not pairs:
        return None
    first, second = (np.array([int(pair[place]) for pair in pairs if pair]) for place in (1, 2))
    known = reading.found.get(name)
    for order, numbers in ((MONTH_FIRST, first), (DAY_FIRST, second)):
        if known == order and numbers.max() > 12 and "." not in present[0]:
            cell = present[int(numbers.argmax())]
            raise ValueError(
                f"column '{name}' of '{table.path}' has {cell!r} in line {line_of(table, cells, cell)}, but dates with "
                f"the {order} in the table of the fit; write them as 2020-12-31"
            )
    if first.max() > 12 or "." in present[0]:
        return True
    if second.max() <= 12 and not known:
        raise ValueError(
            f"the dates of column '{name}', such as {present[0]!r}, have day and month in an order that nothing "
            "tells; write them as 2020-12-31"
        )
    return known == DAY_FIRST


def days_of(table: TextTable, name: str, cells: Any, is_missing: Any, reading: Reading) -> np.ndarray:
    """Dates as days since the origin, or else the first of them. Raises ValueError that names a cell that is none."""
    import pandas

    present, origin = cells[~is_missing], reading.dates[name]
    if (day_first := is_day_first(table, name, cells, present, reading)) is not None:
        times = pandas.to_datetime(pandas.Series(present), dayfirst=day_first, errors="coerce")
    else:
        spread = [COMPACT_PATTERN.sub(r"\1-\2-\3", cell) if cell.isdecimal() else cell for cell in present]
        iso = [cell if ISO_DATE_PATTERN.fullmatch(cell) else "" for cell in spread]
        texts = pandas.Series([text.replace("/", "-") for text in iso], dtype=object)
        times = pandas.to_datetime(texts, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
    if times.isna().any():
        cell = present[int(times.isna().to_numpy().argmax())]
        raise ValueError(
            f"column '{name}' has {cell!r} in line {line_of(table, cells, cell)}; expected a date as 2020-12-31"
        )
    start = pandas.Timestamp(origin) if origin else times.min()
    days = np.full(len(cells), np.nan)
    days[~is_missing] = ((times - start) / pandas.Timedelta(days=1)).to_numpy(float)
    return days
