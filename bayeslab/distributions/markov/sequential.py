"""The forward-backward and Viterbi recursions of a discrete Markov chain, step after step.

With f_t(j) = exp(log_likelihood[t, j]), the likelihood of state j at step t,

    forward     a_1 = initial,    a_{t+1}(j) = sum_i a_t(i) f_t(i) transition_t[i, j]
    backward    b_T = f_T,        b_t(i) = f_t(i) sum_j transition_t[i, j] b_{t+1}(j)

Where a chain cannot go from every state to every other, no common scale keeps all of these in range: the state that
is alone possible in the end may be less likely than the smallest float for hundreds of steps. So every state has an
exponent of its own (`Scaled`), and sums are taken at a common one where that is seen to lose nothing.

All functions take initial (*batch, K), transition (*batch, 1 or T - 1, K, K), log_likelihood (*batch, T, K), and active
(*batch, T - 1), which is False at steps after which the chain stays where it is, or None if it always moves.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Active = Array | None
"""Whether the chain moves after each step but the last, (*batch, T - 1); None if it always does."""

LOG_2_PARTS = (0.693147180369123816490, 1.90821492927058770002e-10)
"""log 2 as a number of 32 digits, whose multiples are exact, and the rest (the reduction of Cody and Waite)."""


class Scaled(NamedTuple):
    """digits * 2^exponent: exponents are whole numbers of the same type, -inf for zero, so the range has no end."""

    digits: Array
    exponent: Array

    def at(self, index: Any) -> "Scaled":
        """The numbers at an index."""
        return Scaled(self.digits[index], self.exponent[index])

    def shifted(self, by: Array) -> "Scaled":
        """The numbers times 2^by."""
        return Scaled(self.digits, self.exponent + by)

    def times(self, other: "Scaled") -> "Scaled":
        """The products with other numbers."""
        return Scaled(self.digits * other.digits, self.exponent + other.exponent)

    def divided(self, other: "Scaled") -> Array:
        """The ratios to other numbers as floats, held below the largest float."""
        exponent = self.exponent - zero_if_infinite(other.exponent)
        return self.digits / jnp.where(other.digits == 0, 1, other.digits) * power_of_two(exponent, exponent.dtype)

    def total(self) -> "Scaled":
        """The sums over the last axis."""
        top = zero_if_infinite(self.exponent.max(-1))
        return scaled((self.digits * power_of_two(self.exponent - top[..., None], top.dtype)).sum(-1)).shifted(top)

    def log(self) -> Array:
        """The logarithms as floats, -inf for zero."""
        return log(self.digits) + zero_if_infinite(self.exponent) * math.log(2)

    def probabilities(self) -> Array:
        """The numbers over their sum along the last axis; zeros if all are zero."""
        return self.divided(self.total().at(np.s_[..., None]))


def scaled(x: Array) -> Scaled:
    """Floats that are not negative as `Scaled`."""
    down, exponent = split_exponent(lax.stop_gradient(x))
    return Scaled(x * down, jnp.where(x == 0, -jnp.inf, exponent.astype(x.dtype)))


def exponential(x: Array) -> Scaled:
    """The exponentials of numbers of any size as `Scaled`."""
    x = jnp.asarray(x)
    exponent = lax.stop_gradient(zero_if_infinite(jnp.round(x / math.log(2))))
    high, low = (jnp.asarray(part, x.dtype) for part in LOG_2_PARTS)
    return Scaled(jnp.exp((x - exponent * high) - exponent * low), jnp.where(jnp.isneginf(x), -jnp.inf, exponent))


def split_exponent(x: Array) -> tuple[Array, Array]:
    """2^-e and e, where e is the exponent of x > 0 in its bits."""
    integer, digits, bias = _float_format(x.dtype)
    e = jnp.clip((lax.bitcast_convert_type(x, integer) >> digits) - bias, 1 - bias, bias - 1)
    return lax.bitcast_convert_type((bias - e) << digits, x.dtype), e.astype(jnp.int32)


def power_of_two(exponent: Array, dtype: Any) -> Array:
    """2^exponent, exactly, which `exp2` is not.

    It is 0 below the range of floats, and held below its end, so that a million of them can be added.
    """
    integer, digits, bias = _float_format(dtype)
    e = jnp.clip(exponent, -bias, bias - 20).astype(integer)
    return lax.bitcast_convert_type((e + bias) << digits, dtype)


def _float_format(dtype: Any) -> tuple[Any, int, int]:
    """The format of a float: the integer type of its size, the number of its digits, and the bias of its exponent."""
    return (jnp.int32, 23, 127) if dtype == jnp.float32 else (jnp.int64, 52, 1023)


def forward(initial: Array, transition: Array, log_likelihood: Array, active: Active) -> tuple[Scaled, Scaled, Array]:
    """The forward recursion: a and a f of the module's formulas (*batch, T, K), and the log evidence (*batch,).

    Both are divided by one number a step, so that the second has a largest exponent of zero.
    """

    def step(carry: tuple[Scaled, Array], matrix: Array, likelihood: Scaled) -> tuple[Any, Any]:
        filtered, exponent = carry
        predicted, top = _propagate(jnp.matrix_transpose(matrix), filtered)
        filtered = predicted.times(likelihood)
        return (filtered, exponent + top), (predicted, filtered)

    likelihood = exponential(jnp.moveaxis(log_likelihood, -2, 0))
    predicted = scaled(jnp.broadcast_to(initial, log_likelihood.shape[:-2] + initial.shape[-1:]))
    filtered = predicted.times(likelihood.at(0))
    start = filtered, jnp.zeros(filtered.exponent.shape[:-1], filtered.exponent.dtype)
    (last, exponent), (predicted_later, filtered_later) = _scan(
        step, start, transition, active, likelihood.at(np.s_[1:])
    )
    filtered_later = _prepend(filtered, filtered_later)
    return (
        _prepend(predicted, predicted_later),
        filtered_later.shifted(-_max_exponent(filtered_later)[..., None]),
        last.total().log() + exponent * math.log(2),
    )


def backward(transition: Array, log_likelihood: Array, active: Active) -> Scaled:
    """The backward recursion: b of the module's formulas (*batch, T, K), divided by one number a step."""

    def step(after: Scaled, matrix: Array, likelihood: Scaled) -> tuple[Scaled, Scaled]:
        message = _propagate(matrix, after)[0].times(likelihood)
        return message, message

    likelihood = exponential(jnp.moveaxis(log_likelihood, -2, 0))
    last = likelihood.at(-1)
    _, messages = _scan(step, last, transition, active, likelihood.at(np.s_[:-1]), reverse=True)
    return Scaled(*(jnp.moveaxis(jnp.concatenate([x, y[None]]), 0, -2) for x, y in zip(messages, last, strict=True)))


def weigh_rows(matrix: Array, message: Scaled) -> Array:
    """Rows matrix[i, j] message[j], each divided by a number of its own."""
    return _weigh(matrix, message, False)[0]


def propagate(matrix: Array, message: Scaled) -> Scaled:
    """The product sum_j matrix[i, j] message[j]."""
    product, top = _propagate(matrix, message)
    return product.shifted(top[..., None])


def _propagate(matrix: Array, message: Scaled) -> tuple[Scaled, Array]:
    """The product sum_j matrix[i, j] message[j] over 2^e, and e, the largest exponent of the message."""
    total, row_exponent = _weigh(matrix, message, True)
    return scaled(total).shifted(row_exponent), _max_exponent(message)


def _weigh(matrix: Array, message: Scaled, summed: bool) -> tuple[Array, Array]:
    """Rows matrix[i, j] message[j] over 2^e and 2^exponents of the rows, and these exponents.

    e is the largest exponent of the message. summed: whether rows are added up.
    """
    digits, exponent = message
    common = _max_exponent(message)
    exponent -= common[..., None]

    def in_range() -> tuple[Array, Array]:
        product = matrix * (digits * power_of_two(exponent, exponent.dtype))[..., None, :]
        return product.sum(-1) if summed else product, jnp.zeros(product.shape[:-1], exponent.dtype)

    def with_row_exponents() -> tuple[Array, Array]:
        top = zero_if_infinite(jnp.where(matrix > 0, exponent[..., None, :], -jnp.inf).max(-1))
        product = matrix * digits[..., None, :] * power_of_two(exponent[..., None, :] - top[..., None], top.dtype)
        return product.sum(-1) if summed else product, top

    plain, top = in_range()
    total = plain if summed else plain.sum(-1)
    info = jnp.finfo(matrix.dtype)
    return lax.cond((total < 2.0 ** (0.9 * info.minexp)).any(), with_row_exponents, lambda: (plain, top))


def normalise_exponent(x: Scaled) -> tuple[Scaled, Array]:
    """Numbers over a power of two, so that their largest exponent along the last axis is zero, and its exponent."""
    digits = scaled(x.digits)
    exponent = digits.exponent + x.exponent
    top = zero_if_infinite(exponent.max(-1))
    return Scaled(digits.digits, exponent - top[..., None]), top


def _max_exponent(message: Scaled) -> Array:
    """The largest exponent of a message, 0 if all of it is zero."""
    return zero_if_infinite(message.exponent.max(-1))


def zero_if_infinite(exponent: Array) -> Array:
    """Exponents with 0 in place of those that are infinite."""
    return jnp.where(jnp.isfinite(exponent), exponent, 0.0)


def _prepend(first: Scaled, later: Scaled) -> Scaled:
    """The first step before the others, with the steps moved from the first axis to the one before the last."""
    return Scaled(*(jnp.moveaxis(jnp.concatenate([x[None], y]), 0, -2) for x, y in zip(first, later, strict=True)))


def viterbi_path(initial: Array, transition: Array, log_likelihood: Array, active: Active) -> Array:
    """The most probable path (*batch, T), by the Viterbi algorithm from the last step to the first.

    Backwards it finds the log probability of the best continuation from every state, forwards it follows the path.
    """

    def back(best_later: Array, matrix: Array, log_likelihood: Array) -> tuple[Array, tuple[Array, Array]]:
        log_probs = log(matrix) + best_later[..., None, :]
        best_later = log_likelihood + log_probs.max(-1)
        return best_later, (best_later, log_probs.argmax(-1))

    def forth(state: Array, pointers: Array) -> tuple[Array, Array]:
        state = jnp.take_along_axis(pointers, state[..., None], -1)[..., 0]
        return state, state

    steps = jnp.moveaxis(log_likelihood, -2, 0)
    best_later, pointers = _scan(back, steps[-1], transition, active, steps[:-1], reverse=True)[1]
    later = best_later[0] if len(steps) > 1 else steps[-1]
    first = jnp.argmax(log(initial) + later, -1)
    path = jnp.concatenate([first[None], lax.scan(forth, first, pointers)[1]])
    return jnp.moveaxis(path, 0, -1)


def draw(initial: Array, transition: Array, active: Active, uniform: Array) -> Array:
    """Paths (*sample, *batch, T) of the chain, by inverse cumulative distributions at uniform (T, *sample, *batch)."""

    def invert(cumulative: Array, uniform: Array) -> Array:
        return (cumulative <= uniform[..., None]).sum(-1, dtype=jnp.int32)

    def step(state: Array, cumulative: Array, uniform: Array) -> tuple[Array, Array]:
        rows = cumulative[(*np.ix_(*map(np.arange, cumulative.shape[:-2])), state)]
        state = invert(rows, uniform)
        return state, state

    first = invert(_cdf(initial), uniform[0])
    transition = identity_where_inactive(transition, active)
    _, later = _scan(step, first, _cdf(transition), None, uniform[1:])
    return jnp.moveaxis(jnp.concatenate([first[None], later]), 0, -1)


def identity_where_inactive(transition: Array, active: Active) -> Array:
    """Transition matrices with the identity at steps after which the chain stays where it is."""
    if active is None:
        return transition
    return jnp.where(active[..., None, None], transition, jnp.eye(transition.shape[-1], dtype=transition.dtype))


def log(x: Array) -> Array:
    """log x, with derivative 0 at 0: an impossible event has no gradient."""
    return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))


def _scan(
    step: Callable, start: Any, transition: Array, active: Active, inputs: Any, reverse: bool = False
) -> tuple[Any, Any]:
    """The last carry and the outputs of step(carry, matrix, input), steps on the first axis of inputs and outputs."""
    matrices = None if transition.shape[-3] == 1 else jnp.moveaxis(transition, -3, 0)
    active_steps = None if active is None else jnp.moveaxis(active, -1, 0)

    def at_step(carry: Any, item: tuple[Array | None, Active, Any]) -> Any:
        matrix, is_active, input_ = item
        if matrix is None:
            matrix = transition[..., 0, :, :]
        return step(carry, identity_where_inactive(matrix, is_active), input_)

    return lax.scan(at_step, start, (matrices, active_steps, inputs), reverse=reverse)


def _cdf(probs: Array) -> Array:
    """The cumulative distribution, without the rounding that would let a state of probability 0 be drawn."""
    cumulative = lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs, -1), 0), axis=probs.ndim - 1)
    return cumulative / cumulative[..., -1:]
