"""Sites that are missing in part and that others depend on: a given part, which is data, and a latent part.

As if the program drew the missing elements in a plate of their own. In the form that conditionals are found in, the
latent site keeps its whole shape, so that its elements still meet the rows that they belong to: elements that are given
get a distribution of their own which no other site reaches, and nothing depends on them, so they integrate to one. For
methods that move coordinates, `without_given_elements` leaves them out.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from bayeslab.programs.handlers.subsampling import PREFIX, SUFFIX
from bayeslab.programs.missing.element_supports import ElementsBesidePlates, once
from bayeslab.programs.missing.gaps import scattered
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.missing.split_distributions import elements_at, with_own_elements, without_mask
from bayeslab.programs.tracing.loops.reversed_scans import is_scan


class ImputationHandler(Messenger):
    """A handler that splits sites into a given and a latent part; the program sees both as one value.

    present: site -> which elements are given: (*batch) for whole events, or with axes of the event. The steps of a scan
    are told theirs one by one.
    gaps: for sites whose latent part holds nothing but the missing elements, their places in the flat site.
    unmasked: sites whose latent part has no mask.
    """

    def __init__(
        self, fn: Any, present: Mapping[str, Array], gaps: Mapping[str, Array], unmasked: Collection[str] = ()
    ):
        self.present, self.gaps, self.unmasked = present, gaps, unmasked
        self._given: dict[str, Array] = {}
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        name = str(msg.get("name"))
        if msg["type"] == "control_flow":
            _split_in_steps(msg, self.present, self.unmasked)
        if msg["type"] == "sample" and name in {f"{PREFIX}{site}{SUFFIX}" for site in self.gaps}:
            msg |= {"fn": once(msg["fn"]), "cond_indep_stack": [], "scale": None, "plate_to_scale": {}}
        if msg["type"] != "sample" or name not in self.present:
            return
        fn, present = msg["fn"], self.present[name]
        if msg["scale"] is not None:
            msg["scale"] = _weights_of_missing(msg["scale"], fn, present, self.gaps.get(name))
        if msg.get("_control_flow_done"):
            return
        given = numpyro.sample(given_part(name), fn, obs=msg["value"] if msg["is_observed"] else None)
        self._given[name] = given
        msg |= {"value": None, "is_observed": False}
        fn = without_mask(fn) if name in self.unmasked else fn
        if name in self.gaps:
            msg |= {"fn": ElementsBesidePlates(elements_at(fn, self.gaps[name])), "cond_indep_stack": []}
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


def _weights_of_missing(weights: Any, fn: Distribution, present: Array, gaps: Array | None) -> Array:
    """The weights of the latent part of a site: elements that are given count once, so that they integrate to one.

    weights: of all elements. gaps: the places of those that the latent part holds, where it holds no others.
    """
    batch = fn.batch_shape
    of_all = jnp.broadcast_to(weights, batch)
    if gaps is not None:
        return jnp.broadcast_to(of_all.reshape(batch + (1,) * fn.event_dim), fn.shape()).ravel()[gaps]
    return jnp.where(present.all(tuple(range(len(batch), present.ndim))), 1.0, of_all)


def _split_in_steps(msg: dict[str, Any], present: Mapping[str, Array], unmasked: Collection[str]) -> None:
    """Let the body of a scan split sites, which gets a slice of `present` beside each of its elements."""
    if not is_scan(msg):
        return
    body, start, elements, length, *others = msg["args"]
    length = jnp.shape(jax.tree.leaves(elements)[0])[0] if length is None else length
    of_steps = {name: known for name, known in present.items() if jnp.shape(known)[:1] == (length,)}

    def split_body(carry: Any, element: Any) -> Any:
        known, element = element
        return ImputationHandler(body, known, {}, unmasked)(carry, element)

    msg["args"] = (split_body, start, (of_steps, elements), length, *others)


def chosen(present: Any, given: Any, latent: Any, site_ndim: int) -> Array:
    """Whole values (..., *site): given elements where they are present, else latent ones."""
    return jnp.where(present.reshape(present.shape + (1,) * (site_ndim - present.ndim)), given, latent)


def with_split_sites(bound: Any, names: Collection[str]) -> Any:
    """The Bound with some more of its observed sites split; `present` has them."""

    def renamed(values: dict[str, Array]) -> dict[str, Array]:
        return {given_part(name) if name in names else name: value for name, value in values.items()}

    imputed = (*bound.imputed, *names)
    return replace(bound, observed=renamed(bound.observed), present=renamed(bound.present), imputed=imputed)


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
