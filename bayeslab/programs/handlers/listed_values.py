"""Latent sites whose values are listed, since they are finitely many but not the same fixed numbers for all elements.

Vectors of counts with a known sum: a Multinomial or Dirichlet-multinomial vector of K counts that sum to n is one of
(n + K - 1 choose K - 1). Integers between bounds that are data: a DiscreteUniform up to the length of each row, a
Binomial with a number of trials for each. The place in the list is a Categorical site, which is summed over, drawn and
decoded as any other.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.distributions import (
    CategoricalLogits,
    DirichletMultinomial,
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    MultinomialLogits,
    MultinomialProbs,
    constraints,
)
from numpyro.handlers import seed, substitute, trace
from numpyro.primitives import Messenger

from bayeslab.programs.site_density import elementwise_log_density

COUNT_VECTORS = (MultinomialProbs, MultinomialLogits, DirichletMultinomial)
"""The distributions of vectors of counts."""
LISTED_SUPPORTS = ("multinomial", "integer interval")
"""The supports, in words, whose values may be listed."""
INTERVAL = type(constraints.integer_interval(0, 1))
"""The class of the constraint on integers between two bounds."""
MAX_LISTED = 4096
"""Values that are listed for an element, at most."""


class ListedValuesHandler(Messenger):
    """A handler that draws the place of some sites in the list of all their values, and computes them from it.

    sizes: how many values each of the sites has, at most.
    """

    def __init__(self, fn: Any, sizes: Mapping[str, int]):
        self.sizes = sizes
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or msg["name"] not in self.sizes or msg["value"] is not None:
            return
        fn, mask = _without_mask(msg["fn"])
        if isinstance(_inner(fn), COUNT_VECTORS):
            logits, vectors = _count_vectors_of(fn)
            place = _draw_place(msg["name"], logits, mask)
            value = vectors[place] if vectors.ndim == 2 else _at(vectors, place)
        else:
            low, high = _bounds(fn)
            steps = jnp.arange(self.sizes[msg["name"]]).reshape(-1, *(1 for _ in fn.shape()))
            log_probs = elementwise_log_density(fn, jnp.minimum(low + steps, high))
            logits = jnp.moveaxis(jnp.where(low + steps <= high, log_probs, -jnp.inf), 0, -1)
            place = _draw_place(msg["name"], logits, mask, fn.event_dim)
            value = jnp.minimum(low + place, high)  # elements that a mask hides may have any place
        msg |= {"type": "deterministic", "value": value}


def place_of(name: str) -> str:
    """The name of the site that says which of its possible values a site has."""
    return f"{name}_index"


def listed_sizes(bound: Any, names: Collection[str], start: Any) -> dict[str, int]:
    """How many values some sites of a Bound have, whose bounds do not depend on other sites.

    Not among them are sites whose values are the same fixed numbers for all elements, and those with more than
    MAX_LISTED. start: a function that gives sites their values.
    Raises ValueError where the largest value of an element is below its least.
    """
    sizes: dict[str, int] = {}

    def ranges(bound: Any) -> dict[str, tuple[Array, Array]]:
        sites = trace(substitute(seed(bound.program, jax.random.PRNGKey(0)), substitute_fn=start)).get_trace()
        found = {}
        for name in names:
            fn = _without_mask(sites[name]["fn"])[0]
            inner = _inner(fn)
            if isinstance(inner, COUNT_VECTORS):
                sizes[name] = _num_vectors(fn, inner)
            elif isinstance(inner.support, INTERVAL) and not _is_fixed(inner):
                found[name] = _bounds(fn)
        return found

    if jax.eval_shape(ranges, bound):
        for name, (low, high) in jax.device_get(jax.jit(ranges)(bound)).items():
            _refuse_empty_range(name, low, high)
            sizes[name] = int(np.max(high - low, initial=-1)) + 1
    return {name: size for name, size in sizes.items() if 0 < size <= MAX_LISTED}


def _num_vectors(fn: Distribution, inner: Any) -> int:
    """How many vectors of counts an element has at most; 0 where the total is not known."""
    if fn.event_dim != 1 or isinstance(inner.total_count, jax.core.Tracer):
        return 0
    return _num_count_vectors(int(np.max(inner.total_count, initial=0)), fn.event_shape[0])


def _is_fixed(inner: Distribution) -> bool:
    """Whether the bounds of values are numbers in the program."""
    return all(isinstance(bound, int | np.integer) for bound in _support_bounds(inner))


def _refuse_empty_range(name: str, low: np.ndarray, high: np.ndarray) -> None:
    """Raises ValueError where the largest value of an element is below its least."""
    if len(places := np.argwhere(high < low)):
        at = tuple(places[0].tolist())
        raise ValueError(
            f"site '{name}' has values from {low[at]} to {high[at]}{f' at position {at}' if at else ''}; its largest "
            "value must not be below its least"
        )


def _support_bounds(inner: Distribution) -> tuple[Any, Any]:
    return inner.support.lower_bound, inner.support.upper_bound


def _bounds(fn: Distribution) -> tuple[Array, Array]:
    """The least and the largest value of every element, of the shape of the site."""
    low, high = (jnp.broadcast_to(bound, fn.shape()).astype(int) for bound in _support_bounds(_inner(fn)))
    return low, high


def _without_mask(fn: Distribution) -> tuple[Distribution, Any]:
    """A distribution without its mask, and this; None where it has none."""
    return (fn.base_dist, fn._mask) if isinstance(fn, MaskedDistribution) else (fn, None)


def _inner(fn: Distribution) -> Any:
    while isinstance(fn, ExpandedDistribution | Independent):
        fn = fn.base_dist
    return fn


def _draw_place(name: str, logits: Array, mask: Any, event_dim: int = 0) -> Array:
    places = CategoricalLogits(logits).to_event(event_dim)
    return numpyro.sample(place_of(name), places if mask is None else places.mask(mask))


def _at(vectors: Array, place: Array) -> Array:
    """The vectors (*batch, K) at places (*batch) of a list for every element (*batch, vector, K)."""
    return jnp.take_along_axis(vectors, place[..., None, None], axis=-2)[..., 0, :]


def _count_vectors_of(fn: Distribution) -> tuple[Array, Array]:
    """The log probabilities (*batch, vector) of all vectors of counts, and these, (vector, K) or (*batch, vector, K).

    Elements with a smaller total have fewer vectors; the places that are left over have probability zero.
    """
    totals, num_categories = np.broadcast_to(np.asarray(_inner(fn).total_count), fn.batch_shape), fn.event_shape[0]
    distinct = [int(total) for total in np.unique(totals)] or [0]
    tables = [_all_count_vectors(total, num_categories) for total in distinct]
    largest = max(len(table) for table in tables)
    padded = np.stack([np.pad(table, ((0, largest - len(table)), (0, 0)), "edge") for table in tables])
    if len(distinct) == 1:
        vectors = jnp.asarray(padded[0])
        log_probs = fn.log_prob(vectors.reshape(largest, *(1 for _ in fn.batch_shape), num_categories))
        return jnp.moveaxis(jnp.broadcast_to(log_probs, (largest, *fn.batch_shape)), 0, -1), vectors
    which = np.searchsorted(distinct, totals)
    vectors = jnp.asarray(padded[which])
    log_probs = jnp.moveaxis(fn.log_prob(jnp.moveaxis(vectors, -2, 0)), 0, -1)
    is_possible = np.arange(largest) < np.array([len(table) for table in tables])[which][..., None]
    return jnp.where(is_possible, log_probs, -jnp.inf), vectors


def _num_count_vectors(total: int, num_categories: int) -> int:
    """How many vectors of counts there are with a total."""
    return math.comb(total + num_categories - 1, num_categories - 1)


def _all_count_vectors(total: int, num_categories: int) -> np.ndarray:
    """All vectors of counts with a total, (vector, category), in the order of their first counts, then the next."""

    def vectors(left: int, categories: int) -> Iterator[tuple[int, ...]]:
        if categories == 1:
            yield (left,)
            return
        for first in range(left + 1):
            for rest in vectors(left - first, categories - 1):
                yield (first, *rest)

    return np.array(list(vectors(total, num_categories)))
