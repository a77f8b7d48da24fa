"""The two recursions of a discrete Markov chain with evidence about its states one by one, step after step.

With f_t(j) = exp(evidence[t, j]), the evidence for state j at step t,

    forward     a_1 = initial,    a_{t+1}(j) = sum_i a_t(i) f_t(i) transition_t[i, j]
    backward    b_T = f_T,        b_t(i) = f_t(i) sum_j transition_t[i, j] b_{t+1}(j)

Where a chain cannot go from every state to every other, no common scale keeps all of these in range: the state that
is alone possible in the end may be less likely than the smallest float for hundreds of steps. So every state has an
exponent of its own (`Scaled`), and sums are taken at a common one where that is seen to lose nothing.

All functions take initial (*batch, K), transition (*batch, 1 or T - 1, K, K), evidence (*batch, T, K), and moving
(*batch, T - 1), where the chain does not move at all, or None if it always does.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Moving = Array | None

LOG_2 = (0.693147180369123816490, 1.90821492927058770002e-10)
"""log 2 as a number of 32 digits, of which many times are exact, and the rest."""


class Scaled(NamedTuple):
    """digits * 2^exponent: exponents are whole numbers of the same type, -inf for zero, so the range has no end."""

    digits: Array
    exponent: Array

    def at(self, index: Any) -> "Scaled":
        return Scaled(self.digits[index], self.exponent[index])

    def shifted(self, by: Array) -> "Scaled":
        return Scaled(self.digits, self.exponent + by)

    def times(self, other: "Scaled") -> "Scaled":
        return Scaled(self.digits * other.digits, self.exponent + other.exponent)

    def divided(self, other: "Scaled") -> Array:
        """The ratio as a float, held below the largest."""
        exponent = self.exponent - finite(other.exponent)
        return self.digits / jnp.where(other.digits == 0, 1, other.digits) * power_of_two(exponent, exponent.dtype)

    def total(self) -> "Scaled":
        """Added up over the last axis."""
        top = finite(self.exponent.max(-1))
        return scaled((self.digits * power_of_two(self.exponent - top[..., None], top.dtype)).sum(-1)).shifted(top)

    def log(self) -> Array:
        return log(self.digits) + finite(self.exponent) * math.log(2)

    def probabilities(self) -> Array:
        """Over their sum; zeros if all are."""
        return self.divided(self.total().at(np.s_[..., None]))


def scaled(x: Array) -> Scaled:
    """Of floats that are not negative."""
    down, exponent = power(lax.stop_gradient(x))
    return Scaled(x * down, jnp.where(x == 0, -jnp.inf, exponent.astype(x.dtype)))


def exponential(x: Array) -> Scaled:
    """Of logarithms of any size."""
    x = jnp.asarray(x)
    whole = lax.stop_gradient(finite(jnp.round(x / math.log(2))))
    high, low = (jnp.asarray(part, x.dtype) for part in LOG_2)
    return Scaled(jnp.exp((x - whole * high) - whole * low), jnp.where(jnp.isneginf(x), -jnp.inf, whole))


def power(x: Array) -> tuple[Array, Array]:
    """2^-e and e, the exponent of x > 0 as its bits have it."""
    whole, digits, bias = _bits(x.dtype)
    e = jnp.clip((lax.bitcast_convert_type(x, whole) >> digits) - bias, 1 - bias, bias - 1)
    return lax.bitcast_convert_type((bias - e) << digits, x.dtype), e.astype(jnp.int32)


def power_of_two(exponent: Array, dtype: Any) -> Array:
    """2^exponent, exactly, where `exp2` is not: 0 below the range of floats, and held below its end, so that a million
    of them can be added."""
    whole, digits, bias = _bits(dtype)
    e = jnp.clip(exponent, -bias, bias - 20).astype(whole)
    return lax.bitcast_convert_type((e + bias) << digits, dtype)


def _bits(dtype: Any) -> tuple[Any, int, int]:
    """Of a float: integers of its size, the number of its digits, and what is added to its exponent."""
    return (jnp.int32, 23, 127) if dtype == jnp.float32 else (jnp.int64, 52, 1023)


def forward(initial: Array, transition: Array, evidence: Array, moving: Moving) -> tuple[Scaled, Scaled, Array]:
    """a and a f of the module's formulas (*batch, T, K), both over one number a step, that by which the second has a
    largest exponent of zero, and the log of the evidence (*batch,)."""

    def step(carry: tuple[Scaled, Array], matrix: Array, given: Scaled) -> tuple[Any, Any]:
        filtered, exponent = carry
        predicted, top = _moved(jnp.matrix_transpose(matrix), filtered)
        filtered = predicted.times(given)
        return (filtered, exponent + top), (predicted, filtered)

    given = exponential(jnp.moveaxis(evidence, -2, 0))
    predicted = scaled(jnp.broadcast_to(initial, evidence.shape[:-2] + initial.shape[-1:]))
    filtered = predicted.times(given.at(0))
    start = filtered, jnp.zeros(filtered.exponent.shape[:-1], filtered.exponent.dtype)
    (last, exponent), (a, f) = _scan(step, start, transition, moving, given.at(np.s_[1:]))
    f = _joined(filtered, f)
    return _joined(predicted, a), f.shifted(-_common(f)[..., None]), last.total().log() + exponent * math.log(2)


def backward(transition: Array, evidence: Array, moving: Moving) -> Scaled:
    """b of the module's formulas (*batch, T, K), over one number a step."""

    def step(after: Scaled, matrix: Array, given: Scaled) -> tuple[Scaled, Scaled]:
        here = _moved(matrix, after)[0].times(given)
        return here, here

    given = exponential(jnp.moveaxis(evidence, -2, 0))
    last = given.at(-1)
    _, found = _scan(step, last, transition, moving, given.at(np.s_[:-1]), reverse=True)
    return Scaled(*(jnp.moveaxis(jnp.concatenate([x, y[None]]), 0, -2) for x, y in zip(found, last, strict=True)))


def weighed(matrix: Array, message: Scaled) -> Array:
    """Rows matrix[i, j] message[j], every one over a number of its own."""
    return _weighed(matrix, message, False)[0]


def moved(matrix: Array, message: Scaled) -> Scaled:
    """sum_j matrix[i, j] message[j]."""
    found, top = _moved(matrix, message)
    return found.shifted(top[..., None])


def _moved(matrix: Array, message: Scaled) -> tuple[Scaled, Array]:
    """The same over 2^e, and e, the largest exponent of the message."""
    total, over = _weighed(matrix, message, True)
    return scaled(total).shifted(over), _common(message)


def _weighed(matrix: Array, message: Scaled, summed: bool) -> tuple[Array, Array]:
    """matrix[i, j] message[j] over 2^exponents of the rows and 2^e, e the largest exponent of the message, added up if
    asked; and these exponents."""
    digits, exponent = message
    common = _common(message)
    exponent -= common[..., None]

    def near() -> tuple[Array, Array]:
        found = matrix * (digits * power_of_two(exponent, exponent.dtype))[..., None, :]
        return found.sum(-1) if summed else found, jnp.zeros(found.shape[:-1], exponent.dtype)

    def far() -> tuple[Array, Array]:
        top = finite(jnp.where(matrix > 0, exponent[..., None, :], -jnp.inf).max(-1))
        found = matrix * digits[..., None, :] * power_of_two(exponent[..., None, :] - top[..., None], top.dtype)
        return found.sum(-1) if summed else found, top

    plain, top = near()
    total = plain if summed else plain.sum(-1)
    info = jnp.finfo(matrix.dtype)
    return lax.cond((total < 2.0 ** (0.9 * info.minexp)).any(), far, lambda: (plain, top))


def lifted(x: Scaled) -> tuple[Scaled, Array]:
    """The same with a largest exponent of zero, and what that was."""
    digits = scaled(x.digits)
    exponent = digits.exponent + x.exponent
    top = finite(exponent.max(-1))
    return Scaled(digits.digits, exponent - top[..., None]), top


def _common(message: Scaled) -> Array:
    """The largest exponent."""
    return finite(message.exponent.max(-1))


def finite(exponent: Array) -> Array:
    return jnp.where(jnp.isfinite(exponent), exponent, 0.0)


def _joined(first: Scaled, rest: Scaled) -> Scaled:
    """The first step before the others, with steps on the axis before the last."""
    return Scaled(*(jnp.moveaxis(jnp.concatenate([x[None], y]), 0, -2) for x, y in zip(first, rest, strict=True)))


def best_path(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Array:
    """The most probable path (*batch, T): backwards the best rest of the path, forwards the path itself."""

    def back(rest: Array, matrix: Array, evidence: Array) -> tuple[Array, tuple[Array, Array]]:
        ways = log(matrix) + rest[..., None, :]
        rest = evidence + ways.max(-1)
        return rest, (rest, ways.argmax(-1))

    def forth(state: Array, best: Array) -> tuple[Array, Array]:
        state = jnp.take_along_axis(best, state[..., None], -1)[..., 0]
        return state, state

    steps = jnp.moveaxis(evidence, -2, 0)
    rest, best = _scan(back, steps[-1], transition, moving, steps[:-1], reverse=True)[1]
    after = rest[0] if len(steps) > 1 else steps[-1]
    first = jnp.argmax(log(initial) + after, -1)
    path = jnp.concatenate([first[None], lax.scan(forth, first, best)[1]])
    return jnp.moveaxis(path, 0, -1)


def draw(initial: Array, transition: Array, moving: Moving, uniform: Array) -> Array:
    """Paths (*sample, *batch, T): inverse cumulative distributions at uniform (T, *sample, *batch)."""

    def invert(below: Array, uniform: Array) -> Array:
        return (below <= uniform[..., None]).sum(-1, dtype=jnp.int32)

    def step(state: Array, below: Array, uniform: Array) -> tuple[Array, Array]:
        rows = below[(*np.ix_(*map(np.arange, below.shape[:-2])), state)]
        state = invert(rows, uniform)
        return state, state

    first = invert(_cumulative(initial), uniform[0])
    transition = at_rest(transition, moving)
    _, rest = _scan(step, first, _cumulative(transition), None, uniform[1:])
    return jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, -1)


def at_rest(transition: Array, moving: Moving) -> Array:
    """Matrices with those of a chain that does not move in their places."""
    if moving is None:
        return transition
    return jnp.where(moving[..., None, None], transition, jnp.eye(transition.shape[-1], dtype=transition.dtype))


def log(x: Array) -> Array:
    """log x, with derivative 0 at 0: what is impossible pulls at nothing."""
    return jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))


def _scan(
    step: Callable, start: Any, transition: Array, moving: Moving, inputs: Any, reverse: bool = False
) -> tuple[Any, Any]:
    """The last carry and the outputs of step(carry, matrix, input), the steps on the first axis of inputs and
    outputs."""
    matrices = None if transition.shape[-3] == 1 else jnp.moveaxis(transition, -3, 0)
    moves = None if moving is None else jnp.moveaxis(moving, -1, 0)

    def at(carry: Any, one: tuple[Array | None, Moving, Any]) -> Any:
        matrix, moves, given = one
        if matrix is None:
            matrix = transition[..., 0, :, :]
        return step(carry, at_rest(matrix, moves), given)

    return lax.scan(at, start, (matrices, moves, inputs), reverse=reverse)


def _cumulative(probs: Array) -> Array:
    """The cumulative distribution, without the rounding that would give mass to a state of probability 0."""
    below = lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs, -1), 0), axis=probs.ndim - 1)
    return below / below[..., -1:]
