"""Tables of log scores: differences from the best, with standard errors."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xarray import Dataset


def with_differences(table: "Dataset", name: str, parts: Any = slice(None)) -> "Dataset":
    """A table of scores with difference and difference_se from the best one, paired by part of the data.

    table: a row for every value of `name`, with log_score, and log_density (name, part). parts: those that were scored.
    attrs["best"] is the value with the largest score, attrs["smallest"], of numbers, the smallest one that is behind it
    by no more than the standard error of their difference.
    """
    best = int(np.argmax(table["log_score"].values))
    with np.errstate(invalid="ignore"):  # both minus infinity
        gaps = (table["log_density"] - table["log_density"][best]).values[:, parts]
        errors = [standard_error(gap) for gap in gaps]
    values, total = table[name].values, gaps.sum(1)
    attributes = {"best": values[best].item()}
    if values.dtype.kind in "if":
        close = (total >= -np.asarray(errors)) | (np.arange(len(values)) == best)
        attributes["smallest"] = values[close].min().item()
    return table.assign(difference=(name, total), difference_se=(name, errors)).assign_attrs(attributes)


def standard_error(scores: np.ndarray) -> float:
    """The standard error of a sum of independent scores."""
    return float(np.sqrt(len(scores)) * np.std(scores, ddof=1))
