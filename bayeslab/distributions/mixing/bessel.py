"""The logarithm of the modified Bessel function of the second kind, of any order."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

NUM_NODES = 200
"""Nodes of the trapezoidal rule, whose error falls geometrically with them: twelve digits."""
DROP = 40.0
"""Where the integrand is exp(-DROP) of its largest value, it ends."""
MIN_ARGUMENT = 1e-30
"""Smaller arguments count as this one."""


def log_bessel_k(order: Array, argument: Array) -> Array:
    """log K_p(z) for real p and z > 0: half of the integral of exp(p t - z cosh t) over the real line.

    As a function of t the integrand is log-concave, with its largest value where z sinh t = p. Derivatives by both
    arguments exist.
    """
    p, z = jnp.broadcast_arrays(jnp.abs(order), jnp.maximum(argument, MIN_ARGUMENT))
    radius = jnp.hypot(z, p)
    gap = z**2 / (radius + p)  # radius - p
    low, high = jax.lax.stop_gradient(_ends(p, gap, radius))
    step = (high - low) / (NUM_NODES - 1)
    s = low[..., None] + step[..., None] * np.arange(NUM_NODES)
    drop = 2 * gap[..., None] * jnp.sinh(s / 2) ** 2 + p[..., None] * (jnp.expm1(s) - s)
    top = p * jnp.arcsinh(p / z) - radius
    return top + jnp.log(step * jnp.exp(-drop).sum(-1) / 2)


def _ends(p: Array, gap: Array, radius: Array) -> tuple[Array, Array]:
    """How far on either side of its top the integrand reaches."""
    high = _acosh_of_one_more(DROP / radius)
    by_slope = jnp.where(p > 3 * DROP, jnp.sqrt(3 * DROP / jnp.maximum(p, 1.0)), DROP / jnp.maximum(p, 1e-3) + 1)
    low = jnp.minimum(by_slope, _acosh_of_one_more((DROP + p) / gap))
    return -low, high


def _acosh_of_one_more(x: Array) -> Array:
    """arcosh(1 + x)."""
    return jnp.log1p(x + jnp.sqrt(x) * jnp.sqrt(x + 2))
