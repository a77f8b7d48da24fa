"""Cholesky factors of covariance matrices, and the Normal log density through them, with derivatives by products.

Automatic differentiation through a Cholesky factorisation solves triangular systems with as many right-hand sides as
rows, at a tenth of the speed of a product on a CPU. Here all derivatives go through the inverted factor instead.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

MIN_RELATIVE_JITTER = 1e-15
"""The first jitter where a factorisation fails, relative to the mean of the diagonal that it is added to."""
JITTER_GROWTH = 10.0
"""The ratio of a jitter to the one before it, which failed too."""
MAX_JITTER_TRIES = 12
"""The largest number of jitters that are tried."""


@jax.custom_jvp
def factor(matrix: Array) -> Array:
    """The Cholesky factor L, lower triangular, with L L' = matrix + jitter I.

    jitter: the smallest that works of 0 and 1e-15, 1e-14, ... times the mean of the diagonal (from 1e-7 on in
        single precision).
    matrix: (row, row), symmetric; NaN comes back where none of them works.
    """
    size, eps = len(matrix), jnp.finfo(matrix.dtype).eps
    scale = jnp.trace(matrix) / size * jnp.maximum(MIN_RELATIVE_JITTER, eps)

    def attempt(jitter: Array) -> Array:
        return jnp.linalg.cholesky(matrix + jitter * jnp.eye(size, dtype=matrix.dtype), symmetrize_input=False)

    def try_next(state: tuple[Array, Array]) -> tuple[Array, Array]:
        num_tried, _ = state
        return num_tried + 1, attempt(scale * JITTER_GROWTH**num_tried)

    def fails(state: tuple[Array, Array]) -> Array:
        num_tried, lower = state
        return (num_tried < MAX_JITTER_TRIES) & ~jnp.isfinite(lower[-1, -1])

    return lax.while_loop(fails, try_next, (jnp.zeros((), matrix.dtype), attempt(jnp.zeros_like(scale))))[1]


@factor.defjvp
def _factor_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    lower = factor(*primals)
    inverse = triangular_inverse(lower)
    return lower, lower @ _tril_with_half_diagonal(inverse @ tangents[0] @ inverse.T)


@jax.custom_jvp
def whitener(matrix: Array) -> Array:
    """The inverse of the Cholesky factor of a matrix, with its jitter."""
    return triangular_inverse(factor(matrix))


@whitener.defjvp
def _whitener_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = whitener(*primals)
    return inverse, -_tril_with_half_diagonal(inverse @ tangents[0] @ inverse.T) @ inverse


@jax.custom_jvp
def normal_log_density(matrix: Array, vector: Array) -> Array:
    """The Normal log density -(vector' matrix^-1 vector + log|matrix|) / 2.

    It is without its constant of -log(2 pi) / 2 a row.
    """
    lower = factor(matrix)
    white = solve_triangular(lower, vector, lower=True)
    return -white @ white / 2 - jnp.log(jnp.diagonal(lower)).sum()


@normal_log_density.defjvp
def _normal_log_density_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    matrix, vector = primals
    inverse = whitener(matrix)
    white = inverse @ vector
    solved = inverse.T @ white
    slope = (jnp.outer(solved, solved) - gram(inverse)) / 2
    value = -white @ white / 2 + jnp.log(jnp.diagonal(inverse)).sum()
    return value, (slope * tangents[0]).sum() - solved @ tangents[1]


def triangular_inverse(lower: Array, base: int = 128) -> Array:
    """The inverse of a lower triangular matrix, by halves, so that nearly all of the work is products."""
    size = len(lower)
    if size <= base:
        return solve_triangular(lower, jnp.eye(size, dtype=lower.dtype), lower=True)
    half = size // 2
    top, bottom = (triangular_inverse(block, base) for block in (lower[:half, :half], lower[half:, half:]))
    corner = -(bottom @ (lower[half:, :half] @ top))
    return jnp.block([[top, jnp.zeros((half, size - half), lower.dtype)], [corner, bottom]])


def gram(lower: Array, base: int = 128) -> Array:
    """The product X' X of a lower triangular X, by blocks without most of its zeros."""
    size = len(lower)
    if size <= base:
        return lower.T @ lower
    half = size // 2
    top, corner, bottom = lower[:half, :half], lower[half:, :half], lower[half:, half:]
    corner_product = bottom.T @ corner
    return jnp.block([[gram(top, base) + corner.T @ corner, corner_product.T], [corner_product, gram(bottom, base)]])


def _tril_with_half_diagonal(matrix: Array) -> Array:
    """The lower triangle with half of the diagonal."""
    return jnp.tril(matrix) - jnp.diag(jnp.diagonal(matrix)) / 2
