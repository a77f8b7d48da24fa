"""What representations return of each value of a process."""

from typing import NamedTuple

from jax import Array


class Moments(NamedTuple):
    """mean, variance: of every value, (row,)."""

    mean: Array
    variance: Array
