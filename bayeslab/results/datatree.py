"""The one place that knows the groups of an ArviZ DataTree, and how dimensions get their names."""

import json
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array

from bayeslab.programs.arguments import Argument, Slot, StaticValue, parameters
from bayeslab.programs.data import FORMULA_ATTRIBUTE, Entry, with_nested_entries
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.program import Bound, Site, Values
from bayeslab.programs.pytrees import wrap_distributions
from bayeslab.results.imputed_elements import by_whole_site, tell_imputed
from bayeslab.results.raw_groups import (
    CONSTANT_GROUPS,
    LEADING_DIMS,
    LIKELIHOOD_GROUPS,
    PREDICTIVE_GROUPS,
    arguments_unlike_sites,
    draws_dataset,
    draws_without_event,
    raw_dataset,
    rows_of_plates,
)
from bayeslab.results.settings_digest import settings_digest

if TYPE_CHECKING:
    from xarray import DataTree

Groups = dict[str, dict[str, np.ndarray]]

SETTINGS_ATTRIBUTE = "settings_sha256"
"""Name of the attribute with the digest of the arguments that are no arrays."""

ARGUMENTS_ATTRIBUTE = "arguments"
"""Name of the attribute that says, as JSON, how the arguments are made of arrays, text, flags, sizes and None."""


def to_datatree(
    groups: Mapping[str, Mapping[str, Array | np.ndarray]],
    bound: Bound,
    entries: Mapping[str, Entry],
    like: Mapping[str, str] = {},
) -> "DataTree":
    """A DataTree with these groups of variables, named dimensions and the coordinates that the data carry.

    groups: posterior, prior, predictions and the like (chain, draw, *site); sample_stats (chain, draw);
    `history` (chain, step) or (chain, step, start); `sampler_state` (chain, ...); `posterior_mean` and `posterior_sd`
    (chain, *site).
    like: variable -> the site of another name whose dimensions it has.
    """
    from arviz_base import from_dict

    entries = with_nested_entries(entries)
    dims = dimensions(bound, entries)
    dims |= {whole_site(name): dims[site] for name, site in like.items()}
    groups = {name: by_whole_site(name, group, bound) for name, group in groups.items()}
    coords: Mapping[str, Any] = coordinates(bound, entries)
    plain = {name: dict(group) for name, group in groups.items() if group and name not in LEADING_DIMS}
    reshaped = {name: arguments_unlike_sites(plain.get(name, {}), bound) for name in CONSTANT_GROUPS}
    reshaped |= {name: draws_without_event(plain.get(name, {}), bound) for name in PREDICTIVE_GROUPS}
    reshaped |= {name: rows_of_plates(plain.get(name, {}), bound, like) for name in LIKELIHOOD_GROUPS}
    plain = {name: {n: v for n, v in group.items() if n not in reshaped.get(name, {})} for name, group in plain.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Found chain dimension to be longer"
        )  # a few draws of many chains are asked for
        stats = plain.pop("sample_stats", {})  # a statistic may be called like a site, whose dimensions it has not
        tree = from_dict(plain, dims=dims, coords=coords, pred_dims=dims, pred_coords=coords)
        if stats:
            own_dims = {name: axes for name, axes in dims.items() if name not in bound.sites}
            tree["sample_stats"] = from_dict({"sample_stats": stats}, dims=own_dims, coords=coords)["sample_stats"]
    for name, layout in LEADING_DIMS.items():
        if groups.get(name):
            tree[name] = raw_dataset(groups[name], layout, dims, coords if name.startswith("posterior") else {})
    for name, values in reshaped.items():
        if values and name in (*PREDICTIVE_GROUPS, *LIKELIHOOD_GROUPS):
            tree[name] = tree[name].to_dataset().merge(draws_dataset(values, bound, like, dims, coords))
        elif values:
            tree[name] = tree[name].to_dataset().merge(raw_dataset(values, (), {}, {}))
    if "posterior" in tree.children:
        tell_imputed(tree, bound, dims)
    for group in _GROUPS_WITH_CATEGORIES:
        for name, entry in entries.items():
            if entry.categories and group in tree.children and name in tree[group]:
                tree[group][name].attrs["categories"] = [str(label) for label in entry.categories]
            if entry.formula and group in tree.children and name in tree[group]:
                tree[group][name].attrs[FORMULA_ATTRIBUTE] = entry.formula
    for name in _GROUPS_WITH_SETTINGS:
        if name in tree.children:
            tree[name].attrs |= {
                SETTINGS_ATTRIBUTE: settings_digest(bound),
                ARGUMENTS_ATTRIBUTE: json.dumps(_argument_recipes(bound)),
            }
            break
    return tree


def observed_data(bound: Bound) -> dict[str, np.ndarray]:
    """The values of the observed sites, NaN where they are missing."""
    return {
        whole_site(name): _nan_where_missing(bound, name, np.asarray(value)) for name, value in bound.observed.items()
    }


def constant_data(bound: Bound) -> dict[str, np.ndarray]:
    """The values of the numeric arguments of the program."""
    sizes = {a.name: a.leaves[0] for a in bound.settings if len(a.leaves) == 1}
    numbers = {name: np.asarray(value) for name, value in sizes.items() if isinstance(value, int)}
    return numbers | _concrete_arguments(bound) | {name: np.asarray(value) for name, value in bound.arrays.items()}


def categories_of(tree: "DataTree", name: str) -> list[str]:
    """What the codes of an argument or an observed site stand for; an empty list where it has numbers."""
    for group in _GROUPS_WITH_CATEGORIES:
        if group in tree.children and name in tree[group]:
            return [str(label) for label in np.atleast_1d(tree[group][name].attrs.get("categories", []))]
    return []


def formula_of(tree: "DataTree") -> str:
    """How a formula made the arguments of a fit of a table; empty where none did."""
    constants = tree["constant_data"].data_vars.values() if "constant_data" in tree.children else ()
    return next((str(value.attrs[FORMULA_ATTRIBUTE]) for value in constants if FORMULA_ATTRIBUTE in value.attrs), "")


def argument_recipes(tree: "DataTree") -> dict[str, Any]:
    """How the arguments of a fit are made, by name, in the form of `_argument_recipes`; empty for older results."""
    texts = [
        tree[name].attrs[ARGUMENTS_ATTRIBUTE]
        for name in _GROUPS_WITH_SETTINGS
        if name in tree.children and ARGUMENTS_ATTRIBUTE in tree[name].attrs
    ]
    return json.loads(texts[0]) if texts else {}


def dimensions(bound: Bound, entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """A name for every axis of every site and argument: that of its plate, or one from the program or the data."""
    named = {name: _site_dims(site) for name, site in bound.sites.items()}
    sizes = {dim: size for name, site in bound.sites.items() for dim, size in zip(named[name], site.shape, strict=True)}
    for name, entry in entries_of_sites(bound, entries).items():
        for axis, dim in enumerate(entry.dims):
            size = bound.sites[name].shape[axis]
            if dim is not None and named[name][axis] == f"{name}_dim_{axis}" and sizes.get(dim, size) == size:
                named[name][axis], sizes[dim] = dim, size
    for name, entry in entries.items():
        if name not in bound.sites and entry.dims:
            named[name] = [dim or f"{name}_dim_{i}" for i, dim in enumerate(entry.dims)]
    return named


def entries_of_sites(bound: Bound, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entry that has the values of an observed site, by site: that of its name, or an argument given to obs=."""
    own_entries = {
        whole_site(name): entries[whole_site(name)] for name in bound.observed if whole_site(name) in entries
    }
    for name in (name for name in bound.observed if whole_site(name) not in entries):
        value = np.asarray(bound.observed[name])
        present = np.broadcast_to(_present_elements(bound, name, value), value.shape)
        for entry in (entry for entry in entries.values() if entry.dims or entry.labels):
            given = np.asarray(entry.value)
            if given.shape == value.shape and np.array_equal(given[present], value[present]):
                own_entries[whole_site(name)] = entry
    return own_entries


def coordinates(bound: Bound, entries: Mapping[str, Entry]) -> dict[str, Sequence[Hashable]]:
    """Labels of dimensions, by name of the dimension.

    They are those that the data give to a dimension of the same name, or to an axis of a site, and the categories of an
    entry, also one in a dict, for a dimension of its name. A name with an underscore at its end is a second axis of
    what has the name without.
    """
    dims = dimensions(bound, entries)
    sizes: dict[str, int] = {}
    for name, site in bound.sites.items():
        sizes |= dict(zip(dims[name], site.shape, strict=True))
    coords: dict[str, Sequence[Hashable]] = {}
    for name, entry in [*entries.items(), *entries_of_sites(bound, entries).items()]:
        own_name = name.rpartition(".")[2]
        if entry.categories and sizes.get(own_name) == len(entry.categories):
            coords[own_name] = entry.categories
        for axis, labels in entry.labels.items():
            dim = dims[name][axis] if axis < len(dims.get(name, ())) else None
            if dim is not None and sizes.get(dim, len(labels)) == len(labels):
                coords[dim] = labels
    second = {f"{dim}_": labels for dim, labels in coords.items() if sizes.get(f"{dim}_") == len(labels)}
    return second | coords


def has_same_data(tree: "DataTree", bound: Bound) -> bool:
    """Whether a result is of the same observed values, numeric arguments and other settings as `bound`.

    A result that does not say what its settings were, as older ones, is taken to have the same.
    """

    digested = _concrete_arguments(bound)

    def same(kept: np.ndarray, value: np.ndarray) -> bool:
        """Whether values are those of a fit, which may have rounded them to another precision."""
        both_real = kept.dtype.kind == value.dtype.kind == "f"
        return np.array_equal(kept, value.astype(kept.dtype) if both_real else value, equal_nan=both_real)

    def equal(name: str, group: dict[str, np.ndarray]) -> bool:
        kept = {k: v for k, v in tree[name].data_vars.items() if k not in digested} if name in tree.children else {}
        group = {k: v for k, v in group.items() if k not in digested}
        return set(kept) == set(group) and all(
            kept[k].shape == v.shape and same(kept[k].values, v) for k, v in group.items()
        )

    digests = {
        tree[name].attrs[SETTINGS_ATTRIBUTE]
        for name in _GROUPS_WITH_SETTINGS
        if name in tree.children and SETTINGS_ATTRIBUTE in tree[name].attrs
    }
    return (
        digests <= {settings_digest(bound)}
        and equal("observed_data", observed_data(bound))
        and equal("constant_data", constant_data(bound))
    )


@lru_cache
def package_versions() -> dict[str, str]:
    """The versions of the packages that made a result, as attributes."""
    return {f"{name}_version": version(name) for name in ("bayeslab", "numpyro", "jax", "arviz")}


def _nan_where_missing(bound: Bound, name: str, value: np.ndarray) -> np.ndarray:
    """The values of an observed site, NaN where they are missing."""
    return np.where(_present_elements(bound, name, value), value, np.nan) if name in bound.present else value


def _present_elements(bound: Bound, name: str, value: np.ndarray) -> np.ndarray:
    """Which elements of the value of an observed site are present, in a shape that broadcasts to it."""
    present = np.asarray(bound.present.get(name, True))
    return present.reshape(present.shape + (1,) * (value.ndim - present.ndim))


_LEAF_TREE = jax.tree.structure(0)

_GROUPS_WITH_CATEGORIES = ("observed_data", "constant_data", "predictions_constant_data")
"""Groups in which variables of codes have an attribute with the categories that the codes stand for."""

_GROUPS_WITH_SETTINGS = ("constant_data", "observed_data", "sampler_state")
"""Groups of which the first that is present has SETTINGS_ATTRIBUTE and ARGUMENTS_ATTRIBUTE."""


def _concrete_arguments(bound: Bound) -> dict[str, np.ndarray]:
    """The numeric arguments whose values the program needs in Python."""
    leaves = {a.name: a.leaves[0] for a in bound.settings if a.tree == _LEAF_TREE}
    return {name: leaf.value for name, leaf in leaves.items() if _is_concrete(leaf)}


def _is_concrete(leaf: Any) -> bool:
    """Whether a leaf of an argument is a numeric array that is structure."""
    return isinstance(leaf, StaticValue) and isinstance(leaf.value, np.ndarray) and leaf.value.dtype.kind in "fiub"


def _argument_recipes(bound: Bound) -> dict[str, Any]:
    """Every argument as {"array": its variable in constant_data}, {"value": v}, a "dict", "list" or "tuple" of them, or
    {"other": its class} for what cannot be kept, and whether it was the "default"."""
    declared = parameters(bound.function)
    arguments = {}
    for argument in bound.settings:
        recipe = _recipe(argument.tree, iter(argument.leaves), argument.name)
        default = declared[argument.name].default
        arguments[argument.name] = recipe | {"default": _is_default(argument, default, bound.arrays)}
    return arguments


def _recipe(tree: Any, leaves: Iterator[Any], name: str = "") -> dict[str, Any]:
    """How an argument or a part of it is made, in the form of `_argument_recipes`. name: the argument, if all of it."""
    if (node := tree.node_data()) is None:
        leaf = next(leaves)
        if isinstance(leaf, Slot):
            return {"array": leaf.entry}
        if name and _is_concrete(leaf):
            return {"array": name}
        leaf = leaf.value if isinstance(leaf, StaticValue) else leaf
        return {"value": leaf} if type(leaf) in (str, bool, int) else {"other": type(leaf).__name__}
    kind, keys = node
    parts = [_recipe(child, leaves) for child in tree.children()]
    if kind is type(None):
        return {"value": None}
    if kind is dict and all(type(key) is str for key in keys):
        return {"dict": dict(zip(keys, parts, strict=True))}
    return {kind.__name__: parts} if kind in (list, tuple) else {"other": kind.__name__}


def _is_default(argument: Argument, default: Any, arrays: Values) -> bool:
    """Whether an argument equals the default of its parameter."""
    try:
        leaves, tree = jax.tree.flatten(wrap_distributions(default))
        pairs = zip(argument.leaves, leaves, strict=True)
        return tree == argument.tree and all(
            _equals_default(leaf, default_leaf, arrays) for leaf, default_leaf in pairs
        )
    except (ValueError, RecursionError):
        return False


def _equals_default(leaf: Any, default_leaf: Any, arrays: Values) -> bool:
    """Whether a leaf of an argument equals that of its default."""
    value = arrays[leaf.entry] if isinstance(leaf, Slot) else leaf.value if isinstance(leaf, StaticValue) else leaf
    if value is default_leaf:
        return True
    simple = isinstance(default_leaf, str | bool | int | float | np.ndarray | np.generic | Array)
    return simple and np.array_equal(np.asarray(value), np.asarray(default_leaf))


def _site_dims(site: Site) -> list[str]:
    """A name for every axis of a site: plates name the batch axes, the program may name the event axes."""
    names = [f"{site.name}_dim_{axis}" for axis in range(len(site.shape))]
    batch = len(site.shape) - site.event_dim
    for position, plate in enumerate(site.plates):
        axis = position if site.role == "deterministic" else batch + plate.dim
        if 0 <= axis < len(site.shape) and site.shape[axis] == plate.size:
            names[axis] = plate.name
    if len(site.event_dims) == site.event_dim or site.role == "deterministic":
        names[len(names) - len(site.event_dims) :] = site.event_dims
    return names


def posterior_draws(tree: Any, verb: str) -> Any:
    """The variables of a posterior that have draws, as a Dataset whose first dimensions are chain and draw.

    Raises TypeError for what is no DataTree, ValueError for one without draws.
    """
    from xarray import DataTree

    if not isinstance(tree, DataTree):
        raise TypeError(f"{verb} takes a DataTree, such as fit() returns, not {type(tree).__name__}")
    if "posterior" not in tree.children:
        raise ValueError(
            f"{verb} needs a tree with group 'posterior': there is no group posterior, only {sorted(tree.children)}"
        )
    posterior = tree["posterior"].to_dataset()
    for dim in ("chain", "draw"):
        if not posterior.sizes.get(dim):
            raise ValueError(f"{verb} needs draws, but the posterior of the tree has no {dim}")
    drawn = [name for name, values in posterior.data_vars.items() if {"chain", "draw"} <= set(values.dims)]
    return posterior[drawn].transpose("chain", "draw", ...)
