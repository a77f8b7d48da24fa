"""Calls of the functions of tables with times, and of words, with arguments that are right."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from bayeslab import datasets

ARGUMENTS = ("columns", "column", "by", "time", "freq", "times")
WORDS_OF_TIMES = dict.fromkeys(ARGUMENTS, ("column", "time", "freq", "series", "zone"))
"""What a refusal of an argument may name, by argument."""


def timed(frame: pd.DataFrame) -> dict[Callable[..., Any], dict[str, Any]]:
    """The functions of tables with times, and of words, with arguments that are right."""
    rows = frame.assign(day=["2020-01-01", "2020-01-02", "2020-01-04"])
    told = {"source": rows, "time": "day"}
    words = datasets.documents([["a", "b"], ["b"]])
    return {
        datasets.select_words: {"data": words, "min_documents": 1, "max_share": 1.0, "stop_words": ["c"]},
        datasets.series_data: told | {"columns": "rain", "by": "soil", "freq": "D"},
        datasets.state_space_data: told | {"columns": ["rain", "yield"], "freq": "D"},
        datasets.process_data: told | {"column": "rain", "unit": "h"},
        datasets.process_times: {"times": ["2020-02-01"], "data": datasets.process_data(rows, "rain", time="day")},
    }
