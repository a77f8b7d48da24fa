"""Probabilities of a standard normal variate, in intervals and below points, with all digits where they are small."""

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtr
from jax.scipy.stats import norm

MIN_DIFFERENCE_WIDTH_IN_SDS = 0.1
"""Width of an interval, in standard deviations, from which on the difference of two probabilities has enough digits."""


def interval_probabilities(*intervals: tuple[Array, Array]) -> list[Array]:
    """The normal probabilities of intervals, given their middles and widths, to as many digits where they are small."""
    ends = [jnp.where(middle < 0, 1, -1) * middle + sign * width / 2 for middle, width in intervals for sign in (-1, 1)]
    cumulative = probabilities_below(*ends)
    return [
        jnp.where(
            is_narrow(middle, width),
            norm.pdf(middle) * width * (1 + (middle**2 - 1) * width**2 / 24),
            cumulative[2 * number + 1] - cumulative[2 * number],
        )
        for number, (middle, width) in enumerate(intervals)
    ]


def probabilities_below(*points: Array) -> Array:
    """The normal probabilities below several points of one shape, (point, ...): one piece of code, which is long."""
    return ndtr(jnp.stack(points))


def is_narrow(middle: Array, width: Array) -> Array:
    """Whether the normal density hardly changes within an interval of this width at a point."""
    return width * jnp.maximum(jnp.abs(middle), 1.0) < MIN_DIFFERENCE_WIDTH_IN_SDS
