"""What representations take and return of each value of a process."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Moments(NamedTuple):
    """mean, variance: of every value, (row,)."""

    mean: Array
    variance: Array


def scaled(precision: Array, linear: Array) -> tuple[Array, Array]:
    """Of evidence about every value, the root w of its precision and linear / w, which is 0 where nothing is known."""
    known = precision > 0
    root = jnp.where(known, jnp.sqrt(jnp.where(known, precision, 1.0)), 0.0)
    return root, jnp.where(known, linear / jnp.where(known, root, 1.0), 0.0)
