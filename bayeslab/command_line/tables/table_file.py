"""A file of columns set apart by commas, semicolons, tabs or bars, as text that nobody has interpreted yet."""

import csv
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayeslab.datasets.files.text import beside_cut_cell, read_text

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What may stand between columns, and its name."""
NUM_LINES_OF_SEPARATOR = 50
"""The number of lines that the separator is found from."""
NUMBER_PATTERN = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
"""A number with a decimal point or comma."""

SEPARATOR_LINE_PATTERN = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""The first line of a file in which Excel is told the separator."""


class TextTable(NamedTuple):
    """The cells of a file by column. lines: where the rows are in the file. labels: of rows, where the first column has
    no name. separator: between columns. notes: sentences on how it was read, where that is not plain."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    labels: list[str] | None
    separator: str
    notes: tuple[str, ...]

    @property
    def num_rows(self) -> int:
        return len(self.lines)


def read_table(path: Path, separator: str | None = None, encoding: str | None = None) -> TextTable:
    """The cells of a file; blank lines, and lines that begin with # above the names of columns, are passed over.

    In a table of one column an empty cell is written as "", as pandas does, for a blank line could be no row.
    separator: between columns, one character; by default found from the lines. encoding: by default that of the byte
    order mark, else UTF-8, else Windows-1252. Compressed files are read as what they hold.
    Raises OSError for a file that is not there, ValueError, with the line, for what is no table: rows of other lengths,
    columns without a name or with one name, no rows, no names, blank lines among the rows of one column.
    """
    text, notes = read_text(path, encoding)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    first = _first_line(lines, 0)
    said = SEPARATOR_LINE_PATTERN.fullmatch(lines[first]) if first < len(lines) else None
    if said:
        separator, first = separator or said[1], _first_line(lines, first + 1)
        notes += (f"columns are set apart by {SEPARATORS.get(said[1], repr(said[1]))}, as '{said[0].strip()}' says",)
    if first == len(lines):
        raise ValueError(f"cannot read '{path}' as CSV: it has no line of names of columns")
    if skipped := sum(line.startswith("#") for line in lines[:first]):
        notes += (f"{skipped} comment line{'s' * (skipped > 1)} above the names of columns passed over",)
    if separator is None:
        separator = _separator(path, lines[first:])
        _refuse_blanks(path, lines[first:], first + 1)
        if separator in lines[first] and separator != ",":
            notes += (f"columns are set apart by {SEPARATORS[separator]}",)
    rows, numbers = _rows(path, lines[first:], first, separator)
    header, cells = [name.strip() for name in rows[0]], rows[1:]
    _check_header(path, header, numbers[0], cells)
    if not text.endswith("\n"):
        notes += _note_of_cut_cell([row[-1].strip() for row in cells], numbers[-1])
    columns = {name: [row[place] for row in cells] for place, name in enumerate(header)}
    labels = columns.pop("", None)
    if not columns:
        raise ValueError(f"cannot read '{path}' as CSV: it has a column of row labels and no other")
    return TextTable(path, columns, numbers[1:], labels, separator, notes)


def _first_line(lines: Sequence[str], start: int) -> int:
    """The place of the first line that is neither blank nor a comment."""
    places = range(start, len(lines))
    return next((place for place in places if lines[place].strip() and not lines[place].startswith("#")), len(lines))


csv.field_size_limit(2**31 - 1)  # cells may hold whole books


def _separator(path: Path, lines: Sequence[str]) -> str:
    """The separator that gives the first lines the same number of columns, and most of them."""
    full = [line for line in lines if line.strip()]
    sample = full[:NUM_LINES_OF_SEPARATOR]
    complete = -1 if len(full) > len(sample) else None  # the last row may go on in a line that is not looked at
    widths = {}
    for separator in SEPARATORS:
        try:
            counts = {len(row) for row in list(csv.reader(sample, delimiter=separator))[:complete]}
        except csv.Error:
            continue
        if len(counts) == 1 and max(counts) > 1:
            widths[separator] = max(counts)
    if not widths:  # decimal commas in one column stand in lines that are no rows of commas
        with_commas = [line for line in full if "," in line]
        is_column = full[0] not in with_commas and all(map(NUMBER_PATTERN.fullmatch, with_commas))
        return ";" if is_column and with_commas else ","
    if {";", ","} <= widths.keys():  # decimal commas: every comma is inside of a number
        cells = [cell for line in sample[1:] for cell in line.split(";")]
        if all(NUMBER_PATTERN.fullmatch(cell) for cell in cells if "," in cell):
            return ";"
    best = max(widths.values())
    candidates = [separator for separator in widths if widths[separator] == best]
    if len(candidates) > 1:
        names = " and ".join(SEPARATORS[separator] for separator in candidates)
        raise ValueError(f"'{path}' could have its columns set apart by {names}; say which with --separator")
    return candidates[0]


def _refuse_blanks(path: Path, lines: Sequence[str], first: int) -> None:
    """Raise ValueError for a table whose columns are set apart by blanks, with a number in each of its rows."""
    words = [line.split() for line in lines if line.strip()][:NUM_LINES_OF_SEPARATOR]
    header, rows = words[0], words[1:]
    plain = not any(sign in line for line in lines[:NUM_LINES_OF_SEPARATOR] for sign in (*SEPARATORS, '"'))
    same = len(header) > 1 and all(len(row) == len(header) for row in rows)
    if plain and same and rows and all(any(map(NUMBER_PATTERN.fullmatch, row)) for row in rows):
        raise ValueError(
            f"line {first} of '{path}' holds {len(header)} words set apart by blanks; expected commas, semicolons, "
            'tabs or bars between columns: pass --separator " " if blanks stand between columns, --separator , if it '
            "is one column"
        )


def _note_of_cut_cell(cells: list[str], line: int) -> tuple[str, ...]:
    """A sentence where the last cell of a file, which ends within a line, may have lost its end.

    cells: of the last column.
    """
    if (beside := beside_cut_cell(cells)) is None:
        return ()
    return (
        f"line {line}, the last, does not end in a line break, and {cells[-1]!r} in it stands below {beside!r}: the "
        "file may be cut off",
    )


def _rows(path: Path, lines: list[str], before: int, separator: str) -> tuple[list[list[str]], list[int]]:
    """The cells of every line that is not blank, and the numbers of the lines that they begin on."""
    rows: list[list[str]] = []
    numbers: list[int] = []
    blank = 0
    reader = csv.reader(StringIO("\n".join(lines)), delimiter=separator, strict=True, skipinitialspace=True)
    start = before + 1
    try:
        for row in reader:
            if len(row) < 2 and not lines[start - before - 1].strip():
                blank = blank or (start if rows else 0)
            else:
                if rows and len(row) != len(rows[0]):
                    raise ValueError(
                        f"cannot read '{path}' as CSV: line {start} has {len(row)} columns, and line {numbers[0]}, "
                        f"which names them, {len(rows[0])}, set apart by {SEPARATORS.get(separator, repr(separator))}"
                    )
                if blank and len(row) == 1:
                    raise ValueError(
                        f"line {blank} of '{path}' is blank; expected a value in every row of a table of one column: "
                        "write NA where it is missing, or delete the line"
                    )
                rows.append(row)
                numbers.append(start)
            start = before + reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"cannot read '{path}' as CSV: line {start}: {error}") from None
    if len(rows) < 2:
        raise ValueError(f"cannot read '{path}' as CSV: it has no rows")
    return rows, numbers


def _check_header(path: Path, header: list[str], line: int, cells: list[list[str]]) -> None:
    """Raise ValueError for names that are numbers, are missing or occur twice."""
    if all(map(NUMBER_PATTERN.fullmatch, header)) and all(map(NUMBER_PATTERN.fullmatch, cells[0])):
        raise ValueError(f"line {line} of '{path}' holds numbers; expected the names of the columns: put them first")
    for place, name in enumerate(header):
        if not name and place:
            raise ValueError(f"line {line} of '{path}' has no name for column {place + 1}")
        if header.index(name) != place:
            where = f"columns {header.index(name) + 1} and {place + 1}"
            raise ValueError(f"line {line} of '{path}' has the name '{name}' twice, for {where}; rename one")


def line_of(table: TextTable, cells: Any, cell: str) -> int:
    """The line of the first row with this cell."""
    return table.lines[int(np.flatnonzero(cells == cell)[0])]
