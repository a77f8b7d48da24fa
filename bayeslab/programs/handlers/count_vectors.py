"""Latent vectors of counts with a known sum: which of the possible vectors it is, is drawn in their place.

A Multinomial or Dirichlet-multinomial vector of K counts that sum to n is one of (n + K - 1 choose K - 1). Its place in
their list is a Categorical site, which is summed over, drawn and decoded as any other.
"""

import math
from collections.abc import Collection, Iterator
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
    MaskedDistribution,
    MultinomialLogits,
    MultinomialProbs,
)
from numpyro.primitives import Messenger

COUNT_VECTORS = (MultinomialProbs, MultinomialLogits, DirichletMultinomial)
"""The distributions of vectors of counts."""
COUNT_VECTOR_FAMILIES = ("Multinomial", "DirichletMultinomial")
"""Their families, as sites name them."""
MAX_COUNT_VECTORS = 4096
"""Vectors that are listed for an element, at most."""


class CountVectorHandler(Messenger):
    """A handler that draws the place of some sites in the list of all vectors of counts, and computes them from it.

    names: the sites; those whose totals are not known without data, or whose vectors are too many, stay as they are.
    """

    def __init__(self, fn: Any, names: Collection[str]):
        self.names = names
        super().__init__(fn)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or msg["name"] not in self.names or msg["value"] is not None:
            return
        if (listed := _listed(msg["fn"])) is None:
            return
        logits, vectors = listed
        place = numpyro.sample(place_of(msg["name"]), _masked_like(msg["fn"], CategoricalLogits(logits)))
        value = (
            vectors[place] if vectors.ndim == 2 else jnp.take_along_axis(vectors, place[..., None, None], -2)[..., 0, :]
        )
        msg |= {"type": "deterministic", "value": value}


def place_of(name: str) -> str:
    """The name of the site that says which of the possible vectors a site is."""
    return f"{name}_index"


def _at(vectors: Array, place: Array) -> Array:
    """The vectors at some places of a list, or of a list for every element."""
    if vectors.ndim == 2:
        return vectors[place]
    return jnp.take_along_axis(vectors, place[..., None, None], axis=-2)[..., 0, :]


def _masked_like(fn: Distribution, categorical: Distribution) -> Distribution:
    return categorical.mask(fn._mask) if isinstance(fn, MaskedDistribution) else categorical


def _listed(fn: Distribution) -> tuple[Array, Array] | None:
    """The log probabilities (*batch, vector) of all vectors of counts, and these, (vector, K) or (*batch, vector, K).

    Elements with a smaller total have fewer vectors; the places that are left over have probability zero.
    None for other distributions, for totals that are not known, and where the vectors are too many.
    """
    fn = fn.base_dist if isinstance(fn, MaskedDistribution) else fn
    inner = fn.base_dist if isinstance(fn, ExpandedDistribution) else fn
    if not isinstance(inner, COUNT_VECTORS):
        return None
    if isinstance(inner.total_count, jax.core.Tracer):
        return None
    totals, num_categories = np.broadcast_to(np.asarray(inner.total_count), fn.batch_shape), fn.event_shape[0]
    distinct = [int(total) for total in np.unique(totals)] or [0]
    if num_count_vectors(distinct[-1], num_categories) > MAX_COUNT_VECTORS:
        return None
    tables = [_count_vectors(total, num_categories) for total in distinct]
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


def num_count_vectors(total: int, num_categories: int) -> int:
    """How many vectors of counts there are with a total."""
    return math.comb(total + num_categories - 1, num_categories - 1)


def _count_vectors(total: int, num_categories: int) -> np.ndarray:
    """All vectors of counts with a total, (vector, category), in the order of their first counts, then the next."""

    def vectors(left: int, categories: int) -> Iterator[tuple[int, ...]]:
        if categories == 1:
            yield (left,)
            return
        for first in range(left + 1):
            for rest in vectors(left - first, categories - 1):
                yield (first, *rest)

    return np.array(list(vectors(total, num_categories)))
