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
import numpy as np
import numpyro
from jax import Array
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    MultivariateNormal,
    biject_to,
    constraints,
)
from numpyro.distributions.constraints import is_dependent
from numpyro.primitives import Messenger

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
        name = msg.get("name")
        if msg["type"] != "sample" or name not in self.present:
            return
        fn, present = msg["fn"], self.present[name]
        given = numpyro.sample(given_part(name), fn)
        self._given[name] = given
        msg |= {"value": None, "is_observed": False}
        if name in self.gaps:
            msg |= {"fn": _elements_at(fn, self.gaps[name]), "cond_indep_stack": []}
        else:
            msg["fn"] = _with_own_elements(fn, present, given)

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
    """The whole value, from the missing elements and their places in the flat site."""
    return given.ravel().at[gaps].set(missing.ravel()).reshape(given.shape)


class Split(NamedTuple):
    """What splitting a site comes to.

    family: the class of its distribution. possible: whether its missing elements can be told from the given ones.
    shared: the parameters that both kinds of elements have, because they make the support.
    elements_ndim: number of axes of the site before those of a single element; None where the missing parts of an event
    depend on its other parts.
    """

    family: str
    possible: bool
    shared: tuple[str, ...]
    elements_ndim: int | None


def split_of(fn: Distribution, present_ndim: int) -> Split:
    """What splitting a site comes to. present_ndim: number of axes of what says which elements are present."""
    leaf = _leaf(fn)
    parameters = _parameters(leaf)
    shared = tuple(name for name, constraint, _ in parameters or () if _neutral(constraint, ()) is None)
    in_events = isinstance(leaf, MultivariateNormal) and present_ndim > len(fn.batch_shape)
    ndim = len(fn.shape()) - leaf.event_dim
    return Split(type(leaf).__name__, parameters is not None, shared, None if in_events else ndim)


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


def _leaf(fn: Distribution) -> Any:
    while isinstance(fn, ExpandedDistribution | Independent | MaskedDistribution):
        fn = fn.base_dist
    return fn


def _parameters(leaf: Any) -> list[tuple[str, Any, Any]] | None:
    """Name, constraint and value of every parameter that a distribution is built from; None where it is built from
    more."""
    names = [name for name in leaf.arg_constraints if name in vars(leaf)]
    if isinstance(leaf, MultivariateNormal):
        names = ["loc", "scale_tril"]
    found = [(name, leaf.arg_constraints[name], vars(leaf)[name]) for name in names]
    try:
        same = type(leaf)(**{name: value for name, _, value in found})
    except (TypeError, ValueError, AssertionError):
        return None
    return found if same.shape() == leaf.shape() else None


def _neutral(constraint: Any, shape: tuple[int, ...]) -> Array | None:
    """A value of a parameter for elements that nothing depends on; None where it makes the support."""
    if is_dependent(constraint) or constraint.is_discrete:
        return None
    if constraint in (constraints.positive, constraints.nonnegative, constraints.softplus_positive):
        return jnp.full(shape, 2.0)  # so that densities of positive numbers have a mode inside
    transform = biject_to(constraint)
    return jnp.broadcast_to(transform(jnp.zeros(transform.inverse_shape(shape))), shape)


def _changed(fn: Distribution, change: Any, batch: tuple[int, ...]) -> Distribution:
    """A leaf distribution, with parameters that `change` takes (constraint, value of the whole batch) to others."""
    built = {}
    for name, constraint, value in _parameters(fn) or ():
        value = jnp.asarray(value)
        own = 0 if is_dependent(constraint) else constraint.event_dim
        shape = batch + value.shape[value.ndim - own :]
        built[name] = change(constraint, jnp.broadcast_to(value, shape), own)
    return type(fn)(**built)


def _with_own_elements(fn: Distribution, present: Array, given: Array) -> Distribution:
    """The distribution of the latent part, of the shape of the whole site."""
    if isinstance(fn, MaskedDistribution):  # elements that nothing depends on are never masked: they stay proper
        mask = jnp.broadcast_to(jnp.asarray(fn._mask), fn.batch_shape)
        extra = tuple(range(len(fn.batch_shape), present.ndim))
        return _with_own_elements(fn.base_dist, present, given).mask(mask | present.all(extra))
    if isinstance(fn, ExpandedDistribution) and isinstance(fn.base_dist, MaskedDistribution | Independent):
        inner = fn.base_dist
        if isinstance(inner, MaskedDistribution):
            expanded = inner.base_dist.expand(fn.batch_shape).mask(jnp.broadcast_to(inner._mask, fn.batch_shape))
        else:
            parts = inner.event_shape[: inner.reinterpreted_batch_ndims]
            expanded = inner.base_dist.expand(fn.batch_shape + parts).to_event(inner.reinterpreted_batch_ndims)
        return _with_own_elements(expanded, present, given)
    if isinstance(fn, Independent):
        inner = fn.base_dist
        present = jnp.broadcast_to(
            present.reshape(present.shape + (1,) * max(len(inner.batch_shape) - present.ndim, 0)),
            inner.batch_shape + present.shape[len(inner.batch_shape) :],
        )
        return _with_own_elements(inner, present, given).to_event(fn.reinterpreted_batch_ndims)
    leaf, batch = _leaf(fn), fn.batch_shape
    if isinstance(leaf, MultivariateNormal) and present.ndim > len(batch):
        return _missing_given_others(leaf, present, given)

    def change(constraint: Any, value: Array, event_dim: int) -> Array:
        neutral = _neutral(constraint, value.shape)
        return value if neutral is None else jnp.where(present.reshape(batch + (1,) * event_dim), neutral, value)

    return _changed(leaf, change, batch)


def _missing_given_others(fn: MultivariateNormal, present: Array, given: Array) -> MultivariateNormal:
    """A vector whose missing elements have their distribution given the others, and whose others are standard."""
    covariance, size = fn.covariance_matrix, present.shape[-1]
    both = present[..., :, None] & present[..., None, :]
    neither = ~present[..., :, None] & ~present[..., None, :]
    across = jnp.where(~present[..., :, None] & present[..., None, :], covariance, 0.0)
    gain = jnp.linalg.solve(jnp.where(both, covariance, jnp.eye(size)), across.mT).mT
    surprise = jnp.where(present, given - fn.loc, 0.0)
    mean = jnp.where(present, 0.0, fn.loc + (gain @ surprise[..., None])[..., 0])
    rest = jnp.where(neither, covariance - gain @ across.mT, jnp.eye(size))
    return MultivariateNormal(mean, covariance_matrix=(rest + rest.mT) / 2)


def _elements_at(fn: Distribution, gaps: Array) -> Distribution:
    """The distribution of some elements of a site, in one batch. gaps: their places in the flat site."""
    if isinstance(fn, MaskedDistribution):
        size = int(np.prod(fn.event_shape)) if isinstance(fn.base_dist, Independent) else 1
        mask = jnp.repeat(jnp.broadcast_to(jnp.asarray(fn._mask), fn.batch_shape).ravel(), size)
        return _elements_at(fn.base_dist, gaps).mask(mask[gaps])
    if isinstance(fn, ExpandedDistribution) and isinstance(fn.base_dist, MaskedDistribution | Independent):
        inner = fn.base_dist
        if isinstance(inner, MaskedDistribution):
            return _elements_at(
                inner.base_dist.expand(fn.batch_shape).mask(jnp.broadcast_to(inner._mask, fn.batch_shape)), gaps
            )
        parts = inner.event_shape[: inner.reinterpreted_batch_ndims]
        return _elements_at(inner.base_dist.expand(fn.batch_shape + parts), gaps)
    if isinstance(fn, Independent):
        return _elements_at(fn.base_dist, gaps)

    def change(constraint: Any, value: Array, event_dim: int) -> Array:
        return value.reshape(-1, *value.shape[value.ndim - event_dim :])[gaps]

    return _changed(_leaf(fn), change, fn.batch_shape)
