"""A result as text and as JSON: in the units of the file first, then as it was fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.command_line.tables.coding import FileCoding, file_coding_of, in_original_units
from bayeslab.reports.summary_cells import summary_frame, summary_text

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset, DataTree

OPTIONS = {
    "raise num_samples, or continue with previous=tree": "raise --draws; --resume goes on from what is there",
    "allow more, or continue with previous=tree": "raise --steps",
    "raise target_accept_prob, or reparameterise (non-centred scales)": "raise --target-accept, such as to 0.99",
    "raise max_tree_depth, or rescale the parameters": "raise --max-tree-depth, or rescale the columns",
    "warm up longer, look at az.plot_rank, and align components that switch labels": "raise --warmup and --draws; "
    "components that switch labels are no error, and bl.align of the Python library puts them in one order",
    "take a richer guide, or NUTS": "take --method nuts, or with svi --guide full-rank or flow",
    "fit again with another key or a longer warm-up": "fit again with another --seed or a larger --warmup",
    "check the data and the supports, and compute in float64": "check the columns",
    "reparameterise heavy tails and hierarchical scales": "raise --warmup and --draws",
}
"""Advice for Python, and for the command."""
MAX_ELEMENTS = 500
"""The largest site whose elements are listed."""
PROBABILITY = 0.89
"""The probability of intervals, that of ArviZ's summary."""


def shown_sites(posterior: Dataset) -> tuple[Dataset, list[str]]:
    """The sites to list, continuous ones where there are some, and sentences on those that are too large."""
    kinds = {str(name): values.dtype.kind for name, values in posterior.data_vars.items()}
    names = [name for name in kinds if kinds[name] == "f"] or list(kinds)
    sizes = {name: posterior[name].isel(chain=0, draw=0).shape for name in names}
    large = [name for name in names if np.prod(sizes[name]) > MAX_ELEMENTS]
    notes = [f"{name} has {' x '.join(map(str, sizes[name]))} elements, which are in the file" for name in large]
    return posterior[[name for name in names if name not in large]], notes


def with_class_names(posterior: Dataset, coding: FileCoding | None) -> Dataset:
    """The posterior with the names of classes along `class`."""
    if coding is None or posterior.sizes.get("class") != len(coding.classes):
        return posterior
    return posterior.assign_coords({"class": list(coding.classes)})


def result_text(tree: DataTree) -> str:
    """What was found, in the units of the file where it was standardised, and what is wrong with it."""
    coding = file_coding_of(tree)
    posterior = with_class_names(tree["posterior"].to_dataset(), coding)
    shown, notes = shown_sites(posterior)
    parts = []
    original = None if coding is None else in_original_units(posterior, coding)
    if original is not None and coding is not None:
        parts.append(f"In the units of '{coding.table}':\n{_table(original)}")
    if coding is not None and coding.is_standardised:
        parts.append(_standardised_heading(coding))
    parts.append(_table(shown) if shown.data_vars else "")
    parts += notes
    if "log_evidence" in tree.attrs:
        parts.append(_evidence_text(float(tree.attrs["log_evidence"]), tree, coding))
    return "\n".join(part for part in parts if part)


def result_record(tree: DataTree) -> dict[str, Any]:
    """The same for `--json`: every number by its name, NaN as null."""
    coding = file_coding_of(tree)
    posterior = with_class_names(tree["posterior"].to_dataset(), coding)
    shown, notes = shown_sites(posterior)
    original = None if coding is None else in_original_units(posterior, coding)
    attrs = {
        name: tree.attrs[name] for name in ("model", "method", "settings", "log_evidence", "elbo") if name in tree.attrs
    }
    return {
        **{name: value.item() if hasattr(value, "item") else value for name, value in attrs.items()},
        "seconds": float(tree.attrs.get("compile_seconds", 0.0) + tree.attrs.get("sampling_seconds", 0.0)),
        "chains": posterior.sizes["chain"],
        "draws": posterior.sizes["draw"],
        "probability_of_intervals": PROBABILITY,
        "original_units": None if original is None else _records(original),
        "parameters": _records(shown),
        "classes": list(coding.classes) if coding is not None else [],
        "left_out": notes,
        "problems": problems(tree),
    }


def problems(tree: DataTree) -> list[str]:
    """What `diagnose` says, with the options of the command."""
    from bayeslab.diagnostics.diagnose import diagnose

    return advice(diagnose(tree))


def advice(problems: str) -> list[str]:
    """The lines of `diagnose`, with options of the command in place of arguments."""
    for said, option in OPTIONS.items():
        problems = problems.replace(said, option)
    return problems.splitlines()


def _table(draws: Dataset) -> str:
    """The summary as text; the values of a point estimate."""
    if draws.sizes["draw"] == 1:
        from bayeslab.results.parameters import stacked_parameters

        return stacked_parameters(draws).isel(chain=0, draw=0).to_series().rename(None).to_string()
    return summary_text(_summary(draws)).to_string()


def _summary(draws: Dataset) -> DataFrame:
    """The summary of all numbers."""
    from xarray import DataTree

    return summary_frame(DataTree.from_dict({"posterior": draws}))


def _records(draws: Dataset) -> dict[str, dict[str, float | None]]:
    """The summary by name of number and of column."""
    if not draws.data_vars:
        return {}
    if draws.sizes["draw"] == 1:
        from bayeslab.results.parameters import stacked_parameters

        values = stacked_parameters(draws).isel(chain=0, draw=0)
        return {
            str(name): {"value": _finite(value)}
            for name, value in zip(values["parameter"].values, values.values, strict=True)
        }
    frame = _summary(draws)
    return {str(name): {str(column): _finite(value) for column, value in row.items()} for name, row in frame.iterrows()}


def _finite(value: Any) -> float | None:
    """A number as JSON has it."""
    return float(value) if np.isfinite(float(value)) else None


def _standardised_heading(coding: FileCoding) -> str:
    """The heading of the table of what was fitted."""
    what = f", and {coding.target} divided by {coding.y_scale:.4g}" if coding.y_scale != 1.0 else ""
    return f"\nAs fitted, with every column of numbers less its mean and divided by its standard deviation{what}:"


def _evidence_text(log_evidence: float, tree: DataTree, coding: FileCoding | None) -> str:
    """A sentence with the log evidence, in the units of the target where there are others."""
    if coding is None or coding.y_scale == 1.0 or "y" not in tree["observed_data"]:
        return f"\nLog evidence: {log_evidence:.2f}"
    rows = int(tree["observed_data"]["y"].notnull().sum())
    original = log_evidence - rows * np.log(coding.y_scale)
    return f"\nLog evidence: {original:.2f} in the units of {coding.target}, {log_evidence:.2f} as fitted"
