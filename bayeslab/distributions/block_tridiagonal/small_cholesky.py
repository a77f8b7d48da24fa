"""Cholesky factors of stacks of small matrices, and solves with them.

Up to a few rows they are written out number by number: a call of LAPACK in every step of a scan takes longer than the
step.
"""

import jax
import jax.numpy as jnp
from jax import Array

MAX_ROWS_WRITTEN_OUT = 4
"""Rows of a matrix up to which its numbers are written out one by one; code grows with their cube."""


def cholesky(matrix: Array) -> Array:
    """The lower factors of positive definite matrices (..., row, row)."""
    size = matrix.shape[-1]
    if size > MAX_ROWS_WRITTEN_OUT:
        return jnp.linalg.cholesky(matrix)
    rows: list[list[Array]] = []
    for i in range(size):
        row: list[Array] = []
        for j in range(i + 1):
            rest = matrix[..., i, j]
            other = rows[j] if j < i else row
            for k in range(j):
                rest = rest - row[k] * other[k]
            row.append(jnp.sqrt(rest) if i == j else rest / rows[j][j])
        rows.append(row)
    above = jnp.zeros_like(matrix[..., 0, 0])
    return jnp.stack([jnp.stack([*row, *[above] * (size - len(row))], -1) for row in rows], -2)


def solve_lower(factor: Array, right: Array) -> Array:
    """The solutions (..., row, column) of L x = right."""
    size = factor.shape[-1]
    if size > MAX_ROWS_WRITTEN_OUT:
        return jax.scipy.linalg.solve_triangular(factor, right, lower=True)
    solved: list[Array] = []
    for i in range(size):
        rest = right[..., i, :]
        for k in range(i):
            rest = rest - factor[..., i, k, None] * solved[k]
        solved.append(rest / factor[..., i, i, None])
    return jnp.stack(solved, -2)


def solve_lower_transposed(factor: Array, right: Array) -> Array:
    """The solutions (..., row, column) of L' x = right."""
    size = factor.shape[-1]
    if size > MAX_ROWS_WRITTEN_OUT:
        return jax.scipy.linalg.solve_triangular(factor, right, lower=True, trans=1)
    solved: list[Array] = []  # the last row first
    for i in range(size)[::-1]:
        rest = right[..., i, :]
        for k, value in zip(range(size)[::-1], solved, strict=False):
            rest = rest - factor[..., k, i, None] * value
        solved.append(rest / factor[..., i, i, None])
    return jnp.stack(solved[::-1], -2)
