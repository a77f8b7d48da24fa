"""The forward-backward recursions of a discrete Markov chain, step after step.

With f_t(j) = exp(log_likelihood[t, j]), the likelihood of state j at step t,

    forward     a_1 = initial,    a_{t+1}(j) = sum_i a_t(i) f_t(i) transition_t[i, j]
    backward    b_T = f_T,        b_t(i) = f_t(i) sum_j transition_t[i, j] b_{t+1}(j)

Where a chain cannot go from every state to every other, no common scale keeps all of these in range: the state that
is alone possible in the end may be less likely than the smallest float for hundreds of steps. So every state has an
exponent of its own (`Scaled`), and sums are taken at a common one where that is seen to lose nothing.

On an accelerator blocks of steps advance side by side (`scan_in_blocks`): their effects are matrices whose entries have
exponents, too. There a state always has its own, since to look at numbers first takes longer.

All functions take initial (*batch, K), transition (*batch, 1 or T - 1, K, K), log_likelihood (*batch, T, K), and active
(*batch, T - 1), which is False at steps after which the chain stays where it is, or None if it always moves.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.block_scan import Effects, scan_in_blocks
from bayeslab.distributions.processor import on_accelerator

Active = Array | None
"""Whether the chain moves after each step but the last, (*batch, T - 1); None if it always does."""

LOG_2_PARTS = (0.693147180369123816490, 1.90821492927058770002e-10)
"""log 2 as a number of 32 digits, whose multiples are exact, and the rest (the reduction of Cody and Waite)."""


class Scaled(NamedTuple):
    """digits * 2^exponent: exponents are whole numbers of the same type, -inf for zero, so the range has no end.

    What is zero has no derivative, in sums and products of these: an impossible event stays impossible.
    """

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

    likelihood = exponential(jnp.moveaxis(log_likelihood, -2, 0))
    predicted = scaled(jnp.broadcast_to(initial, log_likelihood.shape[:-2] + initial.shape[-1:]))
    filtered = predicted.times(likelihood.at(0))
    (last, exponent), (before, predicted_later) = _messages(filtered, transition, active, likelihood.at(np.s_[1:]))
    filtered = _joined(before, Scaled(*(leaf[None] for leaf in last)))
    return (
        _joined(Scaled(*(leaf[None] for leaf in predicted)), predicted_later),
        filtered.shifted(-max_exponent(filtered)[..., None]),
        last.total().log() + exponent * math.log(2),
    )


def backward(transition: Array, log_likelihood: Array, active: Active) -> Scaled:
    """The backward recursion: b of the module's formulas (*batch, T, K), divided by one number a step."""
    likelihood = exponential(jnp.moveaxis(log_likelihood, -2, 0))
    (first, _), (later, _) = _messages(likelihood.at(-1), transition, active, likelihood.at(np.s_[:-1]), reverse=True)
    return _joined(Scaled(*(leaf[None] for leaf in first)), later)


def _messages(
    start: Scaled, transition: Array, active: Active, likelihood: Scaled, reverse: bool = False
) -> tuple[tuple[Scaled, Array], tuple[Scaled, Scaled]]:
    """What follows the message `start` at later steps, or at earlier ones if `reverse`.

    Returns the last message over 2^exponent, and that exponent (*batch,); and with steps on the first axis all messages
    but the last, each over a power of two, and sums of them over states, where their largest exponent is made zero.
    """
    matrices, matrix_at = matrices_by_step(transition, active)

    def move(message: Scaled, item: tuple[Any, Scaled]) -> tuple[Scaled, Array]:
        matrix = matrix_at(item[0])
        return _propagate(matrix if reverse else jnp.matrix_transpose(matrix), message)

    def step(carry: tuple[Scaled, Array], item: tuple[Any, Scaled]) -> tuple[Any, tuple[Scaled, Scaled]]:
        message, exponent = carry
        total, top = move(message, item)
        return (total.times(item[1]), exponent + top), (message, total)

    def extend(block: tuple[Scaled, Array], item: tuple[Any, Scaled]) -> tuple[Scaled, Array]:
        matrix, exponent = block
        total, row_tops = move(matrix, item)
        matrix, top = _over_largest(total.times(item[1]).shifted(row_tops[..., None]), (0, -1))
        return matrix, exponent + top

    def apply(block: tuple[Scaled, Array], carry: tuple[Scaled, Array]) -> tuple[Scaled, Array]:
        (matrix, block_exponent), (message, exponent) = block, carry
        terms = Scaled(*(jnp.moveaxis(leaf, -1, 0)[..., None] for leaf in message)).times(matrix)
        message, top = _over_largest(Scaled(*(jnp.moveaxis(leaf, 0, -1) for leaf in terms)).total(), -1)
        return message, exponent + block_exponent + top

    def join(block: tuple[Scaled, Array], later: tuple[Scaled, Array]) -> tuple[Scaled, Array]:
        matrix, exponent = block
        rows, row_tops = jax.vmap(lambda row: apply(later, (row, none)))(matrix)
        matrix, top = _over_largest(rows.shifted(row_tops[..., None]), (0, -1))
        return matrix, exponent + top

    none = jnp.zeros(start.digits.shape[:-1], start.exponent.dtype)
    effects = Effects((scaled(unit_vectors(start.digits)), none), extend, apply, join)
    return scan_in_blocks(step, effects, (start, none), (matrices, likelihood), reverse)


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
    return scaled(total).shifted(row_exponent), max_exponent(message)


def _weigh(matrix: Array, message: Scaled, summed: bool) -> tuple[Array, Array]:
    """Rows matrix[i, j] message[j] over 2^e and 2^exponents of the rows, and these exponents.

    e is the largest exponent of the message. summed: whether rows are added up.
    """
    digits, exponent = message
    common = max_exponent(message)
    exponent -= common[..., None]

    def in_range() -> tuple[Array, Array]:
        product = matrix * (digits * power_of_two(exponent, exponent.dtype))[..., None, :]
        return product.sum(-1) if summed else product, jnp.zeros(product.shape[:-1], exponent.dtype)

    def with_row_exponents() -> tuple[Array, Array]:
        top = zero_if_infinite(jnp.where(matrix > 0, exponent[..., None, :], -jnp.inf).max(-1))
        product = matrix * digits[..., None, :] * power_of_two(exponent[..., None, :] - top[..., None], top.dtype)
        return product.sum(-1) if summed else product, top

    if on_accelerator():
        return with_row_exponents()
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


def _over_largest(x: Scaled, axes: int | tuple[int, ...]) -> tuple[Scaled, Array]:
    """Numbers over a power of two, so that their largest exponent along the axes is zero, and its exponent."""
    top = zero_if_infinite(x.exponent.max(axes, keepdims=True))
    return x.shifted(-top), top.squeeze(axes)


def max_exponent(message: Scaled) -> Array:
    """The largest exponent of a message, 0 if all of it is zero."""
    return zero_if_infinite(message.exponent.max(-1))


def zero_if_infinite(exponent: Array) -> Array:
    """Exponents with 0 in place of those that are infinite."""
    return jnp.where(jnp.isfinite(exponent), exponent, 0.0)


def _joined(earlier: Scaled, later: Scaled) -> Scaled:
    """Steps one after the other, moved from the first axis to the one before the last."""
    return Scaled(*(jnp.moveaxis(jnp.concatenate(pair), 0, -2) for pair in zip(earlier, later, strict=True)))


def identity_where_inactive(transition: Array, active: Active) -> Array:
    """Transition matrices with the identity at steps after which the chain stays where it is."""
    if active is None:
        return transition
    return jnp.where(active[..., None, None], transition, jnp.eye(transition.shape[-1], dtype=transition.dtype))


def log(x: Array) -> Array:
    """log x, with derivative 0 at 0: an impossible event has no gradient."""
    return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))


def matrices_by_step(transition: Array, active: Active) -> tuple[Any, Callable[[Any], Array]]:
    """What a scan is given for matrices, steps first, and the function that gives the matrix of a step from it."""
    matrices = None if transition.shape[-3] == 1 else jnp.moveaxis(transition, -3, 0)

    def matrix_at(part: tuple[Array | None, Active]) -> Array:
        matrix = transition[..., 0, :, :] if part[0] is None else part[0]
        return identity_where_inactive(matrix, part[1])

    return (matrices, None if active is None else jnp.moveaxis(active, -1, 0)), matrix_at


def unit_vectors(like: Array) -> Array:
    """A unit vector (*batch, K) for every state, (K, *batch, K). like: (*batch, K)."""
    states, batch = like.shape[-1], like.ndim - 1
    units = jnp.eye(states, dtype=like.dtype).reshape(states, *(1,) * batch, states)
    return jnp.broadcast_to(units, (states, *like.shape))
