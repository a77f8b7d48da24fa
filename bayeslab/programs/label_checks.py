"""Checks that labels of axes mean the same in all entries of the data."""

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bayeslab.programs.data import (
    Entry,
    are_positions,
)


class LabelledAxis(NamedTuple):
    """A labelled axis of an entry; or the categories of an entry, as labels of the plate of its name.

    dims: names of the axis: its own, and those of plates. coded: whether labels are categories.
    """

    entry: str
    dims: frozenset[str]
    labels: list[Hashable]
    coded: bool = False


def refuse_conflicting_labels(entries: Mapping[str, Entry], plates: Mapping[str, Mapping[str, int]]) -> None:
    """Raise ValueError where entries, which are joined by position, have labels of a shared axis in different orders.

    plates: site -> plate -> axis.
    """
    axes: list[LabelledAxis] = []
    for axis in _labelled_axes(entries, plates):
        if any(axis.dims <= other.dims and axis.labels == other.labels for other in axes):
            continue
        for other in axes:
            if _contradicts(axis, other):
                pairs = enumerate(zip(other.labels, axis.labels, strict=True))
                position, (expected, label) = next((i, pair) for i, pair in pairs if str(pair[0]) != str(pair[1]))
                shared = sorted(axis.dims & other.dims)
                raise ValueError(
                    f"entries '{other.entry}' and '{axis.entry}' are joined by position, but position {position}"
                    f"{f" of '{shared[0]}'" if shared else ''} is '{expected}' in '{other.entry}' and '{label}' in "
                    f"'{axis.entry}'; bring them into one order with the same labels"
                )
        axes.append(axis)
    _refuse_labels_unlike_codes(entries)


def _refuse_labels_unlike_codes(entries: Mapping[str, Entry]) -> None:
    """Raise ValueError where the names on the first axis of an entry are the categories of another one, and not in the
    order of its codes, by which it is looked up; as many names as the other entry has rows are those of rows."""
    for name, item in entries.items():
        levels = [*item.categories]
        if len(levels) < 2 or not all(isinstance(level, str) for level in levels):
            continue
        for other, labelled in entries.items():
            known = labelled.labels.get(0, [])
            if other == name or len(known) in np.shape(item.value) or not {*levels} <= {*known}:
                continue
            if [*known[: len(levels)]] != levels:
                place = next(i for i, pair in enumerate(zip(levels, known, strict=False)) if pair[0] != pair[1])
                raise ValueError(
                    f"code {place} of entry '{name}' is the category '{levels[place]}', but position {place} of "
                    f"axis 0 of entry '{other}' is '{known[place]}'; give '{name}' as a pandas.Categorical "
                    f"whose categories are the labels of '{other}', in their order"
                )


def _labelled_axes(entries: Mapping[str, Entry], plates: Mapping[str, Mapping[str, int]]) -> Iterator[LabelledAxis]:
    for name, item in entries.items():
        numbers = {0: range(np.shape(item.value)[0])} if item.numbered else {}
        for axis, labels in {**item.labels, **numbers}.items():
            dims = {plate for plate, plate_axis in plates.get(name, {}).items() if plate_axis == axis}
            dims |= {dim for dim in item.dims[axis : axis + 1] if dim is not None}
            yield LabelledAxis(name, frozenset(dims), list(labels))
        if item.categories and any(name in site_plates for site_plates in plates.values()):
            yield LabelledAxis(name, frozenset({name}), list(item.categories), coded=True)


def _contradicts(axis: LabelledAxis, other: LabelledAxis) -> bool:
    """Whether two axes of one name have different labels, or, where one has no name, the same in another order."""
    labels, other_labels = list(map(str, axis.labels)), list(map(str, other.labels))
    if len(labels) != len(other_labels) or labels == other_labels:
        return False
    if axis.dims & other.dims and not (are_positions(axis.labels) or are_positions(other.labels)):
        return True
    nameless = not (axis.dims and other.dims) and axis.entry != other.entry and not (axis.coded or other.coded)
    return (nameless or bool(axis.dims & other.dims)) and sorted(labels) == sorted(other_labels)
