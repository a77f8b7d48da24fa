"""Transport of points along a linear map of their truncated normal proposal: every point keeps its normal scores.

Inside, that is the linear map itself; at a side points are pressed together or drawn apart, and none leaves the simplex
or the cube. Volumes change by the ratio of the densities of both proposals.
"""

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.mixed_membership.counts import sequential_sum
from bayeslab.mixed_membership.genotypes.truncated_normal import (
    TruncatedNormal,
    drawn_coordinates,
    inverse_of_cholesky,
    is_near_side,
    is_reversible,
    log_density_ratio,
    points_of_scores,
    scores_of_points,
    take_in_order,
)

CENTRE_SHIFT_IN_SDS = 0.05
"""Standard deviations that a centre is shifted by, to see how points follow."""


def transport_points(
    proposal: TruncatedNormal, matrices: tuple[Array, Array], position: Array
) -> tuple[Array, Array, Array]:
    """Points (coordinate, item), the log of the factor by which volumes shrink (item,), and whether the transport back,
    which has the matrices in the opposite order, leads to where they were (item,).

    Points go from the proposal mapped by the first matrix (coordinate, coordinate) to the one mapped by the second.
    On a simplex the columns of the matrices sum to 1.
    """
    (first_proposal, first_rotation), (second_proposal, second_rotation) = (
        _map_proposal(proposal, matrix) for matrix in matrices
    )
    old_scores = scores_of_points(first_proposal, position)
    rotated = lax.optimization_barrier(
        sequential_sum(column * score for column, score in zip(first_rotation, old_scores.each, strict=True))
    )
    rotated = sequential_sum(
        column * score for column, score in zip(second_rotation.swapaxes(0, 1), rotated, strict=True)
    )
    fixed = is_near_side(drawn_coordinates(proposal, position)).any(0)
    new, new_scores = points_of_scores(second_proposal, jnp.where(fixed, old_scores.each, rotated), position)
    return (
        new,
        log_density_ratio(old_scores, new_scores),
        is_reversible(second_proposal, (position, new), (old_scores, new_scores)),
    )


def proposal_curvatures(proposal: TruncatedNormal, position: Array) -> tuple[Array, Array]:
    """Minus the second derivatives (coordinate, coordinate, item) of the log density of a proposal without sides, and
    the part of them that is left where points follow the centre, with the normal scores that `position` has.

    On a simplex derivatives are by differences to the coordinate that is not drawn, which has zeros.
    """
    whole = inverse_of_cholesky(jnp.moveaxis(proposal.scale, -1, 0).astype(jnp.result_type(float)))
    fixed_scores, sizes = (
        scores_of_points(proposal, position).each,
        CENTRE_SHIFT_IN_SDS * jnp.einsum("iin->in", proposal.scale),
    )

    def followed(one: Array) -> Array:
        shifted = proposal._replace(centre=proposal.centre + one[:, None].astype(fixed_scores.dtype) * sizes)
        return drawn_coordinates(proposal, points_of_scores(shifted, fixed_scores, position)[0]) - drawn_coordinates(
            proposal, position
        )

    responses = lax.map(followed, jnp.eye(len(fixed_scores))) / sizes[:, None]
    remainder = jnp.einsum("ijn,kjn->ikn", whole, responses)
    return _over_all_coordinates(proposal, whole), _over_all_coordinates(
        proposal, (remainder + remainder.swapaxes(0, 1)) / 2
    )


def _map_proposal(proposal: TruncatedNormal, matrix: Array) -> tuple[TruncatedNormal, Array]:
    """The proposal of points that are multiplied by a matrix, and the rotation (coordinate, coordinate, item) from its
    scores back to those of this proposal, where no side is near."""
    linear = lax.optimization_barrier(
        matrix.astype(proposal.scale.dtype)[proposal.order[:, None], proposal.order[None]]
    )
    centre = jnp.zeros_like(proposal.centre)
    if proposal.simplex:
        linear, centre = linear[:-1, :-1] - linear[:-1, -1:], linear[:-1, -1]
    scale = lax.map(
        lambda row: sequential_sum(coefficient * rows for coefficient, rows in zip(row, proposal.scale, strict=True)),
        linear,
    )
    centre += sequential_sum(
        coefficient * rows for coefficient, rows in zip(linear.swapaxes(0, 1), proposal.centre, strict=True)
    )
    lower, rotation = _lower_and_rotation(lax.optimization_barrier(scale))
    return proposal._replace(centre=lax.optimization_barrier(centre), scale=lower), rotation


def _lower_and_rotation(rows: Array) -> tuple[Array, Array]:
    """A lower factor and a rotation whose product the rows are: the LQ decomposition by Gram-Schmidt."""

    def orthogonalize(place: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, rotation = state
        row = rows[place]
        projections = lax.optimization_barrier(
            sequential_sum(
                component * coefficient for component, coefficient in zip(rotation.swapaxes(0, 1), row, strict=True)
            )
        )
        row -= sequential_sum(
            coefficient * component for coefficient, component in zip(projections, rotation, strict=True)
        )
        length = jnp.sqrt(sequential_sum(row**2))
        return lower.at[place].set(projections.at[place].set(length)), rotation.at[place].set(row / length)

    return lax.fori_loop(0, len(rows), orthogonalize, (jnp.zeros_like(rows), jnp.zeros_like(rows)))


def _over_all_coordinates(proposal: TruncatedNormal, matrix: Array) -> Array:
    """A matrix of drawn coordinates as one of all coordinates, in their own order."""
    num_missing = len(proposal.order) - len(proposal.centre)
    return take_in_order(
        jnp.pad(matrix, ((0, num_missing), (0, num_missing), (0, 0))), jnp.argsort(proposal.order, axis=0)
    )
