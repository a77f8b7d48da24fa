"""Matrices of a few rows as tuples of entries, so that loops over steps do arithmetic on scalars alone.

An entry is an array over the steps, or None where it is 0, or 1.0 where it is 1: no work is done for those two. Of
symmetric matrices only the rows up to the diagonal are kept.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import Array

Entry = Any
Vector = tuple[Entry, ...]
Matrix = tuple[Vector, ...]


def plus(one: Entry, other: Entry) -> Entry:
    """The sum of two entries."""
    return other if one is None else one if other is None else one + other


def times(one: Entry, other: Entry) -> Entry:
    """The product of two entries."""
    if one is None or other is None:
        return None
    is_unit = [isinstance(entry, float) and entry == 1.0 for entry in (one, other)]
    return other if is_unit[0] else one if is_unit[1] else one * other


def dot(one: Iterable[Entry], other: Iterable[Entry]) -> Entry:
    return reduce(plus, map(times, one, other))


def scaled(vector: Iterable[Entry], factor: Entry) -> Vector:
    return tuple(times(entry, factor) for entry in vector)


def added(one: Iterable[Entry], other: Iterable[Entry]) -> Vector:
    return tuple(map(plus, one, other))


def scaled_matrix(matrix: Matrix, factor: Entry) -> Matrix:
    return tuple(scaled(row, factor) for row in matrix)


def added_matrix(one: Matrix, other: Matrix) -> Matrix:
    return tuple(map(added, one, other))


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def applied(matrix: Matrix, vector: Vector) -> Vector:
    return tuple(dot(row, vector) for row in matrix)


def product(one: Matrix, other: Matrix) -> Matrix:
    columns = transposed(other)
    return tuple(tuple(dot(row, column) for column in columns) for row in one)


def outer(one: Vector, other: Vector) -> Matrix:
    return tuple(tuple(times(entry, factor) for factor in other) for entry in one)


def sandwich(matrix: Matrix, symmetric: Matrix) -> Matrix:
    """The rows up to the diagonal of M S M', for S given by its rows up to the diagonal."""
    left = product(matrix, full(symmetric))
    return tuple(tuple(dot(left[row], matrix[column]) for column in range(row + 1)) for row in range(len(matrix)))


def full(symmetric: Matrix) -> Matrix:
    """All entries of a symmetric matrix that is given by its rows up to the diagonal."""
    indices = range(len(symmetric))
    return tuple(tuple(symmetric[max(row, other)][min(row, other)] for other in indices) for row in indices)


def lower(matrix: Matrix) -> Matrix:
    """The rows up to the diagonal of a matrix that is given by all its entries."""
    return tuple(row[: index + 1] for index, row in enumerate(matrix))


def block_diagonal(one: Matrix, other: Matrix) -> Matrix:
    """The block-diagonal matrix of two square ones, with all entries of each."""
    before, after = (None,) * len(one), (None,) * len(other)
    return tuple((*row, *after) for row in one) + tuple((*before, *row) for row in other)


def kronecker(one: Matrix, other: Matrix) -> Matrix:
    """The Kronecker product of two matrices, with all entries of each."""
    return tuple(tuple(times(entry, factor) for entry in row for factor in factors) for row in one for factors in other)


def filled(matrix: Matrix, shape: tuple[int, ...], dtype: Any) -> Matrix:
    """The matrix with every entry as an array of one shape, zeros included."""
    return tuple(
        tuple(jnp.broadcast_to(jnp.asarray(0.0 if entry is None else entry, dtype), shape) for entry in row)
        for row in matrix
    )


def stacked(matrix: Matrix, shape: tuple[int, ...], dtype: Any) -> Array:
    """The matrix as one array (*shape, row, column)."""
    return jnp.stack([jnp.stack(row, -1) for row in filled(matrix, shape, dtype)], -2)
