"""How good probabilities of classes are: log score, Brier score and accuracy, with standard errors, side by side."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from xarray import Dataset

SUM_TOLERANCE = 1e-6
"""The sum of the probabilities of a row may be away from one by this much."""


def class_scores(probabilities: Mapping[str, ArrayLike], y: ArrayLike) -> "Dataset":
    """The scores of several classifiers on the same rows.

    probabilities: for every classifier (row, class), or (row,) of the second of two classes, from `bl.predict` or any
    estimator of scikit-learn. y: the classes (row,) as codes from 0.
    Returns a Dataset along classifier: log_score, the mean of the log probability of what was the case; brier, the mean
    of the squared distance of the probabilities from it, summed over classes; accuracy, the share of rows whose most
    probable class it was. Each has a standard error `_se` over rows, and a `_difference` from the first classifier with
    a `_difference_se` of its own: rows are the same, so differences are known better than scores.
    Raises ValueError for probabilities that are none, and for other numbers of rows or classes.
    """
    from xarray import Dataset

    if not probabilities:
        raise ValueError("there is no classifier: give the probabilities of one at least.")
    codes = np.asarray(y)
    if codes.ndim != 1 or codes.dtype.kind not in "iub" or codes.size < 2 or codes.min() < 0:
        raise ValueError("y must be the classes of two rows at least as codes from 0, without missing ones.")
    codes = codes.astype(int)
    by_row: dict[str, list[np.ndarray]] = {"log_score": [], "brier": [], "accuracy": []}
    for name, given in probabilities.items():
        table = _table(name, given, codes)
        own = table[np.arange(len(codes)), codes]
        with np.errstate(divide="ignore"):
            by_row["log_score"].append(np.log(own))
        by_row["brier"].append(np.sum((table - np.eye(table.shape[1])[codes]) ** 2, axis=1))
        by_row["accuracy"].append((table.argmax(1) == codes).astype(float))
    columns: dict[str, Any] = {}
    for score, rows in by_row.items():
        values = np.array(rows)
        with np.errstate(invalid="ignore"):
            differences = values - values[0]
            for label, numbers in ((score, values), (f"{score}_difference", differences)):
                columns[label] = ("classifier", numbers.mean(1))
                columns[f"{label}_se"] = ("classifier", numbers.std(1, ddof=1) / np.sqrt(len(codes)))
    return Dataset(columns, {"classifier": list(probabilities)}, {"rows": len(codes)})


def _table(name: str, given: ArrayLike, codes: np.ndarray) -> np.ndarray:
    """The probabilities (row, class) of one classifier."""
    table = np.asarray(given, float)
    if table.ndim == 1:
        table = np.stack([1 - table, table], axis=1)
    if table.ndim != 2 or len(table) != len(codes):
        raise ValueError(
            f"the probabilities of {name!r} have shape {np.shape(given)}, but there are {len(codes)} rows."
        )
    if codes.max() >= table.shape[1]:
        raise ValueError(f"y has class {codes.max()}, but {name!r} has probabilities of {table.shape[1]} classes.")
    is_probability = (table >= 0).all() and (np.abs(table.sum(1) - 1) <= SUM_TOLERANCE).all()
    if not is_probability:
        raise ValueError(f"the probabilities of {name!r} are no probabilities: negative, or of another sum than one.")
    return table
