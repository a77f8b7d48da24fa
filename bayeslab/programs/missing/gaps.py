"""Split sites whose latent part holds nothing but the missing elements, for methods that move coordinates."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from bayeslab.programs.missing.names import given_part


class Gaps(NamedTuple):
    """The missing elements of a split site. elements_ndim: as in `Split`. size: how many they are."""

    site: str
    elements_ndim: int
    size: int


def missing_elements(bound: Any, gaps: Gaps) -> Array:
    """Which elements of a split site are missing, flat."""
    present = bound.present[given_part(gaps.site)]
    shape = bound.observed[given_part(gaps.site)].shape[: gaps.elements_ndim]
    return ~jnp.broadcast_to(present.reshape(present.shape + (1,) * (len(shape) - present.ndim)), shape).ravel()


def without_given_elements(bound: Any, all_gaps: Collection[Gaps]) -> Any:
    """The Bound, the latent part of some of whose split sites holds nothing but the missing elements."""
    places = {gaps.site: jnp.flatnonzero(missing_elements(bound, gaps), size=gaps.size) for gaps in all_gaps}
    return replace(bound, gaps=places)


def with_given_elements(bound: Any, values: Mapping[str, Array]) -> dict[str, Array]:
    """Values of sites, with the given elements of those that `without_given_elements` left them out of."""
    whole = dict(values)
    for name, places in bound.gaps.items():
        if name in whole:
            whole[name] = scattered(bound.observed[given_part(name)], places, whole[name])
    return whole


def without_given(gaps: Gaps, places: Array, values: Array) -> Array:
    """The missing elements (draw, element, *event) of draws of a whole site (draw, *site). places: in the flat site."""
    return values.reshape(len(values), -1, *values.shape[1 + gaps.elements_ndim :])[:, places]


def scattered(given: Array, gaps: Array, missing: Array) -> Array:
    """The whole value, from the missing elements (element, *event) and their places in the flat site."""
    return given.reshape(-1, *missing.shape[1:]).at[gaps].set(missing).reshape(given.shape)
