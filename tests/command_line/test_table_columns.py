"""Columns of files are read by what they hold; what could be read in two ways is refused with the way out."""

import bz2
import gzip
import lzma
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from xarray import Dataset, DataTree

from bayeslab.command_line.tables.coding import (
    ATTRIBUTE,
    DAY_FIRST,
    MONTH_FIRST,
    FileCoding,
    Reading,
    file_coding_of,
    in_terms_of_file,
)
from bayeslab.command_line.tables.columns import column, found_out, is_levels, require_few_levels
from bayeslab.command_line.tables.csv_data import counted, model_data, used_columns, without_missing
from bayeslab.command_line.tables.table_file import TextTable, read_table
from bayeslab.models import hmm, linear_regression, local_level, logistic_regression, normal_gamma, poisson_regression

PLAIN = "size,town,note\n1.5,x,\n-2,y,b\n3e2,x,c\n"


def table(folder: Path, content: str | bytes, **options: Any) -> TextTable:
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options)


SAME = {
    "commas": PLAIN.encode(),
    "semicolons": PLAIN.replace(",", ";").encode(),
    "tabs": PLAIN.replace(",", "\t").encode(),
    "bars": PLAIN.replace(",", "|").encode(),
    "decimal commas": PLAIN.replace(",", ";").replace("1.5", "1,5").encode(),
    "windows lines": PLAIN.replace("\n", "\r\n").encode(),
    "old mac lines": PLAIN.replace("\n", "\r").encode(),
    "no last line end": PLAIN.rstrip("\n").encode(),
    "byte order mark": PLAIN.encode("utf-8-sig"),
    "UTF-16": PLAIN.encode("utf-16"),
    "UTF-32": PLAIN.encode("utf-32"),
    "comments and blank lines": ("# made by a program\n\n" + PLAIN.replace("\n", "\n\n")).encode(),
    "quotes": PLAIN.replace("town", '"town"').replace("x", '"x"').encode(),
    "spaces": PLAIN.replace(",", " , ").encode(),
    "gzip": gzip.compress(PLAIN.encode()),
    "bzip2": bz2.compress(PLAIN.encode()),
    "xz": lzma.compress(PLAIN.encode()),
}


@pytest.mark.parametrize("case", SAME)
def test_one_table_in_every_form(tmp_path: Path, case: str) -> None:
    read = table(tmp_path, SAME[case])
    assert list(read.columns) == ["size", "town", "note"]
    np.testing.assert_array_equal(column(read, "size", Reading()), [1.5, -2, 300])
    assert column(read, "town", Reading()).tolist() == ["x", "y", "x"]
    assert column(read, "note", Reading()).tolist() == [None, "b", "c"]


def test_other_encodings_are_told(tmp_path: Path) -> None:
    read = table(tmp_path, "größe\n1\n2\n".encode("cp1252"))
    assert list(read.columns) == ["größe"]
    assert read.notes == ("the text is in Windows-1252",)
    assert list(table(tmp_path, "größe\n1\n".encode("mac_roman"), encoding="mac_roman").columns) == ["größe"]


@pytest.mark.parametrize(
    ("text", "told"), [("y\n12.5\n13.5\n1", True), ("y\n10\n105\n10", True), ("y\n1\n2\n3", False)]
)
def test_a_last_cell_that_may_be_cut_is_told(tmp_path: Path, text: str, told: bool) -> None:
    """Not where a line break ends the file."""
    assert [note.startswith("line 4, the last, does not end") for note in table(tmp_path, text.encode()).notes] == [
        True
    ] * told
    assert table(tmp_path, f"{text}\n".encode()).notes == ()


def test_the_line_of_a_separator_is_passed_over(tmp_path: Path) -> None:
    """Excel writes it; one that is said goes before it."""
    read = table(tmp_path, "sep=;\n\nx;y\n1,5;2\n2,5;3\n")
    np.testing.assert_array_equal(column(read, "x", Reading()), [1.5, 2.5])
    assert read.lines == [4, 5]
    assert read.notes == ("columns are set apart by semicolons, as 'sep=;' says",)
    assert list(table(tmp_path, "sep=;\nx|y\n1|2\n", separator="|").columns) == ["x", "y"]
    assert list(table(tmp_path, "sep=\t\nx\ty\n1\t2\n").columns) == ["x", "y"]
    with pytest.raises(ValueError, match="no line of names"):
        table(tmp_path, "sep=;\n")


def test_decimal_commas_in_one_column(tmp_path: Path) -> None:
    read = table(tmp_path, 'x\n1,5\n2\n""\nNA\n')
    np.testing.assert_array_equal(column(read, "x", Reading()), [1.5, 2, np.nan, np.nan])
    assert read.notes == ()


def test_a_first_column_without_a_name_labels_the_rows(tmp_path: Path) -> None:
    read = table(tmp_path, ",size\nann,1\nbob,2\n")
    assert column(read, "size", Reading()).index.tolist() == ["ann", "bob"]


@pytest.mark.parametrize("name", ["y", "the y"])
def test_an_empty_cell_of_a_table_of_one_column_is_a_row(tmp_path: Path, name: str) -> None:
    """pandas writes it as two quotes; blank lines below the last row are none."""
    read = table(tmp_path, f'{name}\n1\n""\n3\n""\n\n \n')
    np.testing.assert_array_equal(column(read, name, Reading()), [1, np.nan, 3, np.nan])
    assert read.lines == [2, 3, 4, 5]


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "a blank line in one column": ("\ny\n\n1\n \n3\n", r"line 3 of .* is blank; expected a value in every row"),
    "a row of one empty cell": ('a,b\n1,2\n\n""\n', "line 4 has 1 columns"),
    "a cell too few": ("a,b\n1,2\n3\n", "line 3 has 1 columns, and line 1, which names them, 2"),
    "a cell too many": ("# c\na,b\n1,2\n\n3,4,5\n", "line 5 has 3 columns"),
    "names twice": ("a,b,a\n1,2,3\n", "the name 'a' twice, for columns 1 and 3"),
    "no name": ("a,,b\n1,2,3\n", "line 1 .* no name for column 2"),
    "no names": ("1,2\n3,4\n", "line 1 .* holds numbers; expected the names"),
    "two separators": ("a;b|c;d\n1;2|3;4\n5;6|7;8\na;b|c;d\n", ""),
    "an open quote": ('a,b\n1,"2\n', "line 2"),
    "cut off": (gzip.compress(PLAIN.encode() * 9)[:-9], "cut off or damaged"),
    "Excel": (b"PK\x03\x04" + bytes(30), "a ZIP archive"),
    "zeros": (b"a,b\n1,\0\n", "expected text in UTF-8"),
    "nothing but comments": ("# a\n", "no line of names"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_table_is_refused(tmp_path: Path, case: str) -> None:
    content, words = BROKEN[case]
    if not words:
        assert len(table(tmp_path, content).columns) == 3
        return
    with pytest.raises(ValueError, match=words):
        table(tmp_path, content)


DOUBTS: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "ISO dates": (["2020-01-01", "2020-02-01"], {}, "dates or times such as '2020-01-01': .*--date a"),
    "dates and gaps": (["2020-01-01", "NA", "2020-02-01"], {}, "--drop a"),
    "German dates": (["1.2.2020", "13.2.2020"], {}, "dates"),
    "American dates": (["2/13/20", "2/14/20"], {}, "dates"),
    "words": (["Jan 5, 2020", "Feb 7, 2021"], {}, "dates"),
    "times": (["12:30", "13:45"], {}, "dates or times"),
    "dates in one number": (["20200131", "20200201", "NA", "20200202"], {}, "such as '20200131': leave .*--date a"),
    "one cell": (["1", "2", "n/a?", "3"], {}, "numbers but for 'n/a\\?' in line 4: pass --missing \"n/a\\?\""),
    "some cells": (["1", "?", "-", "3", "4", "5"], {}, "but for '\\?' in line 3, '-' in line 4"),
    "zip codes": (["01234", "9876"], {}, "codes such as 01234"),
    "thousands or decimal": (["1,234", "5,678"], {}, "--thousands , if .* or --decimal , if they are decimal"),
    "thousands": (["1,234.5", "5,678.25"], {}, "pass --thousands , if its|pass --thousands ,"),
    "points and commas": (["1.234,5", "2.345,6"], {}, "'1.234,5' in line 2: pass --thousands \"\\.\" --decimal ,"),
    "points of thousands": (["1.234", "2"], {"decimal": ","}, "'1.234' in line 2: pass --thousands"),
    "blanks": (["1 234", "999"], {}, 'pass --thousands " " if'),
    "blanks that break no line": (["1\u00a0234", "999"], {}, 'pass --thousands " " if'),
    "narrow blanks": (["1\u202f234,5", "999"], {}, 'pass --thousands " " --decimal , if'),
    "apostrophes": (["1\u2019234", "999"], {}, 'pass --thousands "\'" if'),
    "decimals in a file of one kind of points": (
        ["1.234"],
        {"found": {"a": ","}},
        "decimal commas in the table of the",
    ),
    "a text for numbers": (["x", "y", "1"], {"found": {"a": "."}}, r"'x' in line 2, 'y' in line 3; .* sign '\.'"),
    "another order of days": (
        ["3/4/2020", "3/14/2020"],
        {"dates": {"a": None}, "found": {"a": DAY_FIRST}},
        "'3/14/2020' in line 3, but dates with the day first in the table of the fit",
    ),
    "days of a fit that told no order": (
        ["3/4/2020"],
        {"dates": {"a": None}, "found": {"a": ""}},
        "in an order that nothing tells",
    ),
    "points beside large numbers": (["950", "1.200", "1.350"], {}, "'1.200' in line 3 beside whole numbers of 950"),
    "decimals where points set thousands apart": (["1.234", "0.5"], {"thousands": "."}, "but for '0.5' in line 3"),
    "commas before two digits": (["1,234", "12,5", "9"], {"thousands": ","}, "but for '12,5' in line 3"),
    "long numbers": (["12345678901234567", "1"], {}, "in line 2, which has more digits than a number keeps"),
    "infinite": (["1", "-inf"], {}, 'in line 3; expected finite numbers: pass --missing "-inf"'),
    "order of days": (["1/2/2020", "3/4/2020"], {"dates": {"a": None}}, "in an order that nothing tells"),
    "a day that is none": (["2020-01-01", "2020-02-31"], {"dates": {"a": None}}, "'2020-02-31' in line 3"),
}


def test_points_are_in_doubt_where_decimals_have_commas(tmp_path: Path) -> None:
    """1.234 is more likely a thousand than one in such a file; where nothing else has commas it is read as it is."""
    read = table(tmp_path, "a;b\n1.234;1,5\n999;2,5\n")
    with pytest.raises(ValueError, match=r"holds '1\.234' in line 2, and column 'b' has decimal commas"):
        column(read, "a", Reading())
    np.testing.assert_array_equal(column(read, "a", Reading(decimal=",", thousands=".")), [1234, 999])
    np.testing.assert_array_equal(column(table(tmp_path, "a;b\n1.234;1\n9;2\n"), "a", Reading()), [1.234, 9])


@pytest.mark.parametrize("case", DOUBTS)
def test_what_is_in_doubt_is_refused(tmp_path: Path, case: str) -> None:
    cells, reading, words = DOUBTS[case]
    read = table(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    with pytest.raises(ValueError, match=words):
        column(read, "a", Reading(**reading))


READ: dict[str, tuple[list[str], dict[str, Any], list[Any]]] = {
    "missing": (["1", "n/a?", "3"], {"missing": ("n/a?",)}, [1, np.nan, 3]),
    "thousands": (["1,234", "5,678"], {"thousands": ","}, [1234, 5678]),
    "decimal": (["1,234", "5,678"], {"decimal": ","}, [1.234, 5.678]),
    "both": (["1.234,5", "5.678"], {"decimal": ",", "thousands": "."}, [1234.5, 5678]),
    "levels of numbers": (["1", "2", "1"], {"categorical": ("a",)}, ["1", "2", "1"]),
    "codes": (["01234", "9876"], {"categorical": ("a",)}, ["01234", "9876"]),
    "dates": (["2020-03-01", "2020-02-28", ""], {"dates": {"a": None}}, [2, 0, np.nan]),
    "dates in one number": (["20200301", "20200228"], {"dates": {"a": None}}, [2, 0]),
    "two numbers that could be dates": (["20200301", "20200228"], {}, [20200301, 20200228]),
    "numbers of a fit": (["20200131", "20200201", "20200202"], {"found": {"a": ""}}, [20200131, 20200201, 20200202]),
    "numbers like dates": (["20200301", "20200228", "20200299"], {}, [20200301, 20200228, 20200299]),
    "typographic minus": (["\u22121.5", "\u22122", "3"], {}, [-1.5, -2, 3]),
    "dates since": (["2020-03-01"], {"dates": {"a": "2020-01-01"}}, [60]),
    "German": (["1.3.2020", "28.2.2020"], {"dates": {"a": None}}, [2, 0]),
    "American": (["3/1/2020", "2/28/2020"], {"dates": {"a": None}}, [2, 0]),
    "hours": (["2020-03-01T12:00", "2020-03-01T00:00"], {"dates": {"a": None}}, [0.5, 0]),
    "none": (["", "NA", "NaN"], {}, [np.nan] * 3),
    "blanks": (["1\u00a0234", "5\u202f678", "9 012"], {"thousands": " "}, [1234, 5678, 9012]),
    "decimal commas of a fit": (["1,234", "5,678"], {"found": {"a": ","}}, [1.234, 5.678]),
    "decimal points of a fit": (["950", "1.200"], {"found": {"a": "."}}, [950, 1.2]),
    "days first": (["3/4/2020"], {"dates": {"a": "2020-01-01"}, "found": {"a": DAY_FIRST}}, [93]),
    "months first": (["3/4/2020"], {"dates": {"a": "2020-01-01"}, "found": {"a": MONTH_FIRST}}, [63]),
}


@pytest.mark.parametrize("case", READ)
def test_what_is_said_is_read(tmp_path: Path, case: str) -> None:
    cells, reading, expected = READ[case]
    read = column(table(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells)), "a", Reading(**reading))
    if is_levels(read):
        assert read.tolist() == expected
    else:
        np.testing.assert_allclose(read, expected)


def test_what_cells_tell_is_found_out(tmp_path: Path) -> None:
    read = table(tmp_path, "a;b;c;d;e;f\n1,5;1.5;1;x;13/1/2020;2020-01-01\n2;2;2;y;3/4/2020;2020-01-02\n")
    reading = Reading(dates={"e": None, "f": None})
    assert found_out(read, "abcef", reading) == {"a": ",", "b": ".", "c": "", "e": DAY_FIRST}


@pytest.mark.parametrize(
    ("cells", "few"), [("ab" * 9, True), ("abcdef", False), ("ab", True), ("abcdefghijklmnopqrstu" * 9, False)]
)
def test_columns_of_many_levels_are_refused(tmp_path: Path, cells: str, few: bool) -> None:
    read = table(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    require_few_levels(column(read, "a", Reading()), Reading(categorical=("a",)))
    if few:
        require_few_levels(column(read, "a", Reading()), Reading())
    else:
        with pytest.raises(ValueError, match=r"different texts .* --categorical a"):
            require_few_levels(column(read, "a", Reading()), Reading())


def test_rows_with_gaps_are_left_out(tmp_path: Path) -> None:
    kept, said = without_missing(table(tmp_path, "a,b\n1,x\n,y\n3,\n4,z\n"), ["a", "b"], Reading())
    assert kept.columns == {"a": ["1", "4"], "b": ["x", "z"]}
    assert kept.lines == [2, 5]
    assert said == "2 of 4 rows have a missing value and are left out"


@pytest.mark.parametrize(
    ("lecture", "columns", "used"),
    [
        (normal_gamma, {}, ["y"]),
        (normal_gamma, {"y": "t"}, ["t"]),
        (local_level, {}, ["y"]),
        (linear_regression, {}, ["t", "y"]),
    ],
)
def test_gaps_are_looked_for_where_data_come_from(
    tmp_path: Path, lecture: ModuleType, columns: dict[str, str], used: list[str]
) -> None:
    """In columns that are matched by name as well."""
    read = table(tmp_path, "t,note,y\n1,a,1.5\n2,b,\n3,,4\n")
    assert used_columns(lecture, read, Reading(drop=("note",)), columns, {}) == used


@pytest.mark.parametrize(
    ("lecture", "target", "words"),
    [
        (linear_regression, "y", r"column 'c' of .* is constant, 1\.0 in every row: leave it out with --drop c"),
        (linear_regression, "c", r"column 'l' of .* is constant, u in every row: leave it out with --drop l"),
        (linear_regression, "y c l", r"target 'y' of .* is constant; expected numbers that differ"),
        (
            logistic_regression,
            "t c l",
            r"target 't' of .* is missing in line 4 and 1 more: .* rows with --drop-missing",
        ),
    ],
)
def test_columns_that_tell_nothing(tmp_path: Path, lecture: ModuleType, target: str, words: str) -> None:
    """The target, and perhaps columns to drop."""
    read = table(tmp_path, "x,y,t,c,l\n1,7,0,1.0,u\n2,7,1,1.0,u\n3,7,,1.0,u\n4,7,,1.0,u\n")
    name, *drop = target.split()
    others = [each for each in ("y", "t") if each != name]
    with pytest.raises(ValueError, match=words):
        model_data(lecture, read, Reading(drop=(*others, *drop)), name, {}, {})


def test_a_result_remembers_how_columns_were_read(tmp_path: Path) -> None:
    read = table(tmp_path, "x;d;g;y\n1,5;13/1/2020;u;1\n2,5;3/4/2020;v;4\n7;5/4/2020;u;9\n")
    coding = model_data(linear_regression, read, Reading(("-",), ("g",), {"d": None}), "y", {}, {}).coding
    assert coding.reading.found == {"x": ",", "d": DAY_FIRST, "y": ""}
    assert file_coding_of(DataTree(Dataset(attrs={ATTRIBUTE: coding.to_json()}))) == coding
    mapped = model_data(normal_gamma, read, Reading(drop=("y",)), None, {"y": "x"}, {}).coding
    assert mapped.reading.found == {"x": ","}


def test_counts_may_be_constant(tmp_path: Path) -> None:
    data = model_data(poisson_regression, table(tmp_path, "x,y\n1,4\n2,4\n"), Reading(), "y", {}, {})
    assert data.data["y"].values.tolist() == [4, 4]
    assert data.coding.y_scale == 1


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "entry 'y' at position (1,) is 6.5, but site 'y' takes",
            "column 'k' of '{}' in line 4 is 6.5, but site 'y' takes",
        ),
        ("argument 'm' at position (0, 1) is -1", "column 'b' of '{}' in line 2 is -1"),
        (
            "argument 'm' has a missing entry (NaN) at position (1, 0); only",
            "column 'a' of '{}' is missing in line 4: fill",
        ),
        ("entry 'q' at position (1,) is 2", "entry 'q' at position (1,) is 2"),
        ("argument 'y' at position (2,) is 2", "argument 'y' at position (2,) is 2"),
    ],
)
def test_positions_are_lines_of_the_file(tmp_path: Path, message: str, told: str) -> None:
    read = table(tmp_path, "k,a,b\n1,2,3\n\n6.5,4,5\n")
    coding = FileCoding(str(read.path), Reading(), {"y": "k", "m": "a,b"})
    assert in_terms_of_file(message, read, coding).startswith(told.format(read.path))


def test_the_steps_of_one_sequence_are_counted(tmp_path: Path) -> None:
    read = table(tmp_path, 'y\n1\n""\n3\n')
    data = model_data(local_level, read, Reading(), None, {}, {}).data
    assert data["num_steps"] == 3
    assert counted(local_level, read) == {"num_steps": 3}
    assert counted(hmm, read) == {}
    assert model_data(local_level, read, Reading(), None, {}, {"num_steps": "4"}).data["num_steps"] == 4


@pytest.mark.parametrize("cells", ["$1 -$2.50 $1,000", "10% 2.5% 100", "3€ 4 5,5€"])
def test_numbers_with_the_sign_of_a_unit_are_no_levels(tmp_path: Path, cells: str) -> None:
    read = table(tmp_path, "a;y\n" + "".join(f"1;{cell}\n" for cell in cells.split()))
    with pytest.raises(ValueError, match=r"column 'y' .* in line 2, a number with a sign: .*--categorical y"):
        column(read, "y", Reading())
    assert is_levels(column(read, "y", Reading(categorical=("y",))))


def test_texts_with_such_signs_are_levels(tmp_path: Path) -> None:
    read = table(tmp_path, "a,y\n1,$1 off\n2,10% off\n3,none\n")
    assert is_levels(column(read, "y", Reading()))


def test_an_empty_column_is_called_empty(tmp_path: Path) -> None:
    read = table(tmp_path, "a,e\n1,\n2,NA\n")
    with pytest.raises(ValueError, match=r"column 'e' of '.*' is empty: leave it out with --drop e"):
        without_missing(read, ["a", "e"], Reading())


def test_columns_set_apart_by_blanks(tmp_path: Path) -> None:
    content = "a b y\n1 2 x\n3  4 y\n"
    with pytest.raises(ValueError, match=r'line 1 of .* 3 words set apart by blanks; .* --separator " "'):
        table(tmp_path, content)
    read = table(tmp_path, content, separator=" ")
    np.testing.assert_array_equal(column(read, "b", Reading()), [2, 4])
    assert list(table(tmp_path, content, separator=",").columns) == ["a b y"]
    assert list(table(tmp_path, "full name\nAnn Lee\nBo Ek\n").columns) == ["full name"]
