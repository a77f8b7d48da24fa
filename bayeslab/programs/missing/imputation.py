"""Sites that are missing in part and that others depend on: a given part, which is data, and a latent part.

As if the program drew the missing elements in a plate of their own. In the form that conditionals are found in, the
latent site keeps its whole shape, so that its elements still meet the rows that they belong to: elements that are given
get a distribution of their own which no other site reaches, and nothing depends on them, so they integrate to one. For
methods that move coordinates, `without_given_elements` leaves them out.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.primitives import Messenger

from bayeslab.programs.missing.split_distributions import elements_at, with_own_elements

UNOBSERVED, OBSERVED = "_unobserved", "_observed"
"""What the name of a site with `obs_mask=` gets in NumPyro for its two parts."""

_GIVEN = " (given)"
"""What the name of a site gets for the part of it that is data."""


def given_part(name: str) -> str:
    """The name of the site that holds the given elements of a site that is missing in part."""
    return name + _GIVEN


def whole_site(name: str) -> str:
    """The name that the data have for a site: that of which it holds the given elements, or its own.

    Several names that are joined to one have those of the data, too.
    """
    return name.replace(_GIVEN, "")


class ImputationHandler(Messenger):
    """A handler that splits sites into a given and a latent part; the program sees both as one value.

    present: site -> which elements are given: (*batch) for whole events, or with axes of the event.
    gaps: for sites whose latent part holds nothing but the missing elements, their places in the flat site.
    """

    def __init__(self, fn: Any, present: Mapping[str, Array], gaps: Mapping[str, Array]):
        self.present, self.gaps = present, gaps
        self._given: dict[str, Array] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        name = str(msg.get("name"))
        if msg["type"] != "sample" or name not in self.present:
            return
        fn, present = msg["fn"], self.present[name]
        given = numpyro.sample(given_part(name), fn, obs=msg["value"] if msg["is_observed"] else None)
        self._given[name] = given
        msg |= {"value": None, "is_observed": False}
        if name in self.gaps:
            msg |= {"fn": elements_at(fn, self.gaps[name]), "cond_indep_stack": []}
        else:
            msg["fn"] = with_own_elements(fn, present, given)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        name = msg.get("name")
        if msg["type"] == "sample" and name in self._given:
            given = self._given.pop(name)
            if name in self.gaps:
                msg["value"] = scattered(given, self.gaps[name], msg["value"])
            else:
                msg["value"] = chosen(self.present[name], given, msg["value"], given.ndim)


def chosen(present: Any, given: Any, latent: Any, site_ndim: int) -> Array:
    """Whole values (..., *site): given elements where they are present, else latent ones."""
    return jnp.where(present.reshape(present.shape + (1,) * (site_ndim - present.ndim)), given, latent)


def scattered(given: Array, gaps: Array, missing: Array) -> Array:
    """The whole value, from the missing elements (element, *event) and their places in the flat site."""
    return given.reshape(-1, *missing.shape[1:]).at[gaps].set(missing).reshape(given.shape)


def with_split_sites(bound: Any, names: Collection[str]) -> Any:
    """The Bound with some more of its observed sites split; `present` has them."""

    def renamed(values: dict[str, Array]) -> dict[str, Array]:
        return {given_part(name) if name in names else name: value for name, value in values.items()}

    imputed = (*bound.imputed, *names)
    return replace(bound, observed=renamed(bound.observed), present=renamed(bound.present), imputed=imputed)


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


def whole_sites(bound: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values (..., *site) of sites, with the given elements of those that are missing in part.

    They are those among the values, where these have the given part, too; else those of the data.
    """
    whole = {
        name: value for name, value in values.items() if whole_site(name) not in values or whole_site(name) == name
    }
    for name in bound.imputed:
        if name in whole:
            given = values.get(given_part(name), bound.observed[given_part(name)])
            whole[name] = chosen(bound.present[given_part(name)], given, whole[name], len(bound.sites[name].shape))
    return whole
