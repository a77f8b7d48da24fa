"""Continues a fit from where it stopped: the state of a sampler is saved in its result."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bayeslab.programs.program import Bound
from bayeslab.results.datatree import has_same_data
from bayeslab.results.joining import CHAIN_SOURCES_ATTRIBUTE, SUMMED_ATTRIBUTES, with_chain_numbers
from bayeslab.sampling.protocols import Method, Sampler, State

if TYPE_CHECKING:
    from xarray import DataTree


def state_arrays(state: State) -> dict[str, np.ndarray]:
    """The arrays of a state, under names that sort in their order."""
    return {f"leaf_{i:03}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}


def settings_text(method: Method) -> str:
    """The method as text, without its number of draws and its devices, the same in every process."""
    names = [f.name for f in fields(method) if f.name != "num_samples"]  # type: ignore[arg-type]
    values = ((name, None if name == "mesh" else getattr(method, name)) for name in names)
    text = f"{type(method).__name__}({', '.join(f'{name}={value!r}' for name, value in values)})"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def require_chain_number(first_chain: int, method: Method, previous: "DataTree | None") -> None:
    """Raises ValueError or TypeError for a number that the first chain of a fit cannot have."""
    if isinstance(first_chain, bool) or not isinstance(first_chain, int | np.integer):
        raise TypeError(f"first_chain must be the number of a chain, 0 or above, not {first_chain!r}")
    if first_chain < 0:
        raise ValueError(f"first_chain must be 0 or above, but is {first_chain}")
    if first_chain and "num_chains" not in {field.name for field in fields(method)}:  # type: ignore[arg-type]
        raise ValueError(f"first_chain is for methods with chains, and {type(method).__name__} has none")
    if first_chain and previous is not None:
        raise ValueError("previous goes on with the chains that it has; give that or first_chain, not both")


def restored_state(tree: "DataTree", method: Method, sampler: Sampler, bound: Bound) -> State:
    """The state (chain, ...) that a result holds, for the same method on the same model and data.

    Raises ValueError where the result is of another method, other settings, another model or other data.
    """
    if "sampler_state" not in getattr(tree, "children", ()):
        raise ValueError("previous has no group sampler_state, so there is nothing to go on from")
    if tree.attrs.get("settings") != settings_text(method):
        raise ValueError(f"previous was made by {tree.attrs.get('settings')}, not by {settings_text(method)}")
    if not has_same_data(tree, bound):
        raise ValueError("previous is of other data or settings, so it cannot be continued on these")
    return saved_state(tree, sampler, bound)


def saved_state(tree: "DataTree", sampler: Sampler, bound: Bound) -> State:
    """The state (chain, ...) that a result holds, which may be of other data with states of the same shapes.

    Raises ValueError where the state of the sampler on these data has other shapes.
    """
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    data = jax.eval_shape(sampler.prepare, bound)
    shapes, treedef = jax.tree.flatten(jax.eval_shape(sampler.start, key, data))
    dataset = tree["sampler_state"].to_dataset()
    leaves = [dataset[name].values for name in sorted(map(str, dataset.data_vars))]
    if [leaf.shape[1:] for leaf in leaves] != [shape.shape for shape in shapes]:
        raise ValueError("previous is of another model, or of another version, so it cannot be continued")
    typed = [leaf.astype(shape.dtype) for leaf, shape in zip(leaves, shapes, strict=True)]
    return jax.tree.unflatten(treedef, typed)


def append_result(previous: "DataTree", tree: "DataTree", sampler: Sampler) -> "DataTree":
    """The new result with the earlier one in front of it: draws of a chain, or steps of an optimiser, follow it."""
    import xarray

    names = ["posterior", "sample_stats"] if sampler.warmup_draws else ["history"]
    for name in names:
        if name in tree.children:
            dim = "step" if name == "history" else "draw"
            both = [previous[name].to_dataset(), tree[name].to_dataset()]
            group = xarray.concat(both, dim, coords="minimal", compat="override", join="override")
            tree[name] = group.assign_coords({dim: np.arange(group.sizes[dim])}) if dim == "draw" else group
    tree.attrs |= _summed_attributes(previous.attrs, tree.attrs)
    tree.attrs |= {name: previous.attrs[name] for name in ("key", CHAIN_SOURCES_ATTRIBUTE) if name in previous.attrs}
    return with_chain_numbers(tree, np.asarray(previous["posterior"]["chain"]))


def _summed_attributes(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes that count seconds and gradients, as sums of both results."""
    return {name: before[name] + now[name] for name in SUMMED_ATTRIBUTES if name in before and name in now}
