"""Integrals of exp(h' x - x' P x / 2) where P has blocks for neighbouring steps alone, with derivatives in closed form.

Derivatives through the recursion that eliminates the steps take several times as long as they do from covariances: d
log|P| is the sum of the covariances of all neighbours times the changes of their blocks.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.distributions.block_tridiagonal.small_cholesky import cholesky, solve_lower, solve_lower_transposed


class Factorised(NamedTuple):
    """What is left of every step when those before it are integrated out.

    factor: Cholesky factors of their precisions (step, d, d). following: L^-1 of a step times its block with the next
    one (step - 1, d, d). whitened: L^-1 of what is left of the linear part (step, d).
    """

    factor: Array
    following: Array
    whitened: Array


class Integral(NamedTuple):
    """What the integral of exp(h' x - x' P x / 2) is made of, and how much of it is rounding.

    square: h' P^-1 h. log_determinant: of P. smallest_pivot: the smallest share of the precision of a number, given all
    others, that is left of it once those that are eliminated before it are gone; it has no derivative.
    """

    square: Array
    log_determinant: Array
    smallest_pivot: Array


@jax.custom_jvp
def integral(own: Array, following: Array, linear: Array) -> Integral:
    """The integral over all steps.

    own: the blocks of every step (step, d, d). following: of a step and the one before it (step - 1, d, d).
    linear: h (step, d).
    """
    return _results(own, _factorised(own, following, linear))


@integral.defjvp
def _change(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Any, Any]:
    parts = _factorised(*primals)
    covariances, crossed, solution = _covariances_and_solution(parts)
    own, following, linear = tangents
    log_determinant = (covariances * own).sum() + 2 * (crossed.mT * following).sum()
    of_own = jnp.einsum("ti,tij,tj->", solution, own, solution)
    of_following = jnp.einsum("ti,tij,tj->", solution[1:], following, solution[:-1])
    square = 2 * (solution * linear).sum() - of_own - 2 * of_following
    results = _results(primals[0], parts)
    return results, Integral(square, log_determinant, jnp.zeros_like(results.smallest_pivot))


def solution(own: Array, following: Array, linear: Array) -> Array:
    """P^-1 h (step, d)."""
    return _covariances_and_solution(_factorised(own, following, linear))[2]


def _results(own: Array, parts: Factorised) -> Integral:
    pivots, whole = (jnp.diagonal(blocks, axis1=-2, axis2=-1) for blocks in (parts.factor, own))
    return Integral((parts.whitened**2).sum(), 2 * jnp.log(pivots).sum(), (pivots**2 / whole).min())


def _factorised(own: Array, following: Array, linear: Array) -> Factorised:
    """The elimination of all steps, the first one first."""

    def step(left: tuple[Array, Array], now: tuple[Array, Array, Array]) -> Any:
        (precision, pull), (block, between, own_pull) = left, now
        factor = cholesky(precision)
        towards, whitened = solve_lower(factor, between.mT), solve_lower(factor, pull[:, None])[:, 0]
        return (block - towards.mT @ towards, own_pull - towards.mT @ whitened), Factorised(factor, towards, whitened)

    (precision, pull), before = jax.lax.scan(step, (own[0], linear[0]), (own[1:], following, linear[1:]))
    last = cholesky(precision)
    whitened = solve_lower(last, pull[:, None])[:, 0]
    factors, all_whitened = jnp.concatenate([before.factor, last[None]]), [before.whitened, whitened[None]]
    return Factorised(factors, before.following, jnp.concatenate(all_whitened))


def _covariances_and_solution(parts: Factorised) -> tuple[Array, Array, Array]:
    """Covariances of every step (step, d, d), those with the next one (step - 1, d, d), and P^-1 h (step, d)."""
    identity = jnp.broadcast_to(jnp.eye(parts.factor.shape[-1], dtype=parts.factor.dtype), parts.factor.shape)
    inverse = solve_lower(parts.factor, identity)
    given = inverse.mT @ inverse
    gains = solve_lower_transposed(parts.factor[:-1], parts.following)
    offsets = solve_lower_transposed(parts.factor, parts.whitened[..., None])[..., 0]

    def step(later: tuple[Array, Array], now: tuple[Array, Array, Array]) -> Any:
        (covariance, value), (own, gain, offset) = later, now
        crossed = -gain @ covariance
        both = own - crossed @ gain.mT, offset - gain @ value
        return both, (*both, crossed)

    last = given[-1], offsets[-1]
    _, (covariances, values, crossed) = jax.lax.scan(step, last, (given[:-1], gains, offsets[:-1]), reverse=True)
    return jnp.concatenate([covariances, last[0][None]]), crossed, jnp.concatenate([values, last[1][None]])
