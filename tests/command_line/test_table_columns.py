"""Columns of files are read by what they hold; what could be read in two ways is refused with the way out."""

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayeslab.command_line.columns import Reading, column, is_levels, require_few_levels
from bayeslab.command_line.csv_data import without_missing
from bayeslab.command_line.table_file import TextTable, read_table

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


def test_a_first_column_without_a_name_labels_the_rows(tmp_path: Path) -> None:
    read = table(tmp_path, ",size\nann,1\nbob,2\n")
    assert column(read, "size", Reading()).index.tolist() == ["ann", "bob"]


BROKEN: dict[str, tuple[str | bytes, str]] = {
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
    "one cell": (["1", "2", "n/a?", "3"], {}, "numbers but for 'n/a\\?' in line 4: pass --missing \"n/a\\?\""),
    "some cells": (["1", "?", "-", "3", "4", "5"], {}, "but for '\\?' in line 3, '-' in line 4"),
    "zip codes": (["01234", "9876"], {}, "codes such as 01234"),
    "thousands or decimal": (["1,234", "5,678"], {}, "--thousands , if .* or --decimal , if they are decimal"),
    "thousands": (["1,234.5", "5,678.25"], {}, "pass --thousands , if its|pass --thousands ,"),
    "points and commas": (["1.234,5", "2.345,6"], {}, "'1.234,5' in line 2: pass --thousands \"\\.\" --decimal ,"),
    "points of thousands": (["1.234", "2"], {"decimal": ","}, "'1.234' in line 2: pass --thousands"),
    "blanks": (["1 234", "999"], {}, 'pass --thousands " " if'),
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
    "dates since": (["2020-03-01"], {"dates": {"a": "2020-01-01"}}, [60]),
    "German": (["1.3.2020", "28.2.2020"], {"dates": {"a": None}}, [2, 0]),
    "American": (["3/1/2020", "2/28/2020"], {"dates": {"a": None}}, [2, 0]),
    "hours": (["2020-03-01T12:00", "2020-03-01T00:00"], {"dates": {"a": None}}, [0.5, 0]),
    "none": (["", "NA", "NaN"], {}, [np.nan] * 3),
}


@pytest.mark.parametrize("case", READ)
def test_what_is_said_is_read(tmp_path: Path, case: str) -> None:
    cells, reading, expected = READ[case]
    read = column(table(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells)), "a", Reading(**reading))
    if is_levels(read):
        assert read.tolist() == expected
    else:
        np.testing.assert_allclose(read, expected)


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
