"""The recursions of `markov_recursions` as products of matrices, all steps at once: for accelerators.

A message is a product of matrices, one a step, and products are associative, so all of them are found in a number of
rounds that grows with the logarithm of the number of steps (Blelloch 1990; Hassan, Särkkä and García-Fernández 2021,
arXiv:2102.05743). Every row of a matrix has a scale of its own, which keeps it in range.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.markov_recursions import Moving, at_rest, log, weigh


class Rows(NamedTuple):
    """exp(scale) times the rows of a matrix whose largest entries are 1."""

    matrix: Array
    scale: Array


def forward(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Array, Array, Array]:
    """See `markov_recursions.forward`."""
    batch, states = evidence.shape[:-2], evidence.shape[-1]
    first = jnp.broadcast_to(log(initial)[..., None, :], (*batch, states, states)) + evidence[..., 0, None, :]
    moves = log(_matrices(transition, moving, evidence)) + evidence[..., 1:, None, :]
    products = _products(_rows(jnp.concatenate([first[..., None, :, :], moves], -3)), reverse=False)
    reached = products.matrix[..., 0, :]
    total = reached.sum(-1, keepdims=True)
    filtered = reached / jnp.where(total == 0, 1, total)
    after = jnp.einsum("...ti,...tij->...tj", filtered[..., :-1, :], at_rest(transition, moving), precision="highest")
    start = jnp.broadcast_to(initial, (*batch, states))[..., None, :]
    predicted = jnp.concatenate([start, after], -2)
    _, weight, log_scale = weigh(predicted, evidence)
    return predicted, weight, log_scale


def backward(transition: Array, weight: Array, moving: Moving) -> Array:
    """See `markov_recursions.backward`."""
    states = weight.shape[-1]
    moves = weight[..., :-1, :, None] * _matrices(transition, moving, weight)
    last = jnp.broadcast_to(weight[..., -1:, :, None], (*weight.shape[:-2], 1, states, states))
    products = _products(_rows(log(jnp.concatenate([moves, last], -3))), reverse=True)
    return products.matrix[..., 0] * jnp.exp(products.scale)


def _matrices(transition: Array, moving: Moving, like: Array) -> Array:
    """One for every move, (*batch, T - 1, K, K)."""
    *batch, steps, states = like.shape
    return jnp.broadcast_to(at_rest(transition, moving), (*batch, steps - 1, states, states))


def _rows(logs: Array) -> Rows:
    scale = logs.max(-1)
    scale = jnp.where(jnp.isneginf(scale), 0.0, scale)
    return Rows(jnp.exp(logs - scale[..., None]), scale)


def _products(rows: Rows, reverse: bool) -> Rows:
    def times(one: Rows, other: Rows) -> Rows:
        if reverse:
            one, other = other, one
        top = jnp.where(one.matrix > 0, other.scale[..., None, :], -jnp.inf).max(-1)
        top = jnp.where(jnp.isneginf(top), 0.0, top)
        weighed = one.matrix * jnp.exp(jnp.minimum(other.scale[..., None, :] - top[..., None], 0.0))
        product = jnp.einsum("...ij,...jk->...ik", weighed, other.matrix, precision="highest")
        largest = product.max(-1)
        largest = jnp.where(largest == 0, 1.0, largest)
        return Rows(product / largest[..., None], one.scale + top + jnp.log(largest))

    by_step = Rows(jnp.moveaxis(rows.matrix, -3, 0), jnp.moveaxis(rows.scale, -2, 0))
    found = lax.associative_scan(times, by_step, reverse=reverse)
    return Rows(jnp.moveaxis(found.matrix, 0, -3), jnp.moveaxis(found.scale, 0, -2))
