"""Distributions of the latent part of a site that is missing in part."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
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

from bayeslab.distributions import MarkovChain
from bayeslab.programs.handlers.listed_values import COUNT_VECTORS
from bayeslab.programs.missing.known_states import missing_states_given_others


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
    if isinstance(leaf, MarkovChain):
        return Split(type(leaf).__name__, leaf.lengths is None, (), None)
    parameters = _parameters(leaf)
    shared = tuple(name for name, constraint, _ in parameters or () if _makes_support(constraint))
    in_events = isinstance(leaf, MultivariateNormal) and present_ndim > len(fn.batch_shape)
    ndim = len(fn.shape()) - leaf.event_dim
    possible = parameters is not None and not isinstance(leaf, COUNT_VECTORS)
    return Split(type(leaf).__name__, possible, shared, None if in_events else ndim)


def proper_where_masked(fn: Distribution) -> Distribution:
    """The distribution of what `obs_mask=` leaves unobserved: the other elements, that a mask hides, get one of their
    own in its place."""
    fn, mask = _taken_apart(fn)
    if _parameters(_leaf(fn)) is None:
        return fn.mask(mask)
    return with_own_elements(fn, ~jnp.broadcast_to(mask, fn.batch_shape), None)


def without_mask(fn: Distribution) -> Distribution:
    """The distribution without its masks."""
    return _taken_apart(fn)[0]


def _taken_apart(fn: Distribution) -> tuple[Distribution, Any]:
    """The distribution without its masks, and what they are together."""
    mask: Any = True
    while isinstance(fn, MaskedDistribution) or (
        isinstance(fn, ExpandedDistribution) and isinstance(fn.base_dist, MaskedDistribution)
    ):
        inner = fn if isinstance(fn, MaskedDistribution) else fn.base_dist
        mask = jnp.asarray(mask) & jnp.asarray(inner._mask)
        fn = inner.base_dist if inner is fn else inner.base_dist.expand(fn.batch_shape)
    return fn, mask


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
    parameters = [(name, leaf.arg_constraints[name], vars(leaf)[name]) for name in names]
    try:
        same = type(leaf)(**{name: value for name, _, value in parameters})
    except (TypeError, ValueError, AssertionError):
        return None
    return parameters if same.shape() == leaf.shape() else None


def _makes_support(constraint: Any) -> bool:
    """Whether a parameter with this constraint says where a distribution has its support."""
    return bool(is_dependent(constraint) or constraint.is_discrete)


def _neutral(constraint: Any, shape: tuple[int, ...]) -> Array:
    """A value of a parameter for elements that nothing depends on."""
    if constraint in (constraints.positive, constraints.nonnegative, constraints.softplus_positive):
        return jnp.full(shape, 2.0)  # so that densities of positive numbers have a mode inside
    transform = biject_to(constraint)
    return jnp.broadcast_to(transform(jnp.zeros(transform.inverse_shape(shape))), shape)


def _changed(fn: Distribution, change: Any, batch: tuple[int, ...]) -> Distribution:
    """A leaf distribution, with parameters that `change` takes (constraint, value of the whole batch) to others.

    Integers that make a support stay as they are, so that its values can be listed.
    """
    built, shape_of_kept = {}, None
    for name, constraint, value in _parameters(fn) or ():
        own = 0 if is_dependent(constraint) else constraint.event_dim
        whole = jnp.asarray(value)
        changed = change(constraint, jnp.broadcast_to(whole, batch + whole.shape[whole.ndim - own :]), own)
        kept = _makes_support(constraint) and isinstance(value, int | np.integer)
        built[name] = value if kept else changed
        shape_of_kept = changed.shape if kept else shape_of_kept
    made = type(fn)(**built)
    return made if shape_of_kept in (None, made.batch_shape) else made.expand(shape_of_kept)


def _with_expansion_inside(fn: ExpandedDistribution) -> Distribution:
    """An expanded masked or independent distribution, with what is inside of it expanded in its place."""
    inner = fn.base_dist
    if isinstance(inner, MaskedDistribution):
        return inner.base_dist.expand(fn.batch_shape).mask(jnp.broadcast_to(inner._mask, fn.batch_shape))
    parts = inner.event_shape[: inner.reinterpreted_batch_ndims]
    return inner.base_dist.expand(fn.batch_shape + parts).to_event(inner.reinterpreted_batch_ndims)


def with_own_elements(fn: Distribution, present: Array, given: Array | None) -> Distribution:
    """The distribution of the latent part, of the shape of the whole site. given: for parts of vectors."""
    if isinstance(fn, MaskedDistribution):  # elements that nothing depends on are never masked: they stay proper
        mask = jnp.broadcast_to(jnp.asarray(fn._mask), fn.batch_shape)
        extra = tuple(range(len(fn.batch_shape), present.ndim))
        return with_own_elements(fn.base_dist, present, given).mask(mask | present.all(extra))
    if isinstance(fn, ExpandedDistribution) and isinstance(fn.base_dist, MaskedDistribution | Independent):
        return with_own_elements(_with_expansion_inside(fn), present, given)
    if isinstance(fn, Independent):
        inner = fn.base_dist
        present = jnp.broadcast_to(
            present.reshape(present.shape + (1,) * max(len(inner.batch_shape) - present.ndim, 0)),
            inner.batch_shape + present.shape[len(inner.batch_shape) :],
        )
        return with_own_elements(inner, present, given).to_event(fn.reinterpreted_batch_ndims)
    leaf, batch = _leaf(fn), fn.batch_shape
    if isinstance(leaf, MultivariateNormal) and present.ndim > len(batch):
        return _missing_given_others(leaf, present, given)
    if isinstance(leaf, MarkovChain):
        assert given is not None
        return missing_states_given_others(leaf, present, given)

    def change(constraint: Any, value: Array, event_dim: int) -> Array:
        if _makes_support(constraint):
            return value
        return jnp.where(present.reshape(batch + (1,) * event_dim), _neutral(constraint, value.shape), value)

    return _changed(leaf, change, batch)


def _missing_given_others(fn: MultivariateNormal, present: Array, given: Array | None) -> MultivariateNormal:
    """A vector whose missing elements have their distribution given the others, and whose others are standard."""
    assert given is not None
    covariance, size = fn.covariance_matrix, present.shape[-1]
    both = present[..., :, None] & present[..., None, :]
    neither = ~present[..., :, None] & ~present[..., None, :]
    across = jnp.where(~present[..., :, None] & present[..., None, :], covariance, 0.0)
    gain = jnp.linalg.solve(jnp.where(both, covariance, jnp.eye(size)), across.mT).mT
    surprise = jnp.where(present, given - fn.loc, 0.0)
    mean = jnp.where(present, 0.0, fn.loc + (gain @ surprise[..., None])[..., 0])
    rest = jnp.where(neither, covariance - gain @ across.mT, jnp.eye(size))
    return MultivariateNormal(mean, covariance_matrix=(rest + rest.mT) / 2)


def elements_at(fn: Distribution, gaps: Array) -> Distribution:
    """The distribution of some elements of a site, in one batch. gaps: their places in the flat site."""
    if isinstance(fn, MaskedDistribution):
        size = int(np.prod(fn.event_shape)) if isinstance(fn.base_dist, Independent) else 1
        mask = jnp.repeat(jnp.broadcast_to(jnp.asarray(fn._mask), fn.batch_shape).ravel(), size)
        return elements_at(fn.base_dist, gaps).mask(mask[gaps])
    if isinstance(fn, ExpandedDistribution) and isinstance(fn.base_dist, MaskedDistribution | Independent):
        return elements_at(_with_expansion_inside(fn), gaps)
    if isinstance(fn, Independent):
        return elements_at(fn.base_dist, gaps)

    def change(constraint: Any, value: Array, event_dim: int) -> Array:
        return value.reshape(-1, *value.shape[value.ndim - event_dim :])[gaps]

    return _changed(_leaf(fn), change, fn.batch_shape)
