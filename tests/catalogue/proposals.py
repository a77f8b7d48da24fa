"""Proposals of shares in places that are easy to check."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from bayeslab.mixed_membership.genotypes.truncated_normal import (
    TruncatedNormal,
    centre,
    in_cube,
    on_simplex,
    points_of_scores,
    recentre,
)


def proposals() -> TruncatedNormal:
    """Within the simplex, across its sides, and far outside of it; the last is of no data at all."""
    at = np.array([[0.3, 0.3, 0.4], [0.01, 0.5, 0.49], [0.98, 0.01, 0.01], [0.2, 0.7, 0.1], [0.2, 0.3, 0.5]]).T
    root = np.random.default_rng(2).normal(size=(5, 3, 3)) * np.array([20, 30, 60, 30, 0])[:, None, None]
    curvature = np.moveaxis(root @ root.swapaxes(1, 2), 0, -1)
    proposal = on_simplex(jnp.asarray(at), jnp.asarray(curvature))
    return recentre(proposal, jnp.zeros((3, 5)).at[:, 3].set(jnp.array([0.0, 4000.0, -3000.0])))


def proposals_in_a_cube() -> TruncatedNormal:
    at = np.array([[0.3, 0.4], [0.01, 0.5], [0.98, 0.01], [0.2, 0.7], [0.2, 0.3]]).T
    root = np.random.default_rng(2).normal(size=(5, 2, 2)) * np.array([20, 30, 60, 30, 0])[:, None, None]
    proposal = in_cube(jnp.asarray(at), jnp.asarray(np.moveaxis(root @ root.swapaxes(1, 2), 0, -1)))
    return recentre(proposal, jnp.zeros((2, 5)).at[:, 3].set(jnp.array([400.0, -300.0])))


def in_the_middle(proposal: TruncatedNormal) -> Any:
    """The median of every coordinate, given those before."""
    return points_of_scores(proposal, 0 * proposal.centre, jnp.clip(centre(proposal), 0.1, 0.9))[0]
