"""Fourier coefficients of the periodic kernel exp(-gamma sin^2(pi r / period)), which are Bessel functions.

NumPyro's need TensorFlow Probability and overflow for a large gamma.
"""

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import i0e

NUM_EXTRA_TERMS = 50
"""The number of terms beyond those wanted: the backward recursion starts there."""


def sqrt_fourier_coefficients(gamma: Array, count: int) -> Array:
    """The square roots (count,) of the coefficients c_j of the kernel as the sum of c_j cos(2 pi j r / period).

    c_0 is exp(-a) I_0(a), the others are 2 exp(-a) I_j(a), with a = gamma / 2. The ratios I_j / I_{j - 1} come from
    their continued fraction, backwards, which is stable and keeps them positive (Gautschi 1967; its start: Amos 1974).
    """
    a = gamma / 2
    order = jnp.arange(1, count + NUM_EXTRA_TERMS, dtype=a.dtype)
    last = order[-1] + 0.5

    def previous_ratio(ratio: Array, j: Array) -> tuple[Array, Array]:
        return (previous := a / (2 * j + a * ratio)), previous

    _, ratios = lax.scan(previous_ratio, a / (last + jnp.sqrt(last**2 + a**2)), order, reverse=True)
    log_first = jnp.log(i0e(a))
    log_others = log_first + jnp.log(2.0).astype(a.dtype) + jnp.cumsum(jnp.log(ratios[: count - 1]))
    return jnp.exp(jnp.concatenate([log_first[None], log_others]) / 2)
