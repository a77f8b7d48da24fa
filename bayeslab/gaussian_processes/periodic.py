"""Fourier coefficients of the periodic kernel exp(-gamma sin^2(pi r / period)), which are Bessel functions.

NumPyro's need TensorFlow Probability and overflow for a large gamma.
"""

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import i0e

MORE = 50
"""Terms beyond those wanted, where the recursion starts."""


def fourier_roots(gamma: Array, count: int) -> Array:
    """Roots (count,) of the coefficients c_j of the kernel as the sum of c_j cos(2 pi j r / period).

    c_0 is exp(-a) I_0(a), the others are 2 exp(-a) I_j(a), with a = gamma / 2. The ratios I_j / I_{j - 1} come from
    their continued fraction, backwards, which is stable and keeps them positive (Gautschi 1967; its start: Amos 1974).
    """
    a = gamma / 2
    order = jnp.arange(1, count + MORE, dtype=a.dtype)
    last = order[-1] + 0.5

    def before(ratio: Array, j: Array) -> tuple[Array, Array]:
        return (found := a / (2 * j + a * ratio)), found

    _, ratios = lax.scan(before, a / (last + jnp.sqrt(last**2 + a**2)), order, reverse=True)
    first = jnp.log(i0e(a))
    rest = first + jnp.log(2.0).astype(a.dtype) + jnp.cumsum(jnp.log(ratios[: count - 1]))
    return jnp.exp(jnp.concatenate([first[None], rest]) / 2)
