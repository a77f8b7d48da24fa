"""Tables of a posterior as cells of text: means, intervals and diagnostics; points; the values of discrete sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayeslab.reports.selected_parameters import Parameter

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import DataTree

    Cells = tuple[list[str], list[list[str]]]

MIN_DRAWS = 4
"""The smallest number of draws of a chain from which effective sample sizes are told."""
FORMATS = {"ess": "{:,.0f}", "mcse": "{:.2g}", "r": "{:.3f}"}
"""Formats of columns by the first part of their names."""


def summary_frame(tree: DataTree, kind: str = "all") -> DataFrame:
    """ArviZ's summary of a posterior, not rounded, without R-hat where there is one chain. kind: as ArviZ has it."""
    from arviz_stats import summary

    with np.errstate(all="ignore"):  # of numbers that are the same in all draws
        frame = summary(tree, kind=kind, round_to="none")
    return frame if tree["posterior"].sizes["chain"] > 1 else frame.drop(columns="r_hat", errors="ignore")


def summary_text(frame: DataFrame) -> DataFrame:
    """The cells of a summary as text; a dash for what is no number."""
    forms = {str(column): FORMATS.get(str(column).partition("_")[0], "{:.4g}") for column in frame.columns}
    return frame.assign(
        **{name: [form.format(value).replace("nan", "-") for value in frame[name]] for name, form in forms.items()}
    )


def continuous_cells(parameters: Sequence[Parameter]) -> Cells:
    """Headings and rows of the summary of scalars, as ArviZ has it; one column for a single draw of a single chain.

    Intervals are ArviZ's. Diagnostics are left out where chains have few draws, R-hat where there is one chain.
    """
    labels = [parameter.label for parameter in parameters]
    chains, draws = parameters[0].values.shape
    if chains * draws == 1:
        return ["", "value"], [[label, f"{values.item():.4g}"] for label, values in parameters]
    kind = "stats" if draws < MIN_DRAWS else "all"
    frame = summary_text(summary_frame(numbered_tree(parameters), kind))
    rows = [[label, *row] for label, row in zip(labels, frame.to_numpy(), strict=True)]
    return ["", *map(str, frame.columns)], rows


def discrete_cells(parameters: Sequence[Parameter]) -> Cells:
    """Headings and rows with the most frequent value of every scalar and the share of draws that have it."""
    rows = []
    for label, values in parameters:
        labels, counts = np.unique(values, return_counts=True)
        best = int(np.argmax(counts))
        rows.append([label, str(labels[best]), f"{counts[best] / counts.sum():.2f}", str(len(labels))])
    return ["", "most frequent", "share of draws", "different values"], rows


def numbered_tree(parameters: Sequence[Parameter]) -> DataTree:
    """A posterior of one site `value` (chain, draw, parameter): labels may be the same, or hold what names may not."""
    from xarray import DataArray, Dataset, DataTree

    stacked = np.stack([parameter.values for parameter in parameters], axis=-1)
    return DataTree.from_dict(
        {"posterior": Dataset({"value": DataArray(stacked, dims=("chain", "draw", "parameter"))})}
    )
