"""Numbers with exponents of their own: their range is checked, they are scaled, added, and turned into logarithms."""

from functools import reduce
from math import log

import jax.numpy as jnp
from jax import Array

from bayeslab.distributions.markov.lanes import MAX_ABS_EXPONENT
from bayeslab.distributions.markov.sequential import power_of_two


def is_safe(x: Array) -> Array:
    """Whether a number that began near 1 is far from the end of the range, so that others beside it kept theirs."""
    return x > 2.0 ** (-60 if x.dtype == jnp.float32 else -700)


def is_small(exponent: Array) -> Array:
    """Whether an exponent is so small that a sum of some of them fits into an integer."""
    return jnp.abs(exponent) < MAX_ABS_EXPONENT


def largest_entry(x: Array) -> Array:
    """The maximum over states, the first axis, taken one after the other."""
    return reduce(jnp.maximum, x[1:], x[0])


def sum_of_states(x: Array) -> Array:
    """The sum over states, the first axis, taken one after the other."""
    return sum((x[k] for k in range(1, len(x))), x[0])


def rescale(x: Array, exponent: Array) -> tuple[Array, Array]:
    """The numbers x 2^exponent (K, lane) over 2^top, and top, the largest exponent of those that are not zero."""
    top = largest_entry(jnp.where(x > 0, exponent, jnp.iinfo(jnp.int32).min // 2))
    return x * power_of_two(exponent - top, x.dtype), top


def log_scaled(x: Array, exponent: Array) -> Array:
    """The logarithm of x 2^exponent."""
    return jnp.log(x) + exponent.astype(x.dtype) * log(2)
