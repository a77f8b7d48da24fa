"""Counts of origins, sums in an order that does not depend on how they are laid out, and sizes of steps."""

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import NamedTuple

from jax import Array

NUM_VECTOR_LANES = 64
"""Numbers that loops over loci or tokens treat as one vector."""


class Counts(NamedTuple):
    """Counts of origins: in individuals (individual, population), and with alleles (population, locus, allele)."""

    individuals: Array
    alleles: Array


def sequential_sum(terms: Iterable[Array]) -> Array:
    """The sum over the first axis, in its order, written out: loops over what is left are vectorised."""
    return reduce(add, terms)


def largest_divisor(number: int, max_divisor: int) -> int:
    """The largest divisor of a number that is not above `max_divisor`; at least 1."""
    return max(d for d in range(1, number + 1) if number % d == 0 and (d <= max_divisor or d == 1))
