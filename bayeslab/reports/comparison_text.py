"""A comparison of posteriors as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import Dataset

    Samples = NDArray[Any]


def to_text(table: Dataset) -> str:
    """A table of `compare_posteriors` in fixed width, one line a method, blank where nothing applies."""
    rows = table_cells(table)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(widths[0]), *map(str.rjust, row, widths[1:])]).rstrip() for name, *row in rows
    )


def table_cells(table: Dataset) -> list[list[str]]:
    """The table as text, headings first, without columns that apply to nothing."""
    rows = [["", *_COLUMNS]]
    for position, name in enumerate(table["posterior"].values):
        row = {str(name): float(values[position]) for name, values in table.data_vars.items()}
        rows.append([str(name), *(show(row) for show in _COLUMNS.values())])
    kept = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return [list(row) for row in zip(*kept, strict=True)]


def _plus_minus(value: float, mcse: float) -> str:
    """A value to the last digit its error leaves standing."""
    if not np.isfinite(value):
        return "" if np.isnan(value) else f"{value}"
    if not mcse > 0:
        return _significant(value)
    decimals = int(np.clip(np.ceil(-np.log10(mcse)), 0, 4))
    return f"{value:.{decimals}f} ± {mcse:.{decimals}f}"


def _significant(value: float) -> str:
    """Three significant digits, all digits of large numbers, commas between thousands."""
    if not np.isfinite(value):
        return "" if np.isnan(value) else f"{value}"
    decimals = int(np.clip(2 - np.floor(np.log10(abs(value))), 0, 4)) if value else 0
    return f"{value:,.{decimals}f}"


def _with_error(name: str) -> Callable[[dict[str, float]], str]:
    """The function that shows a variable with its Monte Carlo error."""
    return lambda row: _plus_minus(row[name], row[f"{name}_mcse"])


def _plain(name: str) -> Callable[[dict[str, float]], str]:
    """The function that shows a variable with three significant digits."""
    return lambda row: _significant(row[name])


def _seconds(name: str) -> Callable[[dict[str, float]], str]:
    """The function that shows a variable in seconds."""
    return lambda row: "" if np.isnan(row[name]) else f"{row[name]:,.2f}"


def _span(low: str, high: str) -> Callable[[dict[str, float]], str]:
    """The function that shows the range between two variables."""
    return lambda row: "" if np.isnan(row[low]) else f"{row[low]:.2f} to {row[high]:.2f}"


_COLUMNS = {
    "mean error": _with_error("mean_error_max"),
    "sd ratio": _span("sd_ratio_min", "sd_ratio_max"),
    "distance": _with_error("wasserstein_max"),
    "90 % covers": _span("coverage_min", "coverage_max"),
    "k-hat": _with_error("k_hat"),
    "ELBO gap": _with_error("elbo_gap"),
    "ESS": lambda row: f"{row['ess_min']:,.0f}" if row["ess_min"] > 0 else "",
    "ESS/s": _plain("ess_per_second"),
    "ESS/grad": _plain("ess_per_gradient"),
    "compile s": _seconds("compile_seconds"),
    "run s": _seconds("sampling_seconds"),
}
"""The columns of the table, and the functions that show them."""
