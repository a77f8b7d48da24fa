"""The one place that knows the groups of an ArviZ DataTree, and how dimensions get their names."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

from bayeslab.digest import settings_digest
from bayeslab.entries import Entry
from bayeslab.program import Bound, Site

if TYPE_CHECKING:
    from xarray import DataTree

Groups = dict[str, dict[str, np.ndarray]]

SETTINGS = "settings_sha256"
"""The attribute that says what the arguments were that are no arrays."""


def to_datatree(
    groups: Mapping[str, Mapping[str, Array | np.ndarray]],
    bound: Bound,
    entries: Mapping[str, Entry],
    like: Mapping[str, str] = {},
) -> "DataTree":
    """Groups of variables with named dimensions and the coordinates that the data carry.

    groups: posterior, prior, predictions and the like (chain, draw, *site); sample_stats (chain, draw);
    `history` (chain, step) or (chain, step, start); `sampler_state` (chain, ...); `posterior_mean` and `posterior_sd`
    (chain, *site).
    like: variables that have the dimensions of a site of another name.
    """
    from arviz_base import from_dict

    dims = dimensions(bound, entries)
    dims |= {name: dims[site] for name, site in like.items()}
    coords: Mapping[str, Any] = coordinates(bound, entries)
    plain = {name: dict(group) for name, group in groups.items() if group and name not in _LAYOUTS}
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Found chain dimension to be longer"
        )  # a few draws of many chains are asked for
        tree = from_dict(plain, dims=dims, coords=coords, pred_dims=dims, pred_coords=coords)
    for name, layout in _LAYOUTS.items():
        if groups.get(name):
            tree[name] = _raw(groups[name], layout, dims, coords if name.startswith("posterior") else {})
    for name, entry in entries.items():
        if entry.categories and "observed_data" in tree.children and name in tree["observed_data"]:
            tree["observed_data"][name].attrs["categories"] = [str(label) for label in entry.categories]
    for name in _TOLD:
        if name in tree.children:
            tree[name].attrs[SETTINGS] = settings_digest(bound)
            break
    return tree


def observed_data(bound: Bound) -> dict[str, np.ndarray]:
    """Values of the observed sites, NaN where they are missing."""
    return {name: _with_gaps(bound, name, np.asarray(value)) for name, value in bound.observed.items()}


def constant_data(bound: Bound) -> dict[str, np.ndarray]:
    """The numeric arguments of the program."""
    sizes = {a.name: a.leaves[0] for a in bound.settings if len(a.leaves) == 1}
    numbers = {name: np.asarray(value) for name, value in sizes.items() if isinstance(value, int)}
    return numbers | {name: np.asarray(value) for name, value in bound.arrays.items()}


def dimensions(bound: Bound, entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """A name for every axis of every site and argument: those of plates, of the program, of the data."""
    named = {name: _axes(site) for name, site in bound.sites.items()}
    for name, entry in entries.items():
        if name not in bound.sites and entry.dims:
            named[name] = [dim or f"{name}_dim_{i}" for i, dim in enumerate(entry.dims)]
    return named


def coordinates(bound: Bound, entries: Mapping[str, Entry]) -> dict[str, Sequence[Hashable]]:
    """Labels of dimensions: those that the data give to a dimension of the same name, or to an axis of a site, and the
    categories of an entry for a dimension of its name."""
    dims = dimensions(bound, entries)
    sizes: dict[str, int] = {}
    for name, site in bound.sites.items():
        sizes |= dict(zip(dims[name], site.shape, strict=True))
    found: dict[str, Sequence[Hashable]] = {}
    for name, entry in entries.items():
        if entry.categories and sizes.get(name) == len(entry.categories):
            found[name] = entry.categories
        for axis, labels in entry.labels.items():
            dim = dims[name][axis] if axis < len(dims.get(name, ())) else None
            if dim is not None and sizes.get(dim, len(labels)) == len(labels):
                found[dim] = labels
    return found


def same_data(tree: "DataTree", bound: Bound) -> bool:
    """Whether a result is of the data of `bound`: its observed values, its numeric arguments and its other settings.

    A result that does not say what its settings were, as older ones, is taken to have the same.
    """

    def equal(name: str, group: dict[str, np.ndarray]) -> bool:
        kept = tree[name].data_vars if name in tree.children else {}
        return set(kept) == set(group) and all(
            kept[k].shape == v.shape and np.array_equal(kept[k].values, v, equal_nan=v.dtype.kind == "f")
            for k, v in group.items()
        )

    told = {tree[name].attrs[SETTINGS] for name in _TOLD if name in tree.children and SETTINGS in tree[name].attrs}
    return (
        told <= {settings_digest(bound)}
        and equal("observed_data", observed_data(bound))
        and equal("constant_data", constant_data(bound))
    )


@lru_cache
def provenance() -> dict[str, str]:
    """Versions of what made a result."""
    return {f"{name}_version": version(name) for name in ("bayeslab", "numpyro", "jax", "arviz")}


def _with_gaps(bound: Bound, name: str, value: np.ndarray) -> np.ndarray:
    if name not in bound.present:
        return value
    present = np.asarray(bound.present[name])
    present = present.reshape(present.shape + (1,) * (value.ndim - present.ndim))
    return np.where(present, value, np.nan)


_TOLD = ("constant_data", "observed_data", "sampler_state")
"""Groups of which the first that is there has the attribute of the settings."""


def _axes(site: Site) -> list[str]:
    """Plates name the batch axes, the program may name the event axes."""
    names = [f"{site.name}_dim_{axis}" for axis in range(len(site.shape))]
    batch = len(site.shape) - site.event_dim
    for position, plate in enumerate(site.plates):
        axis = position if site.role == "deterministic" else batch + plate.dim
        if 0 <= axis < len(site.shape) and site.shape[axis] == plate.size:
            names[axis] = plate.name
    if len(site.event_dims) == site.event_dim or site.role == "deterministic":
        names[len(names) - len(site.event_dims) :] = site.event_dims
    return names


_LAYOUTS: dict[str, tuple[str, ...]] = {
    "history": ("chain", "step"),
    "sampler_state": ("chain",),
    "posterior_mean": ("chain",),
    "posterior_sd": ("chain",),
}


def _raw(
    group: Mapping[str, Array | np.ndarray],
    layout: tuple[str, ...],
    named: Mapping[str, list[str]],
    coords: Mapping[str, Any],
) -> Any:
    """Variables whose leading dimensions are fixed; the others have the names of the site of this name."""
    from xarray import Dataset

    def dims(name: str, value: Array | np.ndarray) -> tuple[str, ...]:
        if layout == _LAYOUTS["history"] and value.ndim == 3:
            return (*layout, "start")
        unnamed = [f"{name}_dim_{axis}" for axis in range(value.ndim - len(layout))]
        return (*layout, *(named.get(name, unnamed)))

    found = Dataset({name: (dims(name, value), value) for name, value in group.items()})
    return found.assign_coords({dim: labels for dim, labels in coords.items() if dim in found.dims})
