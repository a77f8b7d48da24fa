"""Whether elements of a continuous site meet in the log joint: along which of its axes, and how far apart."""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.around import bit_masks
from bayeslab.elimination.terms import Term, sum_of_terms
from bayeslab.verification.points.probe_points import Point

NUM_FAR_MOVES, SHARE_MOVED = 32, 0.15
"""Moves that look for elements that meet though their steps are no neighbours, and the share of steps in each."""


@lru_cache(maxsize=1024)
def far_meetings(log_joint_terms: tuple[Term, ...], names: tuple[str, ...]) -> Callable[[Point], Array]:
    """A function of a point: whether elements of sites with the same steps meet that are not of neighbouring steps.

    The sites are moved at some steps, chosen at random, and the gradient is compared at those that are not near any.
    """
    site_terms = [term for term in log_joint_terms if not term.depends.isdisjoint(names)]

    def meetings(point: Point) -> Array:
        bound, values = point
        at = [values[name] for name in names]
        masks = np.random.default_rng(3).random((NUM_FAR_MOVES, len(at[0]))) < SHARE_MOVED
        padded = np.pad(masks, ((0, 0), (1, 1)))
        near = padded[:, :-2] | padded[:, 1:-1] | padded[:, 2:]

        def density(x: list[Array]) -> Array:
            return sum_of_terms(site_terms, bound, values | dict(zip(names, x, strict=True)))

        def by_step(which: np.ndarray, value: Array) -> np.ndarray:
            return which.reshape(*which.shape, *(1 for _ in value.shape[1:]))

        def are_met(value: Array, slope: Array, changes: Array) -> Array:
            far = jnp.where(by_step(near, value), 0.0, jnp.abs(changes))
            return (far > 1e-10 * (jnp.abs(changes).max() + jnp.abs(slope).max())).any()

        slopes, change = jax.linearize(jax.grad(density), at)
        moves = [
            jnp.where(by_step(masks, value), 1.0 + jnp.sin(1.0 + jnp.arange(value.size)).reshape(value.shape) ** 2, 0.0)
            for value in at
        ]
        met = [are_met(*each) for each in zip(at, slopes, jax.lax.map(change, moves), strict=True)]
        return jnp.stack(met).any()

    return meetings


@lru_cache(maxsize=1024)
def coupled_axes(log_joint_terms: tuple[Term, ...], name: str) -> Callable[[Point], Array]:
    """A function of a point: for every axis of a site, whether elements along it meet in the log joint, and whether
    their precisions differ, (2, axis).

    The site is moved at half of the positions, those with a given bit in their number, and the gradient of the log
    joint, a quadratic function, is compared at the others: any two positions differ in some bit. Moved by the same
    numbers at all positions of an axis, elements of one precision respond in the same way.
    """
    site_terms = [term for term in log_joint_terms if name in term.depends]

    def meetings(point: Point) -> Array:
        bound, values = point

        def density(x: Array) -> Array:
            return sum_of_terms(site_terms, bound, values | {name: x})

        value = values[name]
        axes, masks = bit_masks(value.shape)
        step = 1.0 + jnp.sin(1.0 + jnp.arange(value.size)).reshape(value.shape) ** 2
        alike = [jnp.broadcast_to(step.take(jnp.array([0]), axis), value.shape) for axis in range(value.ndim)]
        moves = jnp.concatenate([jnp.zeros((1, *value.shape)), jnp.where(masks, step, 0.0), *(x[None] for x in alike)])
        slope = jax.lax.map(jax.grad(density), value + moves)
        change = slope[1:] - slope[0]
        own = tuple(range(1, value.ndim + 1))
        scale = jnp.abs(change).max(own, keepdims=True) + jnp.abs(slope[0]).max()
        meets = (jnp.where(masks, 0.0, jnp.abs(change[: len(masks)])) > 1e-10 * scale[: len(masks)]).any(own)
        coupled = [[meets[np.array(axes) == axis].any() for axis in range(value.ndim)], []]
        for axis, response in enumerate(change[len(masks) :]):
            unlike = jnp.abs(response - response.take(jnp.array([0]), axis))
            coupled[1].append((unlike > 1e-10 * scale[len(masks) + axis]).any())
        return jnp.array(coupled, dtype=bool)

    return meetings
