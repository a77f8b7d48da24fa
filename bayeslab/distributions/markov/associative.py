"""The forward-backward recursions as associative products of matrices, all steps at once: for accelerators.

A message is a product of matrices, one a step, and products are associative, so all of them are found in a number of
rounds that grows with the logarithm of the number of steps (Blelloch 1990; Hassan, Särkkä and García-Fernández 2021,
arXiv:2102.05743). Every entry of a matrix has an exponent of its own, which keeps it in range.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.markov.sequential import (
    Active,
    Scaled,
    exponential,
    identity_where_inactive,
    normalise_exponent,
    power_of_two,
    propagate,
    scaled,
    zero_if_infinite,
)


class _Product(NamedTuple):
    """2^top times a matrix whose largest exponent is zero."""

    matrix: Scaled
    top: Array


def forward(initial: Array, transition: Array, log_likelihood: Array, active: Active) -> tuple[Scaled, Scaled, Array]:
    """The forward recursion, see `bayeslab.distributions.markov.sequential`."""
    batch, (steps, states) = log_likelihood.shape[:-2], log_likelihood.shape[-2:]
    first = jnp.broadcast_to(initial[..., None, None, :], (*batch, 1, states, states))
    matrices = jnp.broadcast_to(identity_where_inactive(transition, active), (*batch, steps - 1, states, states))
    likelihood = exponential(log_likelihood)
    potentials = scaled(jnp.concatenate([first, matrices], -3)).times(likelihood.at(np.s_[..., None, :]))
    products = _cumulative_products(potentials, reverse=False)
    filtered, exponent = normalise_exponent(products.matrix.at(np.s_[..., 0, :]))
    start = scaled(jnp.broadcast_to(initial, (*batch, states)))
    before = filtered.at(np.s_[..., :-1, :])
    after = propagate(jnp.matrix_transpose(identity_where_inactive(transition, active)), before)
    predicted = Scaled(*(jnp.concatenate([x[..., None, :], y], -2) for x, y in zip(start, after, strict=True)))
    last = filtered.at(np.s_[..., -1, :]).total()
    return predicted, filtered, last.log() + (products.top + exponent)[..., -1] * math.log(2)


def backward(transition: Array, log_likelihood: Array, active: Active) -> Scaled:
    """The backward recursion, see `bayeslab.distributions.markov.sequential`."""
    batch, (steps, states) = log_likelihood.shape[:-2], log_likelihood.shape[-2:]
    matrices = jnp.broadcast_to(identity_where_inactive(transition, active), (*batch, steps - 1, states, states))
    last = jnp.ones((*batch, 1, states, states), matrices.dtype)
    likelihood = exponential(log_likelihood)
    potentials = scaled(jnp.concatenate([matrices, last], -3)).times(likelihood.at(np.s_[..., :, None]))
    products = _cumulative_products(potentials, reverse=True).matrix
    return normalise_exponent(products.at(np.s_[..., 0]))[0]


def _cumulative_products(matrices: Scaled, reverse: bool) -> _Product:
    """The products of all matrices up to each step, or from it on if `reverse`, by an associative scan."""

    def combine(left: _Product, right: _Product) -> _Product:
        if reverse:
            left, right = right, left
        exponent = left.matrix.exponent[..., :, :, None] + right.matrix.exponent[..., None, :, :]
        digits = left.matrix.digits[..., :, :, None] * right.matrix.digits[..., None, :, :]
        top = zero_if_infinite(exponent.max(-2))
        total = (digits * power_of_two(exponent - top[..., None, :], top.dtype)).sum(-2)
        return _normalise(scaled(total).shifted(top), left.top + right.top)

    by_step = Scaled(*(jnp.moveaxis(x, -3, 0) for x in matrices))
    start = _normalise(by_step, jnp.zeros(by_step.exponent.shape[:-2], by_step.exponent.dtype))
    products = lax.associative_scan(combine, start, reverse=reverse)
    return _Product(Scaled(*(jnp.moveaxis(x, 0, -3) for x in products.matrix)), jnp.moveaxis(products.top, 0, -1))


def _normalise(matrix: Scaled, top: Array) -> _Product:
    """2^top times a matrix, with the largest exponent of the matrix moved into top."""
    exponent = zero_if_infinite(matrix.exponent.max((-2, -1)))
    return _Product(matrix.shifted(-exponent[..., None, None]), top + exponent)
