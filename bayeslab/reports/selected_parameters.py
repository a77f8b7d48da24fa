"""The first numbers of every site of a posterior, so that a table of them stays short however large sites are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset


class Parameter(NamedTuple):
    """A scalar of a posterior. label: as "w[bmi]". values: (chain, draw)."""

    label: str
    values: NDArray[Any]


def first_parameters(posterior: Dataset, number: int) -> list[Parameter]:
    """At most `number` scalars in the order of the sites; their values are (chain, draw).

    Sites take turns until there are enough, so that a large one hides none that is small.
    """
    sizes = [int(np.prod(values.shape[2:])) for values in posterior.data_vars.values()]
    turns = sorted((turn, site) for site, size in enumerate(sizes) for turn in range(min(size, number)))[:number]
    counts = np.bincount([site for _, site in turns], minlength=len(sizes))
    return [
        parameter
        for values, count in zip(posterior.data_vars.values(), counts, strict=True)
        for parameter in _first_elements(values, int(count))
    ]


def num_parameters(posterior: Dataset) -> int:
    """The number of scalars of all sites together."""
    return sum(int(np.prod(values.shape[2:])) for values in posterior.data_vars.values())


def _first_elements(values: DataArray, count: int) -> Iterator[Parameter]:
    """The first elements of a site, named by the labels of its dimensions where it has some."""
    shape, dims = values.shape[2:], values.dims[2:]
    labels = [values[dim].values if dim in values.coords else np.arange(values.sizes[dim]) for dim in dims]
    for position in range(count):
        place: tuple[Any, ...] = np.unravel_index(position, shape) if shape else ()
        names = ", ".join(str(of_axis[i]) for of_axis, i in zip(labels, place, strict=True))
        yield Parameter(f"{values.name}[{names}]" if shape else str(values.name), values.values[:, :, *place])
