"""Transport of points along a linear map of their truncated normal proposal: every point keeps its normal scores.

Inside, that is the linear map itself; at a side points are pressed together or drawn apart, and none leaves the simplex
or the cube. Volumes change by the ratio of the densities of both proposals.
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
"""Standard deviations that a centre is shifted by, to see how points follow."""


def carried(proposal: Cut, matrices: tuple[Array, Array], at: Array) -> tuple[Array, Array, Array]:
    """Points (coordinate, item), the log of the factor by which volumes shrink (item,), and whether the transport back,
    which has the matrices in the opposite order, leads to where they were (item,).

    Points go from the proposal mapped by the first matrix (coordinate, coordinate) to the one mapped by the second.
    On a simplex the columns of the matrices sum to 1.
    """
    (first_proposal, first_rotation), (second_proposal, second_rotation) = (
        _mapped(proposal, matrix) for matrix in matrices
    )
    old_scores = scores(first_proposal, at)
    rotated = lax.optimization_barrier(
        added(column * score for column, score in zip(first_rotation, old_scores.each, strict=True))
    )
    rotated = added(column * score for column, score in zip(second_rotation.swapaxes(0, 1), rotated, strict=True))
    fixed = near(shown(proposal, at)).any(0)
    new, new_scores = points(second_proposal, jnp.where(fixed, old_scores.each, rotated), at)
    return new, gained(old_scores, new_scores), leads_back(second_proposal, (at, new), (old_scores, new_scores))


def curvatures(proposal: Cut, at: Array) -> tuple[Array, Array]:
    """Minus the second derivatives (coordinate, coordinate, item) of the log density of a proposal without sides, and
    the part of them that is left where points follow the centre, with the normal scores that `at` has.

    On a simplex derivatives are by differences to the coordinate that is not drawn, which has zeros.
    """
    whole = inverse_of_product(jnp.moveaxis(proposal.scale, -1, 0).astype(jnp.result_type(float)))
    fixed_scores, sizes = scores(proposal, at).each, NEAR * jnp.einsum("iin->in", proposal.scale)

    def followed(one: Array) -> Array:
        shifted = proposal._replace(centre=proposal.centre + one[:, None].astype(fixed_scores.dtype) * sizes)
        return shown(proposal, points(shifted, fixed_scores, at)[0]) - shown(proposal, at)

    responses = lax.map(followed, jnp.eye(len(fixed_scores))) / sizes[:, None]
    remainder = jnp.einsum("ijn,kjn->ikn", whole, responses)
    return _everywhere(proposal, whole), _everywhere(proposal, (remainder + remainder.swapaxes(0, 1)) / 2)


def _mapped(proposal: Cut, matrix: Array) -> tuple[Cut, Array]:
    """The proposal of points that are multiplied by a matrix, and the rotation (coordinate, coordinate, item) from its
    scores back to those of this proposal, where no side is near."""
    linear = lax.optimization_barrier(
        matrix.astype(proposal.scale.dtype)[proposal.order[:, None], proposal.order[None]]
    )
    centre = jnp.zeros_like(proposal.centre)
    if proposal.simplex:
        linear, centre = linear[:-1, :-1] - linear[:-1, -1:], linear[:-1, -1]
    scale = lax.map(
        lambda row: added(coefficient * rows for coefficient, rows in zip(row, proposal.scale, strict=True)), linear
    )
    centre += added(
        coefficient * rows for coefficient, rows in zip(linear.swapaxes(0, 1), proposal.centre, strict=True)
    )
    lower, rotation = _triangular(lax.optimization_barrier(scale))
    return proposal._replace(centre=lax.optimization_barrier(centre), scale=lower), rotation


def _triangular(rows: Array) -> tuple[Array, Array]:
    """A lower factor and a rotation whose product the rows are: the LQ decomposition by Gram-Schmidt."""

    def orthogonalize(place: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, rotation = state
        row = rows[place]
        projections = lax.optimization_barrier(
            added(component * coefficient for component, coefficient in zip(rotation.swapaxes(0, 1), row, strict=True))
        )
        row -= added(coefficient * component for coefficient, component in zip(projections, rotation, strict=True))
        length = jnp.sqrt(added(row**2))
        return lower.at[place].set(projections.at[place].set(length)), rotation.at[place].set(row / length)

    return lax.fori_loop(0, len(rows), orthogonalize, (jnp.zeros_like(rows), jnp.zeros_like(rows)))


def _everywhere(proposal: Cut, matrix: Array) -> Array:
    """A matrix of drawn coordinates as one of all coordinates, in their own order."""
    num_missing = len(proposal.order) - len(proposal.centre)
    return ordered(jnp.pad(matrix, ((0, num_missing), (0, num_missing), (0, 0))), jnp.argsort(proposal.order, axis=0))
