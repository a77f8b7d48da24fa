"""What representations of a process take and return about each of its values."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Moments(NamedTuple):
    """The mean and the variance of every value, each (row,)."""

    mean: Array
    variance: Array


def whitened_observations(precision: Array, linear: Array) -> tuple[Array, Array]:
    """The information pairs as observations target ~ N(w g, 1): the root w and the target.

    w is the root of the precision and the target linear / w; both are 0 where the precision is.
    """
    known = precision > 0
    root = jnp.where(known, jnp.sqrt(jnp.where(known, precision, 1.0)), 0.0)
    return root, jnp.where(known, linear / jnp.where(known, root, 1.0), 0.0)
