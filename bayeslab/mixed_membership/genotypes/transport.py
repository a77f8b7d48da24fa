"""Points that follow proposals (`cut`) which are moved as a whole: each keeps its normal scores.

Inside, that is the linear map by which the proposal is moved; at a side points are pressed together or drawn apart, and
none leaves the simplex or the cube. Volumes change by the ratio of both densities.
"""

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.counts import added
from bayeslab.mixed_membership.genotypes.truncated_normal import (
    Cut,
    gained,
    inverse_of_product,
    leads_back,
    near,
    ordered,
    points,
    scores,
    shown,
)

NEAR = 0.05
"""Standard deviations that a centre is moved by, to see how points follow."""


def carried(proposal: Cut, matrices: tuple[Array, Array], at: Array) -> tuple[Array, Array, Array]:
    """Points (coordinate, item), the log of the density by which volumes shrink (item,), and whether the way back leads
    here (item,), which is by the matrices in the opposite order.

    From the proposal that the first matrix (coordinate, coordinate) makes of this one to that of the second. On a
    simplex their columns sum to 1.
    """
    (before, first), (after, second) = (_mapped(proposal, matrix) for matrix in matrices)
    known = scores(before, at)
    turned = lax.optimization_barrier(added(one * score for one, score in zip(first, known.each, strict=True)))
    turned = added(one * score for one, score in zip(second.swapaxes(0, 1), turned, strict=True))
    held = near(shown(proposal, at)).any(0)
    new, there = points(after, jnp.where(held, known.each, turned), at)
    return new, gained(known, there), leads_back(after, (at, new), (known, there))


def curvatures(proposal: Cut, at: Array) -> tuple[Array, Array]:
    """Minus the second derivatives (coordinate, coordinate, item) of the log density of a proposal without sides, and
    the part that is left where points follow its centre with the scores that they have, those of `at`. On a simplex
    they are those of differences to the coordinate that is not drawn, which has zeros."""
    whole = inverse_of_product(jnp.moveaxis(proposal.scale, -1, 0).astype(jnp.result_type(float)))
    known, sizes = scores(proposal, at).each, NEAR * jnp.einsum("iin->in", proposal.scale)

    def followed(one: Array) -> Array:
        there = proposal._replace(centre=proposal.centre + one[:, None].astype(known.dtype) * sizes)
        return shown(proposal, points(there, known, at)[0]) - shown(proposal, at)

    moved = lax.map(followed, jnp.eye(len(known))) / sizes[:, None]
    left = jnp.einsum("ijn,kjn->ikn", whole, moved)
    return _everywhere(proposal, whole), _everywhere(proposal, (left + left.swapaxes(0, 1)) / 2)


def _mapped(proposal: Cut, matrix: Array) -> tuple[Cut, Array]:
    """That of points that are multiplied by a matrix, and the rotation (coordinate, coordinate, item) that leads back
    from its scores to those of this one, where no side is near."""
    of = lax.optimization_barrier(matrix.astype(proposal.scale.dtype)[proposal.order[:, None], proposal.order[None]])
    centre = jnp.zeros_like(proposal.centre)
    if proposal.simplex:
        of, centre = of[:-1, :-1] - of[:-1, -1:], of[:-1, -1]
    scale = lax.map(lambda row: added(one * rows for one, rows in zip(row, proposal.scale, strict=True)), of)
    centre += added(one * rows for one, rows in zip(of.swapaxes(0, 1), proposal.centre, strict=True))
    lower, rotation = _triangular(lax.optimization_barrier(scale))
    return proposal._replace(centre=lax.optimization_barrier(centre), scale=lower), rotation


def _triangular(rows: Array) -> tuple[Array, Array]:
    """A lower factor and a rotation whose product they are: each row is made orthogonal to those before."""

    def one(place: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, apart = state
        row = rows[place]
        along = lax.optimization_barrier(
            added(each * part for each, part in zip(apart.swapaxes(0, 1), row, strict=True))
        )
        row -= added(part * each for part, each in zip(along, apart, strict=True))
        length = jnp.sqrt(added(row**2))
        return lower.at[place].set(along.at[place].set(length)), apart.at[place].set(row / length)

    return lax.fori_loop(0, len(rows), one, (jnp.zeros_like(rows), jnp.zeros_like(rows)))


def _everywhere(proposal: Cut, matrix: Array) -> Array:
    """Of all coordinates, in their own order."""
    more = len(proposal.order) - len(proposal.centre)
    return ordered(jnp.pad(matrix, ((0, more), (0, more), (0, 0))), jnp.argsort(proposal.order, axis=0))
