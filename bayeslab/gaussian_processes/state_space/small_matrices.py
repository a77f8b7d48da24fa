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


def add_entries(left: Entry, right: Entry) -> Entry:
    """The sum of two entries."""
    return right if left is None else left if right is None else left + right


def multiply_entries(left: Entry, right: Entry) -> Entry:
    """The product of two entries."""
    if left is None or right is None:
        return None
    is_unit = [isinstance(entry, float) and entry == 1.0 for entry in (left, right)]
    return right if is_unit[0] else left if is_unit[1] else left * right


def dot(left: Iterable[Entry], right: Iterable[Entry]) -> Entry:
    return reduce(add_entries, map(multiply_entries, left, right))


def scaled(vector: Iterable[Entry], factor: Entry) -> Vector:
    return tuple(multiply_entries(entry, factor) for entry in vector)


def added(left: Iterable[Entry], right: Iterable[Entry]) -> Vector:
    return tuple(map(add_entries, left, right))


def scaled_matrix(matrix: Matrix, factor: Entry) -> Matrix:
    return tuple(scaled(row, factor) for row in matrix)


def added_matrix(left: Matrix, right: Matrix) -> Matrix:
    return tuple(map(added, left, right))


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def matvec(matrix: Matrix, vector: Vector) -> Vector:
    return tuple(dot(row, vector) for row in matrix)


def matmul(left: Matrix, right: Matrix) -> Matrix:
    columns = transposed(right)
    return tuple(tuple(dot(row, column) for column in columns) for row in left)


def outer(left: Vector, right: Vector) -> Matrix:
    return tuple(tuple(multiply_entries(entry, factor) for factor in right) for entry in left)


def sandwich(matrix: Matrix, symmetric: Matrix) -> Matrix:
    """The rows up to the diagonal of M S M', for S given by its rows up to the diagonal."""
    left = matmul(matrix, full(symmetric))
    return tuple(tuple(dot(left[row], matrix[column]) for column in range(row + 1)) for row in range(len(matrix)))


def full(symmetric: Matrix) -> Matrix:
    """All entries of a symmetric matrix that is given by its rows up to the diagonal."""
    indices = range(len(symmetric))
    return tuple(tuple(symmetric[max(row, other)][min(row, other)] for other in indices) for row in indices)


def lower(matrix: Matrix) -> Matrix:
    """The rows up to the diagonal of a matrix that is given by all its entries."""
    return tuple(row[: index + 1] for index, row in enumerate(matrix))


def block_diagonal(first: Matrix, second: Matrix) -> Matrix:
    """The block-diagonal matrix of two square ones, with all entries of each."""
    before, after = (None,) * len(first), (None,) * len(second)
    return tuple((*row, *after) for row in first) + tuple((*before, *row) for row in second)


def kronecker(left: Matrix, right: Matrix) -> Matrix:
    """The Kronecker product of two matrices, with all entries of each."""
    return tuple(
        tuple(multiply_entries(entry, factor) for entry in row for factor in factors)
        for row in left
        for factors in right
    )


def broadcast_entries(matrix: Matrix, shape: tuple[int, ...], dtype: Any) -> Matrix:
    """The matrix with every entry as an array of one shape, zeros included."""
    return tuple(
        tuple(jnp.broadcast_to(jnp.asarray(0.0 if entry is None else entry, dtype), shape) for entry in row)
        for row in matrix
    )


def as_array(matrix: Matrix, shape: tuple[int, ...], dtype: Any) -> Array:
    """The matrix as one array (*shape, row, column)."""
    return jnp.stack([jnp.stack(row, -1) for row in broadcast_entries(matrix, shape, dtype)], -2)
