"""Groups of a DataTree that ArviZ does not lay out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from bayeslab.programs.program import Bound

LEADING_DIMS: dict[str, tuple[str, ...]] = {
    "history": ("chain", "step"),
    "sampler_state": ("chain",),
    "posterior_mean": ("chain",),
    "posterior_sd": ("chain",),
}
"""Leading dimensions of the groups that ArviZ does not lay out."""

CONSTANT_GROUPS = ("constant_data", "predictions_constant_data")
"""Groups with the arguments of the program."""

PREDICTIVE_GROUPS = ("prior_predictive", "posterior_predictive", "predictions")
"""Groups with draws of observed sites."""

LIKELIHOOD_GROUPS = ("log_likelihood", "predictions_log_likelihood")
"""Groups with log likelihoods of the rows of observed sites."""


def arguments_unlike_sites(arguments: Mapping[str, Array | np.ndarray], bound: Bound) -> dict[str, Array | np.ndarray]:
    """Arguments with the name of a site that do not have its axes: their shape is another, as where a program reshapes
    what it gives to obs=, or a plate of the site has the name of an argument, which its coordinate would replace."""

    def is_unlike(name: str, value: Array | np.ndarray) -> bool:
        site = bound.sites[name]
        return np.shape(value) != site.shape or any(plate.name in arguments for plate in site.plates)

    return {name: value for name, value in arguments.items() if name in bound.sites and is_unlike(name, value)}


def draws_without_event(draws: Mapping[str, Array | np.ndarray], bound: Bound) -> dict[str, Array | np.ndarray]:
    """Draws (chain, draw, *batch) of sites whose draws lack an axis that their values have, as the times that NumPyro
    draws from a site that is censored in intervals, whose values are two bounds each."""
    events = [name for name in draws if name in bound.sites and bound.sites[name].event_dim]
    return {name: draws[name] for name in events if np.shape(draws[name])[2:] == bound.sites[name].batch_shape}


def rows_of_plates(
    densities: Mapping[str, Array | np.ndarray], bound: Bound, like: Mapping[str, str]
) -> dict[str, Array | np.ndarray]:
    """Log likelihoods (chain, draw, *rows) of rows that have the last axes of a site alone, as series have whose steps
    are the first axis. like: variable -> the site of another name whose dimensions it has."""
    named = {name: bound.sites.get(like.get(name, name)) for name in densities}
    batches = {name: len(site.batch_shape) for name, site in named.items() if site is not None}
    return {name: densities[name] for name, ndim in batches.items() if np.ndim(densities[name]) - 2 < ndim}


def raw_dataset(
    group: Mapping[str, Array | np.ndarray],
    layout: tuple[str, ...],
    named: Mapping[str, list[str]],
    coords: Mapping[str, Any],
) -> Any:
    """A Dataset whose variables have the leading dimensions `layout`, then those of the site of their name."""
    from xarray import Dataset

    def dims(name: str, value: Array | np.ndarray) -> tuple[str, ...]:
        if layout == LEADING_DIMS["history"] and value.ndim == 3:
            return (*layout, "start")
        unnamed = [f"{name}_dim_{axis}" for axis in range(value.ndim - len(layout))]
        return (*layout, *(named.get(name, unnamed)))

    dataset = Dataset({name: (dims(name, value), value) for name, value in group.items()})
    return dataset.assign_coords({dim: labels for dim, labels in coords.items() if dim in dataset.dims})


def draws_dataset(
    draws: Mapping[str, Array | np.ndarray],
    bound: Bound,
    like: Mapping[str, str],
    named: Mapping[str, list[str]],
    coords: Mapping[str, Any],
) -> Any:
    """A Dataset of draws (chain, draw, *rows) with the last axes of the batches of sites, and a coordinate for every
    dimension, as ArviZ has them. like: as for `rows_of_plates`."""
    batches = {name: len(bound.sites[like.get(name, name)].batch_shape) for name in draws}
    rows = {n: named[n][batches[n] + 2 - np.ndim(value) : batches[n]] for n, value in draws.items()}
    dataset = raw_dataset(draws, ("chain", "draw"), rows, coords)
    return dataset.assign_coords({dim: range(n) for dim, n in dataset.sizes.items() if dim not in dataset.coords})
