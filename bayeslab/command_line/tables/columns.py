"""Columns of a file read by what they hold: numbers, dates, or levels; what is in doubt is refused with the way out."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.command_line.tables.coding import DAY_FIRST, MONTH_FIRST, Reading
from bayeslab.command_line.tables.dates import days_of, is_day_first, refuse_dates
from bayeslab.command_line.tables.table_file import TextTable, line_of
from bayeslab.command_line.values import ALIKE_SIGNS
from bayeslab.programs.binding import suggestion

if TYPE_CHECKING:
    from pandas import Series

MISSING_TEXTS = frozenset(["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A", "."])
"""The cells that are missing values wherever they are."""
MAX_LEVELS = 20
"""The most levels of a column that is taken for one of levels unless it is said to be one."""
MAX_CELLS_NAMED = 3
"""The most cells that a message names."""
LEADING_ZERO_PATTERN = re.compile(r"[+-]?0\d+")
"""A whole number with a zero in front, as codes have it."""
THOUSANDS_PATTERN = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
"""A number with a comma before every three digits, which could be decimal where it is one comma."""
DECIMAL_COMMA_PATTERN = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
"""A number with a decimal comma."""
WHOLE_PATTERN = re.compile(r"[+-]?\d+")
"""A whole number."""
GROUPED_PATTERN = re.compile(r"[+-]?\d{1,3}(?:(?P<sign>[. '])\d{3})(?:(?P=sign)\d{3})*(?:,\d+)?|[+-]?\d+,\d+")
"""A number with a point, a blank or an apostrophe before every three digits, and perhaps a decimal comma."""
UNIT_PATTERN = re.compile(r"[+-]?[$€£¥] ?[+-]?\d[\d.,' ]*|[+-]?\d[\d.,' ]*[%‰$€£¥]")
"""A number with the sign of a currency or of a share."""


def require_known(table: TextTable, names: Any, option: str = "") -> None:
    """Raise ValueError for a name that no column has."""
    for name in names:
        if name not in table.columns:
            known = list(table.columns)
            start = f"{option}: there is no column" if option else "there is no column"
            raise ValueError(f"{start} '{name}'.{suggestion(name, known)} The columns of '{table.path}' are {known}")


def column(table: TextTable, name: str, reading: Reading) -> "Series":
    """A column as numbers, NaN where missing, or as text, None where missing. `is_levels` says which.

    Raises ValueError for dates, for numbers among which some cells are none, for codes with zeros in front and for
    numbers that can be read in two ways, unless `reading` says what they are.
    """
    import pandas

    require_known(table, [name])
    cells, is_missing = _cells(table, name, reading)
    index = table.labels if table.labels is not None else pandas.RangeIndex(len(cells))
    if name in reading.categorical:
        return pandas.Series(_without(cells, is_missing), index, dtype=object, name=name)
    if name in reading.dates:
        return pandas.Series(days_of(table, name, cells, is_missing, reading), index, name=name)
    numbers = _numbers(table, name, cells, is_missing, reading)
    is_number = ~np.isnan(numbers)
    refuse_dates(table, name, cells[~is_missing], is_number[~is_missing], reading)
    _refuse_lost_digits(table, name, cells, numbers)
    wrong = ~is_number & ~is_missing
    _refuse_units(table, name, cells, wrong)
    _refuse_grouped(table, name, cells, wrong)
    if not wrong.any():
        if codes := [cell for cell in cells[is_number] if LEADING_ZERO_PATTERN.fullmatch(cell)]:
            raise ValueError(
                f"column '{name}' holds codes such as {codes[0]}, with zeros in front: leave it out with --drop "
                f"{name}, or take it as levels with --categorical {name}"
            )
        return pandas.Series(numbers, index, name=name)
    if is_number.sum() >= wrong.sum() or name in reading.found:
        raise ValueError(_some_cells(table, name, cells, wrong, reading))
    return pandas.Series(_without(cells, is_missing), index, dtype=object, name=name)


def found_out(table: TextTable, names: Iterable[str], reading: Reading) -> dict[str, str]:
    """What the cells of columns of numbers and dates tell, by column, as `Reading.found` has it."""
    found = {}
    for name in names:
        cells, is_missing = _cells(table, name, reading)
        if name in reading.dates:
            if (day_first := is_day_first(table, name, cells, cells[~is_missing], reading)) is not None:
                found[name] = DAY_FIRST if day_first else MONTH_FIRST
        else:
            decimal, thousands = _signs(table, name, cells, cells[~is_missing], reading)
            has_points = thousands != "." and any("." in cell for cell in cells[~is_missing])
            found[name] = decimal or ("." if has_points else "")
    return found


def _cells(table: TextTable, name: str, reading: Reading) -> tuple[Any, Any]:
    """The cells of a column, and which are missing."""
    cells = np.array([cell.strip() for cell in table.columns[name]], object)
    return cells, np.isin(cells, list(MISSING_TEXTS | set(reading.missing)))


def _without(cells: Any, is_missing: Any) -> list[str | None]:
    """The cells, None where missing."""
    return [None if missing else cell for cell, missing in zip(cells, is_missing, strict=True)]


def is_levels(series: "Series") -> bool:
    """Whether a column holds text."""
    return series.dtype == object


def refuse_empty(table: TextTable, series: "Series") -> None:
    """Raise ValueError for a column without any value."""
    if series.isna().all():
        raise ValueError(f"column '{series.name}' of '{table.path}' is empty: leave it out with --drop {series.name}")


def require_few_levels(series: "Series", reading: Reading) -> None:
    """Raise ValueError for a column of text with many levels, or mostly different ones, that is not said to be one."""
    name, present = str(series.name), series.dropna()
    levels = present.nunique()
    if name in reading.categorical or levels <= 2 or (levels <= MAX_LEVELS and 2 * levels <= len(present)):
        return
    first = ", ".join(map(repr, present.unique()[:MAX_CELLS_NAMED]))
    raise ValueError(
        f"column '{name}' holds {levels} different texts in {len(present)} rows, such as {first}: leave it out with "
        f"--drop {name}, or give each level a coefficient with --categorical {name}"
    )


def _numbers(table: TextTable, name: str, cells: Any, is_missing: Any, reading: Reading) -> np.ndarray:
    """The cells as numbers, NaN where they are none."""
    import pandas

    cells = np.array([cell.translate(ALIKE_SIGNS) for cell in cells], object)
    decimal, thousands = _signs(table, name, cells, cells[~is_missing], reading)
    foreign = np.array([reading.decimal == "," and thousands != "." and "." in cell for cell in cells], bool)
    if thousands:
        grouped_by_sign = _grouped_by(thousands, decimal)
        foreign |= np.array([thousands in cell and not grouped_by_sign.fullmatch(cell) for cell in cells], bool)
    for sign, other in ((thousands, ""), (decimal, ".")):
        if sign and sign != other:
            cells = np.array([cell.replace(sign, other) for cell in cells], object)
    numbers = pandas.to_numeric(pandas.Series(cells, dtype=object), errors="coerce").to_numpy(float)
    return np.where(is_missing | foreign, np.nan, numbers)


def _signs(table: TextTable, name: str, cells: Any, present: Any, reading: Reading) -> tuple[str, str]:
    """The decimal sign and that of thousands, as said or found out; empty where numbers are as Python writes them.

    Raises ValueError for cells that can be read in two ways.
    """
    if reading.decimal or reading.thousands:
        return reading.decimal, reading.thousands
    _refuse_points_of_thousands(table, name, cells, present, reading)
    with_commas = [cell for cell in present if "," in cell]
    is_grouped = all(map(THOUSANDS_PATTERN.fullmatch, with_commas))
    is_decimal = all(map(DECIMAL_COMMA_PATTERN.fullmatch, with_commas)) and not any("." in cell for cell in present)
    if with_commas and is_decimal and (not is_grouped or reading.found.get(name) == ","):
        return ",", ""
    if with_commas and is_grouped:
        ways = "--thousands , if its commas set thousands apart, or --decimal , if they are decimal"
        raise ValueError(
            f"column '{name}' holds {with_commas[0]!r} in line {line_of(table, cells, with_commas[0])}: pass "
            f"{ways if is_decimal else '--thousands ,'}"
        )
    return "", ""


def _grouped_by(sign: str, decimal: str) -> re.Pattern[str]:
    """Numbers with a sign before every three digits, and perhaps decimals behind another."""
    decimals = decimal or ("," if sign == "." else ".")
    return re.compile(rf"[+-]?\d{{1,3}}(?:{re.escape(sign)}\d{{3}})+(?:{re.escape(decimals)}\d*)?")


def _refuse_points_of_thousands(table: TextTable, name: str, cells: Any, present: Any, reading: Reading) -> None:
    """Raise ValueError for 1.234 where numbers of the file have decimal commas, so that it hardly is below two."""
    points, known = [cell for cell in present if "." in cell], reading.found.get(name)
    if not all(match and match["sign"] == "." for match in map(GROUPED_PATTERN.fullmatch, points)) or not points:
        return
    if known == "," and (table.separator != "," or len(table.columns) == 1):
        raise ValueError(
            f"column '{name}' of '{table.path}' holds {points[0]!r} in line {line_of(table, cells, points[0])}, and "
            "had decimal commas in the table of the fit; write its numbers as there"
        )
    if table.separator == ",":
        return
    for other, column_cells in table.columns.items():
        commas = [cell.strip() for cell in column_cells if "," in cell]
        if commas and all(map(DECIMAL_COMMA_PATTERN.fullmatch, commas)):
            raise ValueError(
                f"column '{name}' of '{table.path}' holds {points[0]!r} in line {line_of(table, cells, points[0])}, "
                f"and column '{other}' has decimal commas, as in {commas[0]!r}: pass --thousands . --decimal , if "
                f"points set thousands apart, or --drop {name}"
            )
    whole = [abs(int(cell)) for cell in present if known != "." and WHOLE_PATTERN.fullmatch(cell)]
    if whole and min(whole) >= 100 and max(abs(float(cell)) for cell in points if cell.count(".") == 1) < min(whole):
        raise ValueError(
            f"column '{name}' of '{table.path}' holds {points[0]!r} in line {line_of(table, cells, points[0])} beside "
            f"whole numbers of {min(whole)} and more: pass --thousands . if points set thousands apart, or --decimal . "
            "if they are decimal"
        )


def _refuse_lost_digits(table: TextTable, name: str, cells: Any, numbers: Any) -> None:
    """Raise ValueError for infinite numbers, and for whole ones with more digits than a float keeps."""
    for place in np.flatnonzero(np.isinf(numbers) | (np.abs(numbers) >= 2**53)):
        cell = cells[place]
        where = f"column '{name}' of '{table.path}' holds {cell!r} in line {table.lines[place]}"
        if np.isinf(numbers[place]):
            raise ValueError(
                f'{where}; expected finite numbers: pass --missing "{cell}" if it stands for a missing value'
            )
        if WHOLE_PATTERN.fullmatch(cell) and int(cell) != int(numbers[place]):
            raise ValueError(
                f"{where}, which has more digits than a number keeps: leave the column out with --drop {name}, or take "
                f"it as levels with --categorical {name}"
            )


def _refuse_units(table: TextTable, name: str, cells: Any, wrong: Any) -> None:
    """Raise ValueError where all cells that are no numbers are numbers with the sign of a unit."""
    if wrong.any() and all(map(UNIT_PATTERN.fullmatch, cells[wrong])):
        cell = cells[wrong][0]
        raise ValueError(
            f"column '{name}' of '{table.path}' holds {cell!r} in line {line_of(table, cells, cell)}, a number with a "
            f"sign: write it without, leave the column out with --drop {name}, or take it as levels with "
            f"--categorical {name}"
        )


def _refuse_grouped(table: TextTable, name: str, cells: Any, wrong: Any) -> None:
    """Raise ValueError where all cells that are no numbers have points, blanks or apostrophes between thousands."""
    grouped = [GROUPED_PATTERN.fullmatch(cell.translate(ALIKE_SIGNS)) for cell in cells[wrong]]
    signs = {match["sign"] for match in grouped if match} - {None}
    if grouped and all(grouped) and len(signs) == 1:
        [sign] = signs
        cell = cells[wrong][0]
        decimal = " --decimal ," if any("," in each for each in cells[wrong]) else ""
        raise ValueError(
            f"column '{name}' of '{table.path}' holds {cell!r} in line {line_of(table, cells, cell)}: pass --thousands "
            f'"{sign}"{decimal} if thousands are set apart so'
        )


def _some_cells(table: TextTable, name: str, cells: Any, wrong: Any, reading: Reading) -> str:
    """The sentence on a column of numbers with cells that are none."""
    places = np.flatnonzero(wrong)
    named = ", ".join(f"{cells[place]!r} in line {table.lines[place]}" for place in places[:MAX_CELLS_NAMED])
    more = f" and {len(places) - MAX_CELLS_NAMED} more" if len(places) > MAX_CELLS_NAMED else ""
    if name in reading.found:
        signs = f", with the decimal sign '{sign}'" if (sign := reading.decimal or reading.found[name]) else ""
        return f"column '{name}' of '{table.path}' holds {named}{more}; expected numbers as at the fit{signs}"
    texts = sorted(set(cells[places]))
    ways = f'--missing "{texts[0]}"' if len(texts) == 1 else " ".join(f'--missing "{text}"' for text in texts[:3])
    return (
        f"column '{name}' of '{table.path}' holds numbers but for {named}{more}: pass {ways} if that stands for a "
        f"missing value, or --categorical {name} if the column holds levels"
    )


def first_day(table: TextTable, name: str, reading: Reading) -> str:
    """The day from which the days of a column of dates are counted, as text."""
    import pandas

    if (origin := reading.dates[name]) is not None:
        return origin
    known = "1970-01-01"
    since = column(table, name, Reading(reading.missing, dates={name: known}))
    first = pandas.Timestamp(known) + pandas.Timedelta(days=float(since.min()))
    return str(first).removesuffix(" 00:00:00")
