"""Observed series that go on with missing entries."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.datasets.times.grid import calendar_step
from bayeslab.programs.arguments import parameters
from bayeslab.programs.binding import bind
from bayeslab.programs.data import Entry, read_entries
from bayeslab.programs.program import Bound, Data, Program
from bayeslab.results.datatree import dimensions

if TYPE_CHECKING:
    from xarray import DataArray, Dataset


def lengthen(model: Program, data: Data, changes: Data) -> dict[str, Any]:
    """The data with some entries changed, and observed sites as long as the program then has them.

    Raises ValueError where the program does not run with the changes, and for a site that gets shorter.
    """
    entries = {name: data[name] for name in data} | {name: changes[name] for name in changes}
    before = bind(model, data).plain
    series = [name for name in before.observed if name in data and name not in changes]
    optional = {name for name, parameter in parameters(model).items() if parameter.default is None}
    arguments = {n: v for n, v in entries.items() if n not in series or (n in parameters(model) and n not in optional)}
    bound = _bind_changed(model, arguments)
    old_entries = read_entries({name: data[name] for name in series})
    for name in series:
        dims = dimensions(before, old_entries)[name]
        entries[name] = _pad_with_missing(name, old_entries[name], before, dims, bound.sites[name].shape)
    return entries


def new_steps(states: "Dataset", before: Mapping[str, tuple[int, ...]]) -> "Dataset":
    """The new steps of variables (chain, draw, *site), from the old shapes of their sites."""
    parts = {}
    for name, shape in before.items():
        if name in states:
            axes = zip(states[name].dims[2:], shape, states[name].shape[2:], strict=True)
            parts[name] = states[name].isel({dim: slice(old, None) for dim, old, new in axes if new > old})
    return (
        states.drop_vars(states.data_vars)
        .drop_dims([d for d in states.dims if d not in ("chain", "draw")])
        .assign(parts)
    )


def _bind_changed(model: Program, entries: dict[str, Any]) -> Bound:
    """The program bound to changed entries. Raises ValueError where their shapes do not go together."""
    try:
        return bind(model, entries).plain
    except (TypeError, ValueError) as error:
        if "shape" not in str(error):
            raise
        raise ValueError(
            f"the program does not run with these changes; a series may still have its old length ({error})"
        ) from None


def _pad_with_missing(
    name: str, entry: Entry, bound: Bound, dims: Sequence[str], shape: tuple[int, ...]
) -> "DataArray":
    """An observed site, missing where it is longer."""
    from xarray import DataArray

    value = np.asarray(entry.value)
    if any(new < old for new, old in zip(shape, value.shape, strict=True)):
        raise ValueError(
            f"changes give site '{name}' shape {shape}, but its entry has shape {value.shape}; it may grow"
        )
    is_present = np.ones(value.shape, bool) if entry.present is None else entry.present
    widths = [(0, new - old) for new, old in zip(shape, value.shape, strict=True)]
    padded = np.pad(np.where(is_present, value, np.nan), widths, constant_values=np.nan)
    labels = {
        dim: continue_labels(entry.labels[axis], shape[axis]) for axis, dim in enumerate(dims) if axis in entry.labels
    }
    return DataArray(padded, labels, dims)


def continue_labels(labels: Sequence[Hashable], size: int) -> list[Hashable]:
    """Labels up to a size: equally spaced numbers and regular dates go on, after others come "+1", "+2" and so on."""
    old_labels, num_new = list(labels), size - len(labels)
    if len(old_labels) > 1 and all(isinstance(label, datetime) for label in old_labels):
        return [*old_labels, *_continued_dates(old_labels, num_new)]
    if len(old_labels) > 1 and all(isinstance(label, int | float) for label in old_labels):
        numbers = np.asarray(old_labels)
        step = numbers[1] - numbers[0]
        if (np.diff(numbers) == step).all():
            return [*old_labels, *(numbers[-1] + step * np.arange(1, num_new + 1)).tolist()]
    return [*old_labels, *(f"+{number}" for number in range(1, num_new + 1))]


def _continued_dates(dates: Sequence[Any], number: int) -> list[Hashable]:
    """Dates after the last one: in the steps of the calendar that the dates have, such as months, or else of their
    last difference."""
    import pandas as pd

    index = pd.DatetimeIndex(list(dates))
    step: Any = calendar_step(index)
    if step is None or len(pd.date_range(index[0], index[-1], freq=step)) > len(index):
        inferred = pd.DatetimeIndex(index, freq="infer").freq if len(index) > 2 else None
        step = inferred or index[-1] - index[-2]
    return list(pd.date_range(index[-1], periods=number + 1, freq=step)[1:])
