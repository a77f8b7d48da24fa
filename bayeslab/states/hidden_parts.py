"""Parts of the data that are hidden to see how well a program predicts them: steps of chains, or rows."""

from typing import Any, NamedTuple

import numpy as np

from bayeslab.distributions import LinearGaussianChain, MarkovChain
from bayeslab.elimination.terms import terms
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.program import Bound, Data, Site
from bayeslab.results.datatree import dimensions
from bayeslab.states.chain_in_result import chain_site

Masks = dict[str, np.ndarray]
"""Of every entry of the data, which of its elements are hidden."""


class IndependentParts(NamedTuple):
    """What is independent given the parameters: "sequences" of a chain, or the "rows" of a plate.

    local: the sites that each part has of its own, to be integrated out. plate: of rows, None for sequences.
    """

    kind: str
    number: int
    local: tuple[str, ...]
    plate: str | None


class HiddenParts(NamedTuple):
    """The masks of every block, the sites to integrate out, and the plate of rows, None for sequences."""

    masks: list[Masks]
    local: tuple[str, ...]
    plate: str | None


def parts_to_hide(bound: Bound, data: Data, blocks: int, site: str | None) -> HiddenParts:
    """What every block hides. site: a chain or a plate, where there are several."""
    if isinstance(blocks, bool) or not hasattr(blocks, "__index__"):
        raise TypeError(f"blocks must be an integer, but is {blocks!r}")
    if blocks < 2:
        raise ValueError(f"blocks must be at least 2, but is {blocks}")
    parts = independent_parts(bound, site)
    if parts.plate is None:
        return HiddenParts(_masks_of_steps(bound, data, blocks, chain_site(bound, site)), parts.local, None)
    return HiddenParts(_masks_of_rows(bound, data, blocks, parts.plate), parts.local, parts.plate)


def independent_parts(bound: Bound, site: str | None) -> IndependentParts:
    """The sequences of the chain of a program; or, where it has none or `site` is a plate, the elements of a plate."""
    observed = [each for name, each in bound.sites.items() if name in bound.observed][::-1]  # rows come last
    plates = {plate.name: plate.size for each in observed for plate in each.plates}
    if site not in plates and (not plates or _has_chain(bound)):
        chain = bound.sites[chain_site(bound, site)]
        return IndependentParts("sequences", int(np.prod(chain.batch_shape)), (chain.name,), None)
    if site is not None and site not in plates:
        raise ValueError(f"'{site}' is neither a chain nor a plate of observed sites; these are {list(plates)}")
    plate = site or next(iter(plates))
    return IndependentParts("rows", plates[plate], sites_of_plate(bound, plate), plate)


def sites_of_plate(bound: Bound, plate: str) -> tuple[str, ...]:
    """The latent sites in a plate."""
    return tuple(name for name in bound.latent if plate in _plates(bound.sites[name]))


def _has_chain(bound: Bound) -> bool:
    """Whether a latent site is a chain."""
    return any(prior.kind in (MarkovChain, LinearGaussianChain) for prior in terms(bound).priors.values())


def _plates(site: Site) -> dict[str, int]:
    """The axis of every plate that a site is in."""
    return {plate.name: len(site.shape) - site.event_dim + plate.dim for plate in site.plates}


def _masks_of_rows(bound: Bound, data: Data, blocks: int, plate: str) -> list[Masks]:
    """Of every block, whole rows: one of `blocks` in turn, so that data in some order are mixed."""
    masks: dict[str, tuple[np.ndarray, int]] = {}
    for name, value in bound.observed.items():
        if (axis := _plates(bound.sites[name]).get(plate)) is None:
            continue
        if len(entries := _entries_of(name, bound, data)) != 1:
            raise _unknown_entry(name, entries)
        present = np.asarray(bound.present.get(name, True))
        present = present.reshape(present.shape + (1,) * (value.ndim - present.ndim))
        masks[entries[0]] = np.broadcast_to(present, value.shape), axis
    seen = np.any([mask.any(tuple(i for i in range(mask.ndim) if i != axis)) for mask, axis in masks.values()], axis=0)
    if seen.sum() < blocks:
        raise ValueError(f"{seen.sum()} elements of plate '{plate}' have entries; take fewer blocks than {blocks}")
    numbers = np.where(seen, (np.cumsum(seen) - 1) % blocks, -1)

    def hidden(mask: np.ndarray, axis: int, block: int) -> np.ndarray:
        return mask & np.expand_dims(numbers == block, tuple(i for i in range(mask.ndim) if i != axis))

    return [{entry: hidden(mask, axis, block) for entry, (mask, axis) in masks.items()} for block in range(blocks)]


def _masks_of_steps(bound: Bound, data: Data, blocks: int, name: str) -> list[Masks]:
    """Of every block, steps in a row of a chain, or whole sequences."""
    from xarray import DataArray

    dims, chain = dimensions(bound, read_entries(data)), bound.sites[name]
    batch = len(chain.shape) - chain.event_dim
    *sequences, step = dims[chain.name][: batch + 1]
    observed_masks: dict[str, Any] = {}
    unnamed = []
    for name, value in bound.observed.items():
        axes = list(dims[name])
        if step not in axes and value.shape[: batch + 1] == chain.shape[: batch + 1]:
            axes[batch] = step
        if step not in axes:
            continue
        if len(entries := _entries_of(name, bound, data)) != 1:
            unnamed.append(_unknown_entry(name, entries))
            continue
        mask = np.asarray(bound.present.get(name, True))
        observed_masks[entries[0]] = DataArray(
            np.ones(value.shape, bool) & mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim)), dims=axes
        )
    if unnamed and not observed_masks:
        raise unnamed[0]
    if not observed_masks:
        raise ValueError(
            f"no observed site has the steps of '{chain.name}'; name its axis with infer={{'event_dims': [...]}}"
        )
    seen: Any = False
    for mask in observed_masks.values():
        seen = seen | mask.any([dim for dim in mask.dims if dim not in (*sequences, step)])
    seen = seen.transpose(*[dim for dim in sequences if dim in seen.dims], step)
    numbers = seen.copy(data=_block_numbers(seen.values.reshape(-1, seen.sizes[step]), blocks).reshape(seen.shape))
    return [
        {name: ((numbers == block) & mask).transpose(*mask.dims).values for name, mask in observed_masks.items()}
        for block in range(blocks)
    ]


def _entries_of(name: str, bound: Bound, data: Data) -> list[str]:
    """The entries of the data that may give an observed site its values: the one of its name, or the arguments that
    have them."""
    if (site := whole_site(name)) in data:
        return [site]
    values = np.asarray(bound.observed[name])
    return [
        name
        for name, array in bound.arrays.items()
        if name in data and array.shape == values.shape and bool(((array == values) | (array != array)).all())
    ]


def _unknown_entry(name: str, entries: list[str]) -> ValueError:
    """What is raised where it is not known which entry holds the values of a site."""
    site = whole_site(name)
    reason = f"entries {' and '.join(map(repr, entries))} all have" if entries else "no entry of the data has"
    return ValueError(f"{reason} the values of site '{site}' as they are; give them as entry '{site}'")


def _block_numbers(seen: np.ndarray, blocks: int) -> np.ndarray:
    """The block of every step (sequence, step), -1 where there is nothing to hide."""
    numbers = np.full(seen.shape, -1)
    nonempty = np.flatnonzero(seen.any(1))
    if len(nonempty) >= blocks:
        for block, rows in enumerate(np.array_split(nonempty, blocks)):
            numbers[rows] = block
        return np.where(seen, numbers, -1)
    for row in nonempty:
        for block, steps in enumerate(np.array_split(np.flatnonzero(seen[row]), blocks)):
            numbers[row, steps] = block
    if len(np.unique(numbers[numbers >= 0])) < blocks:
        raise ValueError(f"no sequence has entries at {blocks} steps; take fewer blocks")
    return numbers


def hide_elements(value: Any, where: np.ndarray) -> Any:
    """An entry with some of its elements missing, and the labels that it has."""
    from xarray import DataArray

    [item] = read_entries({"": value}).values()
    is_present = np.ones(where.shape, bool) if item.present is None else item.present
    masked_values = np.where(is_present & ~where, np.asarray(item.value, float), np.nan)
    if item.dims and all(item.dims):
        return DataArray(
            masked_values, {item.dims[axis]: list(labels) for axis, labels in item.labels.items()}, item.dims
        )
    return masked_values
