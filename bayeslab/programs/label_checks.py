"""Labels of axes mean the same in all entries of a call."""

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

from bayeslab.programs.data import (
    Entry,
    is_count,
)


class LabelledAxis(NamedTuple):
    """A labelled axis of an entry, and what it is called; or the categories of an entry for the plate of its name."""

    entry: str
    dims: frozenset[str]
    labels: list[Hashable]
    coded: bool = False


def refuse_other_labels(entries: Mapping[str, Entry], plates: Mapping[str, Mapping[str, int]]) -> None:
    """Entries are joined by position: labels of what they share are in one order. plates: the axes of every site."""
    axes: list[LabelledAxis] = []
    for axis in _labelled_axes(entries, plates):
        if any(axis.dims <= other.dims and axis.labels == other.labels for other in axes):
            continue
        for other in axes:
            if _contradict(axis, other):
                pairs = zip(other.labels, axis.labels, strict=True)
                place, (theirs, mine) = next((i, pair) for i, pair in enumerate(pairs) if str(pair[0]) != str(pair[1]))
                shared = sorted(axis.dims & other.dims)
                raise ValueError(
                    f"entries '{other.entry}' and '{axis.entry}' are joined by position, but position {place}"
                    f"{f" of '{shared[0]}'" if shared else ''} is '{theirs}' in '{other.entry}' and '{mine}' in "
                    f"'{axis.entry}'; bring them into one order with the same labels"
                )
        axes.append(axis)


def _labelled_axes(entries: Mapping[str, Entry], plates: Mapping[str, Mapping[str, int]]) -> Iterator[LabelledAxis]:
    for name, item in entries.items():
        for axis, labels in item.labels.items():
            dims = {plate for plate, place in plates.get(name, {}).items() if place == axis}
            dims |= {dim for dim in item.dims[axis : axis + 1] if dim is not None}
            yield LabelledAxis(name, frozenset(dims), list(labels))
        if item.categories and any(name in of_site for of_site in plates.values()):
            yield LabelledAxis(name, frozenset({name}), list(item.categories), coded=True)


def _contradict(one: LabelledAxis, other: LabelledAxis) -> bool:
    """Whether two axes of one name have different labels, or, where one has no name, the same in another order."""
    some, others = list(map(str, one.labels)), list(map(str, other.labels))
    if len(some) != len(others) or some == others:
        return False
    if one.dims & other.dims and not (is_count(one.labels) or is_count(other.labels)):
        return True
    nameless = not (one.dims and other.dims) and one.entry != other.entry and not (one.coded or other.coded)
    return (nameless or bool(one.dims & other.dims)) and sorted(some) == sorted(others)
