"""The density of Polya-Gamma variables without tilt: a series for concentration 1, for others an inverse transform."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

NUM_NODES = 40
"""Nodes of the contour, on one side of the real axis: twelve digits."""
NUM_WIDTHS = 9.0
"""Length of the contour in widths of the integrand, where that is shorter than all of it."""
MIN_SCALE = 6.0
"""Scale of the contour times x, at least: a smaller one has all of the integral near its ends."""
POLE = np.pi**2 / 2
"""The transform has its first singularity at minus this."""


SPLIT = 0.16
"""Where one of two series for concentration 1 takes over from the other."""
NUM_TERMS = 5
"""Terms of either series; further ones are below 1e-17 of the first."""


def log_density_of_one(x: Array) -> Array:
    """The log density for concentration 1, the sum of (-1)^n (2 n + 1) exp(-(2 n + 1)^2 / (8 x)) / sqrt(2 pi x^3), or
    of pi (-1)^n (4 n + 2) exp(-(2 n + 1)^2 pi^2 x / 2)."""
    total = jnp.zeros_like(x)
    for n in range(NUM_TERMS):
        weight = 4.0 * n * (n + 1)  # (2 n + 1)^2 - 1
        total += (-1) ** n * (2 * n + 1) * jnp.exp(-weight * jnp.where(x > SPLIT, np.pi**2 * x / 2, 1 / (8 * x)))
    right = np.log(2 * np.pi) - np.pi**2 * x / 2
    left = -(np.log(2 * np.pi) + 3 * jnp.log(x)) / 2 - 1 / (8 * x)
    return jnp.where(x > SPLIT, right, left) + jnp.log(total)


def log_untilted_density(x: Array, b: Array) -> Array:
    """log of the density at x > 0 whose Laplace transform is cosh(sqrt(t / 2))^-b.

    The contour is Talbot's, t = -POLE + scale (theta cot theta + i theta), whose scale brings it close to the saddle
    point of the integrand: b / x far in the right tail, b^2 / (8 x^2) in the left one (Abate and Valko 2004).
    """
    scale = jax.lax.stop_gradient(jnp.maximum(b / x + b**2 / (8 * x**2), MIN_SCALE / x))
    width = jax.lax.stop_gradient(1 / jnp.sqrt(b + b**2 / (16 * x)))
    step = jnp.minimum(np.pi, NUM_WIDTHS * width) / NUM_NODES
    theta = step[..., None] * (np.arange(NUM_NODES) + 0.5)
    cotangent = 1 / jnp.tan(theta)
    slope = theta + (theta * cotangent - 1) * cotangent
    start = -POLE + scale
    t = -POLE + scale[..., None] * (theta * cotangent + 1j * theta)
    height = x * start - b * _log_cosh_root(start.astype(t.dtype)).real
    exponent = x[..., None] * t - b[..., None] * _log_cosh_root(t) - height[..., None]
    integral = (jnp.exp(exponent) * (1 + 1j * slope)).real.sum(-1) * step
    return height + jnp.log(scale * integral / np.pi)


def _log_cosh_root(t: Array) -> Array:
    """log cosh(sqrt(t / 2)), continuous off the negative axis beyond the first singularity."""
    root = jnp.sqrt(t / 2)
    return root + jnp.log1p(jnp.exp(-2 * root)) - np.log(2)
