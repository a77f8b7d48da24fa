"""Probe values of a site around its conditional, at which `bayeslab.verification.identity` tests a rule.

A likely value comes first, then the current one, which the caller has, then others. Those of a continuous site lie on
both sides of the middle, by steps of `bayeslab.verification.identity`; those of a discrete site are such that pairs of
elements have every pair of different choices.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Normal, biject_to

from bayeslab.distributions import MarkovChain
from bayeslab.programs.wrapped_distributions import innermost_distribution

MAX_COMPARED_VALUES = 1024
"""Values of a discrete site that are compared, at most."""
MAX_COMPARED_ELEMENTS = 10**6
"""Elements of all these values together, at most."""


def around_mean(q: Any, current: Array, steps: Any, prior: Any = None) -> Array:
    """Probe values around the mean of a Normal conditional.

    Steps are in units of the standard deviation that every element has given the others.
    """
    middle, scale = q.mean, q.scale if isinstance(q, Normal) else q.conditional_scale
    values = middle + scale * jnp.asarray(steps)
    return jnp.concatenate([middle[None], current.astype(middle.dtype).reshape(middle[None].shape), values])


def around_matrix(q: Any, middle: Array, current: Array, steps: Any) -> Array:
    """Probe values of a positive definite matrix: L A A' L' around L L' = middle, where A is triangular.

    The steps are those of the elements of A, relative to the concentration. They are clipped where A A' is far from
    singular: all beyond would be rounding.
    """
    size = middle.shape[-1]
    step = jnp.clip(jnp.asarray(steps) / jnp.sqrt(q.concentration)[..., None, None], -2.0, 2.0)
    root = jnp.linalg.cholesky(middle)
    factor = jnp.tril(step, -1) / math.sqrt(size) + jnp.eye(size) * jnp.exp(step)
    moved = root @ factor
    return jnp.concatenate(
        [middle[None], current.astype(moved.dtype).reshape(middle[None].shape), moved @ jnp.matrix_transpose(moved)]
    )


def around_middle(q: Any, middle: Array, current: Array, steps: Any) -> Array:
    """Probe values around a middle, by steps of unit length in the unconstrained space."""
    transform = biject_to(q.support)
    return _around_unconstrained(transform, transform.inv(middle), 1.0, current, steps)


def around_draws(q: Any, current: Array, steps: Any, prior: Any = None) -> Array:
    """Probe values around a draw, by steps in the unconstrained space as long as the distance of two draws."""
    transform = biject_to(q.support)
    centre, other = transform.inv(q.sample(jax.random.PRNGKey(1), (2,)))
    return _around_unconstrained(transform, centre, other - centre, current, steps)


def _around_unconstrained(transform: Any, centre: Array, radius: Any, current: Array, steps: Any) -> Array:
    free = jnp.asarray(steps).reshape(len(steps), -1)[:, : centre.size].reshape(len(steps), *centre.shape)
    values = transform(jnp.concatenate([centre[None], centre + jnp.clip(radius * free, -30.0, 30.0)]))
    return jnp.concatenate([values[:1], current.astype(values.dtype).reshape(values[:1].shape), values[1:]])


def around_choices(q: Any, current: Array, steps: Any, prior: Any = None) -> Array:
    """Probe values of an enumerated site: the first choice, the last, and mixed ones, element by element."""
    inner, shape = innermost_distribution(q), q.shape()
    likely = inner.choices[jnp.argmax(inner.logits, axis=-1)].reshape(shape)
    num_choices = len(inner.choices)
    ends = jnp.stack([jnp.zeros(shape, int), jnp.full(shape, num_choices - 1)])
    mixed = inner.choices[jnp.concatenate([ends, pairs_of_choices(shape, num_choices)])]
    return jnp.concatenate([likely[None], current[None].astype(likely.dtype), mixed])


def around_paths(q: Any, current: Array, steps: Any, prior: Any) -> Array:
    """Probe values of a discrete site with structure: draws of the conditional and of the prior.

    A chain of labels also has paths in which any two steps have every pair of states.
    """
    first, second = jax.random.split(jax.random.PRNGKey(1))
    values = jnp.concatenate([q.sample(first, (3,)), prior.sample(second, (4,))])
    if isinstance(q, MarkovChain):
        paths = pairs_of_choices(q.shape(), q.num_states)
        if q.lengths is not None:  # after its length a path stays where it is
            indices = jnp.minimum(jnp.arange(q.num_steps), q.lengths[..., None] - 1)
            paths = jnp.take_along_axis(paths, jnp.broadcast_to(indices, paths.shape), -1)
        values = jnp.concatenate([values, paths.astype(values.dtype)])
    return jnp.concatenate([values[:1], current[None].astype(values.dtype), values[1:]])


def around_joint(q: Any, current: Array, steps: Any, prior: Any = None) -> Array:
    """Probe values of discrete elements that meet: draws, and values in which any two have every pair of choices."""
    cards = np.asarray(q.cards)
    pairs = jnp.minimum(pairs_of_choices(q.event_shape, int(cards.max())), cards - 1)
    draws = q.sample(jax.random.PRNGKey(1), (4,))
    return jnp.concatenate([draws[:1], current[None], draws[1:], pairs.astype(draws.dtype)])


def pairs_of_choices(shape: tuple[int, ...], choices: int) -> Array:
    """Indices of choices (value, *shape), so that any two elements have every pair of different ones in some value.

    A factor may tie two elements at one pair of choices only. Where all pairs take too many values these are random.
    """
    num_pairs, size = choices * (choices - 1), max(math.prod(shape), 1)
    bits = sum((length - 1).bit_length() for length in shape)
    max_values = min(MAX_COMPARED_VALUES, MAX_COMPARED_ELEMENTS // size)
    if 0 < bits * num_pairs <= max_values:
        masks = bit_masks(shape)[1]
        first, step = np.divmod(np.arange(num_pairs), choices - 1)
        along = [-1, *(1 for _ in range(masks.ndim))]
        pair = first.reshape(along), step.reshape(along) + 1
        return jnp.asarray(((pair[0] + pair[1] * masks) % choices).reshape(-1, *shape))
    num_random = min(max(max_values, 4), 64) if bits else 4
    return jax.random.randint(jax.random.PRNGKey(1), (num_random, *shape), 0, choices)


def bit_masks(shape: tuple[int, ...]) -> tuple[list[int], np.ndarray]:
    """Masks (mask, *shape) of the elements whose position on an axis has a given bit, and the axis of every mask.

    There is one for every axis and every bit of its positions, so any two positions differ in some mask.
    """
    axes, masks = [], [np.zeros((0, *shape), bool)]
    for axis, size in enumerate(shape):
        positions = np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        for bit in range((size - 1).bit_length()):
            axes.append(axis)
            masks.append(np.broadcast_to((positions >> bit) & 1 == 1, shape)[None])
    return axes, np.concatenate(masks)
