"""Documents and series in unusual forms: the right arrays, or a sentence that says what is in doubt."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import coo_array

from bayeslab.datasets import documents, process_data, series_data

DATES = pd.to_datetime(["2020-01-15", "2020-02-15", "2020-04-15"])


def counts(data: dict[str, Any]) -> list[list[int]]:
    """The counts (document, word)."""
    table = np.zeros((data["num_documents"], data["num_words"]), int)
    np.add.at(table, (data["document"].cat.codes, data["word"].cat.codes), 1)
    return table.tolist()


COUNTED: dict[str, Any] = {
    "Counter": [Counter("aab"), Counter("bb"), Counter()],
    "mapping of Counter": {"p": Counter("aab"), "q": Counter("bb"), "r": {}},
    "Series of Counter": pd.Series([Counter("aab"), Counter("bb"), Counter()]),
    "pairs": [[("a", 2), ("b", 1)], [("b", np.int64(2))], []],
    "lists of two numbers": [[[0, 2], [1, 1]], [[1, 2]], []],
    "arrays of two columns": [np.array([[0, 2], [1, 1]]), np.array([[1, 2]]), np.zeros((0, 2))],
}


@pytest.mark.parametrize("name", COUNTED)
def test_words_with_counts_are_counted(name: str) -> None:
    assert counts(documents(COUNTED[name])) == [[2, 1], [0, 2], [0, 0]]


def test_pairs_of_words_are_words() -> None:
    assert documents([[("a", "b")], [("b", "c")]])["word"].tolist() == [("a", "b"), ("b", "c")]


REFUSED: dict[str, tuple[Any, str]] = {
    "bags and words": ([[(0, 1)], ["a"]], "some documents hold pairs"),
    "counts and words": ([Counter("aab"), ["a"]], "document 1 has no counts"),
    "a word twice": ([[("a", 1), ("a", 2)]], "document 0 has a word twice"),
    "lists as counts": ([{"a": [1, 2], "b": 1}], "document 0 has .* as the count of word 'a'"),
    "weights": ([{"a": 0.3}], "the count of word 'a' in document 0 is 0.3"),
    "a column of numbers": (
        pd.DataFrame({"doc_id": [11, 12], "apple": [1, 0]}),
        r"column 'doc_id' .* would be read as the counts of a word; .* set_index\('doc_id'\)",
    ),
    "a column of CSV": (pd.DataFrame({"Unnamed: 0": [0, 1], "apple": [1, 0]}), "column 'Unnamed: 0'"),
    "axes": (
        xr.DataArray([[1, 0], [2, 1]], {"doc": ["p", "q"]}, ("term", "doc")),
        r"dimensions \('term', 'doc'\); .* transpose it",
    ),
    "axes of a frame": (
        pd.DataFrame([[1, 0]], pd.Index(["w"], name="term"), pd.Index([1, 2], name="doc")),
        r"dimensions \('term', 'doc'\)",
    ),
    "one axis": (coo_array(np.array([1, 0, 2])), r"the matrix of counts has shape \(3,\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_doubtful_documents_are_refused(name: str) -> None:
    source, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        documents(source)


def test_a_dataset_is_refused_with_its_variables() -> None:
    with pytest.raises(TypeError, match=r"a Dataset; name its variable of counts, one of \['counts'\]"):
        documents(xr.Dataset({"counts": (("document", "word"), [[1, 0]])}))


def test_a_word_may_be_called_document() -> None:
    """Where the index has names, and where the column does not number the rows."""
    frame = pd.DataFrame({"document": [1, 2], "pear": [0, 2]}, ["p", "q"])
    assert counts(documents(frame)) == [[1, 0], [2, 2]]
    assert counts(documents(pd.DataFrame({"document": [1, 1], "pear": [0, 2]}))) == [[1, 0], [1, 2]]


@pytest.mark.parametrize("times", [pd.date_range("2020-01-01", periods=3), [2000, 2001, 2003]])
def test_the_dimension_of_times_may_come_second(times: Any) -> None:
    array = xr.DataArray(np.arange(6.0).reshape(2, 3), {"time": times, "station": [7, 8]}, ("station", "time"))
    y = series_data(array)["y"]
    np.testing.assert_array_equal(y.sel(step=times), series_data(array.T)["y"].sel(step=times))
    assert y.sel(step=times).values[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_the_same_day_of_every_month_is_monthly() -> None:
    y = series_data(pd.Series([1.0, 2, 4], DATES))["y"]
    np.testing.assert_array_equal(y, [[1, 2, np.nan, 4]])
    assert pd.DatetimeIndex(y["step"].values).tolist() == [*DATES[:2], pd.Timestamp("2020-03-15"), DATES[2]]


SERIES_REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a column of years": (pd.DataFrame({"year": [2000, 2001, 2003], "v": 1.0}), {}, "pass time='year'"),
    "another column of dates": (pd.DataFrame({"when": DATES, "v": 1.0}), {"columns": "v"}, "pass time='when'"),
    "days as numbers": (pd.Series([1, 2], [20200131, 20200201]), {}, "format='%Y%m%d'"),
    "months as numbers": (pd.DataFrame({"m": [202012, 202101], "v": 1.0}), {"time": "m"}, "format='%Y%m'"),
    "two dimensions without a name of times": (xr.DataArray(np.ones((2, 3)), dims=("a", "b")), {}, "so named"),
    "names alike": (
        pd.DataFrame({"t": [1, 1], "who": pd.Series([1, "1"], dtype=object), "v": 1.0}),
        {"by": "who", "time": "t"},
        "differ in their type alone",
    ),
}


@pytest.mark.parametrize("name", SERIES_REFUSED)
def test_doubtful_series_are_refused(name: str) -> None:
    source, options, words = SERIES_REFUSED[name]
    with pytest.raises(ValueError, match=words):
        series_data(source, **options)


def test_numbers_that_are_no_dates_are_times() -> None:
    assert series_data(pd.Series([1, 2], [20200199, 20200200]))["num_steps"] == 2
    assert series_data(pd.DataFrame({"year": [1, 2], "v": [3, 4]}), ["year", "v"])["y"].sizes["feature"] == 2


def test_infinite_times_and_complex_values_are_refused() -> None:
    with pytest.raises(ValueError, match="the index has an infinite time"):
        process_data(pd.Series([1, 2], [1, np.inf]))
    with pytest.raises(TypeError, match="column 'y' holds complex128"):
        series_data(pd.Series([1j, 2], [1, 2]))
