"""join(): chains of separate fits, as of the jobs of a cluster, in one result."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.results.datatree import ARGUMENTS_ATTRIBUTE, SETTINGS_ATTRIBUTE

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from xarray import Dataset, DataTree

CHAIN_SOURCES_ATTRIBUTE = "chain_sources"
"""Name of the attribute that says, as JSON, of which key and of which chain of it each chain is, where chains were put
together that no single fit makes."""
SUMMED_ATTRIBUTES = ("compile_seconds", "sampling_seconds", "num_gradients")
"""Attributes that are added up over fits that are put together, or that follow each other."""
SAME_ATTRIBUTES = {
    "model": "the program",
    "model_sha256": "the code of the program",
    "bayeslab_version": "the version of bayeslab",
    "numpyro_version": "the version of NumPyro",
}
"""Attributes that are the same in results of one posterior, and what they are called."""

FREE_DIMS = ("chain", "draw", "step")
"""Dimensions in which results that are put together may differ, or are held against each other elsewhere."""

Source = tuple[str, int]
"""The key of a fit, and the number of a chain among those of that key."""


def join(trees: Mapping[str, DataTree] | Sequence[DataTree]) -> DataTree:
    """One result with the chains of several, such as those of `fit(..., first_chain=number)` in jobs of their own.

    trees: results of one program, data and method, apart from the number of chains, by name or in a sequence. Chains of
    one key are put in the order of their numbers; where all are of one key and follow each other, the result is that
    of one fit with all of them, to the bit on processors of one kind, and `previous=` goes on from it. Otherwise
    chains are numbered from 0 on.
    Every group is kept: seconds and gradients are added up, and attributes that differ are left out.
    Raises ValueError, naming two of the results, where one chain would be there twice, and where programs, data,
    settings, versions, groups or numbers of draws differ; TypeError for what is no result of `fit`.
    """
    named = dict(trees) if isinstance(trees, Mapping) else {f"trees[{i}]": tree for i, tree in enumerate(trees)}
    if not named:
        raise ValueError("there is no result to join; expected one or more, as of fit()")
    for name, tree in named.items():
        _require_result(name, tree)
    first, *others = named
    for other in others:
        _require_alike(first, named[first], other, named[other])
    _require_different_chains(named)
    order = _in_order([chain_sources(tree) for tree in named.values()])
    sources = [source for source, _, _ in order]
    parts = list(named.values())
    joined = {name: _joined_group([tree[name].to_dataset() for tree in parts], order) for name in parts[0].children}
    return _labelled(joined, _joined_attributes(parts, len(order)), sources)


def chain_sources(tree: DataTree) -> list[Source]:
    """Of which key, and of which chain of it, each chain of a result is."""
    if CHAIN_SOURCES_ATTRIBUTE in tree.attrs:
        return [(str(key), int(number)) for key, number in json.loads(tree.attrs[CHAIN_SOURCES_ATTRIBUTE])]
    return [(str(tree.attrs["key"]), int(number)) for number in np.asarray(tree["posterior"]["chain"])]


def with_chain_numbers(tree: DataTree, numbers: ArrayLike) -> DataTree:
    """The tree with these labels of chains in all groups that have labels of chains."""
    for name, node in tree.children.items():
        if "chain" in node.coords:
            tree[name] = node.to_dataset().assign_coords(chain=np.asarray(numbers))
    return tree


def _require_result(name: str, tree: Any) -> None:
    """Raises TypeError for what is no result of fit, ValueError for one of a method without chains."""
    if "posterior" not in getattr(tree, "children", ()) or not {"model", "settings", "key"} <= tree.attrs.keys():
        raise TypeError(f"{name} is no result of fit(), which has a group posterior and attributes that say of what")
    if not re.search(r"\bnum_chains=", str(tree.attrs["settings"])):
        raise ValueError(
            f"{name} was made by {tree.attrs['method']}, which has no chains that others could be added to"
        )


def _require_alike(first: str, one: DataTree, other: str, another: DataTree) -> None:
    """Raises ValueError unless two results are of one posterior, by one method, with as many draws."""
    for attribute, what in SAME_ATTRIBUTES.items():
        if (pair := (one.attrs.get(attribute), another.attrs.get(attribute)))[0] != pair[1]:
            said = "" if attribute.endswith("sha256") else f", {pair[0]} and {pair[1]}"
            raise ValueError(f"{first} and {other} differ in {what}{said}; chains to join are of one posterior")
    settings = [_without_chains(tree) for tree in (one, another)]
    if settings[0] != settings[1]:
        raise ValueError(f"{first} was made by {settings[0]}, but {other} by {settings[1]}")
    if (groups := _groups(one)) != _groups(another):
        raise ValueError(f"{first} has groups {groups}, but {other} {_groups(another)}; join results with the same")
    for name in groups:
        pair_of_groups = one[name].to_dataset(), another[name].to_dataset()
        if not _is_alike(*pair_of_groups):
            raise ValueError(f"{first} and {other} differ in {name}; chains to join are of the same data")
    draws = [tree["posterior"].sizes["draw"] for tree in (one, another)]
    if draws[0] != draws[1]:
        raise ValueError(
            f"{first} has {draws[0]} draws of each chain, but {other} {draws[1]}; go on with the shorter one first"
        )


def _is_alike(one: Dataset, other: Dataset) -> bool:
    """Whether groups have the same variables and, apart from chains, the same labels; without chains, the same values
    and digests."""
    if set(one.data_vars) != set(other.data_vars):
        return False
    if any("chain" in value.dims for value in one.data_vars.values()):
        same_shapes = all(_sizes(one[name]) == _sizes(other[name]) for name in one.data_vars)
        return same_shapes and _labels(one) == _labels(other)
    digests = [[data.attrs.get(name) for name in (SETTINGS_ATTRIBUTE, ARGUMENTS_ATTRIBUTE)] for data in (one, other)]
    return one.equals(other) and digests[0] == digests[1]


def _labels(data: Dataset) -> dict[Any, list[Any]]:
    """The labels of all dimensions but those in which results may differ or are held against each other elsewhere."""
    return {name: labels.values.tolist() for name, labels in data.coords.items() if name not in FREE_DIMS}


def _sizes(value: Any) -> dict[Any, int]:
    """The sizes of a variable along all other dimensions than those."""
    return {dim: size for dim, size in value.sizes.items() if dim not in FREE_DIMS}


def _require_different_chains(named: Mapping[str, DataTree]) -> None:
    """Raises ValueError where two results have a chain of the same key and number, whose draws are the same."""
    known: dict[Source, str] = {}
    for name, tree in named.items():
        for source in chain_sources(tree):
            if source in known:
                key, number = source
                raise ValueError(
                    f"{known[source]} and {name} both have chain {number} of key {key}, so the same draws; give each "
                    "job its own first_chain, or its own key"
                )
            known[source] = name


def _in_order(sources: Sequence[list[Source]]) -> list[tuple[Source, int, int]]:
    """All chains, as (source, number of the tree, place in it): by keys as they come first, then by number."""
    chains = [(source, tree, place) for tree, each in enumerate(sources) for place, source in enumerate(each)]
    rank = {key: i for i, key in enumerate(dict.fromkeys(key for (key, _), _, _ in chains))}
    return sorted(chains, key=lambda chain: (rank[chain[0][0]], chain[0][1]))


def _joined_group(parts: list[Dataset], order: Iterable[tuple[Source, int, int]]) -> Dataset:
    """A group with all chains, in this order; where it has none, that of the first result."""
    import xarray

    if "chain" not in parts[0].dims:
        return parts[0]
    if "step" in parts[0].dims:
        most = max(part.sizes["step"] for part in parts)
        parts = [part.pad(step=(0, most - part.sizes["step"])) if part.sizes["step"] < most else part for part in parts]
    chains = [parts[tree].isel(chain=[place]) for _, tree, place in order]
    return xarray.concat(chains, "chain", data_vars="minimal", coords="minimal", compat="override", join="override")


def _joined_attributes(parts: list[DataTree], num_chains: int) -> dict[str, Any]:
    """Attributes of the whole: sums and means, and what all results agree on."""
    all_attributes: list[dict[str, Any]] = [{str(n): v for n, v in tree.attrs.items()} for tree in parts]
    names = [name for name in all_attributes[0] if all(name in each for each in all_attributes)]
    same = {name: all_attributes[0][name] for name in names if len({str(each[name]) for each in all_attributes}) == 1}
    summed = {name: sum(each[name] for each in all_attributes) for name in SUMMED_ATTRIBUTES if name in names}
    settings = re.sub(r"\bnum_chains=\d+", f"num_chains={num_chains}", str(all_attributes[0]["settings"]))
    joined = same | summed | {"settings": settings, "interrupted": max(each["interrupted"] for each in all_attributes)}
    for name in ("prior_conflict", "separation"):
        texts = [each[name] for each in all_attributes if name in each]
        joined |= {name: texts[0]} if texts else {}
    if "log_evidence" in names:  # of a method with chains it is the mean over them
        weights = [tree["posterior"].sizes["chain"] for tree in parts]
        joined["log_evidence"] = float(np.average([each["log_evidence"] for each in all_attributes], weights=weights))
    return joined


def _labelled(groups: Mapping[str, Dataset], attributes: dict[str, Any], sources: list[Source]) -> DataTree:
    """A result with chains labelled by their numbers where they follow each other under one key, else from 0 on."""
    from xarray import DataTree

    tree = DataTree.from_dict(dict(groups))
    numbers = [number for _, number in sources]
    follow_each_other = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    attributes.pop(CHAIN_SOURCES_ATTRIBUTE, None)
    if len(Counter(key for key, _ in sources)) == 1 and follow_each_other:
        attributes["key"] = sources[0][0]
    else:
        numbers = list(range(len(sources)))
        attributes |= {"key": "several", CHAIN_SOURCES_ATTRIBUTE: json.dumps(sources)}
    tree.attrs = attributes
    return with_chain_numbers(tree, numbers)


def _groups(tree: DataTree) -> list[str]:
    return sorted(map(str, tree.children))


def _without_chains(tree: DataTree) -> str:
    """The settings of a method, apart from the number of chains."""
    return re.sub(r"\bnum_chains=\d+", "num_chains=...", str(tree.attrs["settings"]))
