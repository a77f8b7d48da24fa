"""A distribution over finitely many values, drawn with one uniform each."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, constraints

MAX_CHOICES_UNROLLED = 16
"""The largest number of choices whose running sums are written out, in one pass over the elements."""


def inverse_cdf(weights: Iterable[Array], uniform: Array) -> tuple[Array, Array]:
    """The index at which the running sum of weights exceeds uniform times their total, and the total.

    weights: an array for every choice. A choice of weight zero is never the result.
    """
    *sums, total = accumulate(weights)
    exceeded = ((running <= uniform * total).astype(jnp.int32) for running in sums)
    return sum(exceeded, jnp.zeros(jnp.broadcast_shapes(uniform.shape, total.shape), jnp.int32)), total


class Enumerated(Distribution):
    """Value `choices[k]` with probability softmax(logits)[k].

    logits: (*batch, K), not normalised; choices: (K,), integers in increasing order.
    A draw is the inverse of the cumulative distribution at one uniform: `jax.random.categorical` takes K Gumbel
    variates and costs many times as much.
    """

    arg_constraints = {"logits": constraints.real_vector}
    pytree_data_fields = ("logits", "choices")

    def __init__(self, logits: Array, choices: Array, validate_args: bool | None = None):
        self.logits, self.choices = logits, choices
        super().__init__(jnp.shape(logits)[:-1], (), validate_args=validate_args)

    @property
    def support(self) -> Any:
        return constraints.integer_interval(self.choices[0], self.choices[-1])

    @property
    def probs(self) -> Array:
        return jax.nn.softmax(self.logits, axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.from_uniform(jax.random.uniform(key, (*sample_shape, *self.batch_shape)))

    def from_uniform(self, uniform: Array) -> Array:
        """Values at which the cumulative distribution passes standard uniform numbers (*sample, *batch)."""
        weights = jnp.exp(self.logits - self.logits.max(-1, keepdims=True))
        if len(self.choices) > MAX_CHOICES_UNROLLED:
            cumulative = jnp.cumsum(weights, axis=-1)
            index = (uniform[..., None] * cumulative[..., -1:] >= cumulative).sum(-1)
        else:  # one pass over the elements
            index, _ = inverse_cdf([weights[..., k] for k in range(len(self.choices))], uniform)
        return jnp.asarray(self.choices)[jnp.minimum(index, len(self.choices) - 1)]

    def log_prob(self, value: Any) -> Array:
        log_probs = jax.nn.log_softmax(self.logits, axis=-1)
        return jnp.where(value[..., None] == jnp.asarray(self.choices), log_probs, 0.0).sum(-1)

    @property
    def mean(self) -> Array:
        return (self.probs * self.choices).sum(-1)

    @property
    def variance(self) -> Array:
        return (self.probs * self.choices**2).sum(-1) - self.mean**2
