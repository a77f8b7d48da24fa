"""Values of a site around its conditional, at which laws are asked.

A likely value comes first, then the one that the caller has, then others: of a continuous site on both sides of the
middle, by steps of `bayeslab.verification.identity.noise_for`; of a discrete one so that pairs of elements have every
pair of different choices.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Normal, biject_to

from bayeslab.distributions import MarkovChain
from bayeslab.programs.program import unwrapped

MAX_VALUES, MAX_ELEMENTS = 1024, 10**6
"""Of a discrete site that are compared, at most."""


def around_mean(q: Any, here: Array, move: Any, prior: Any = None) -> Array:
    """Of a Normal conditional, whose elements have standard deviations given the others."""
    middle, scale = q.mean, q.scale if isinstance(q, Normal) else q.conditional_scale
    at = middle + scale * jnp.asarray(move)
    return jnp.concatenate([middle[None], here.astype(middle.dtype).reshape(middle[None].shape), at])


def around_matrix(q: Any, middle: Array, here: Array, move: Any) -> Array:
    """Of a positive definite matrix: L A A' L' around L L' = middle, where A is triangular.

    move: of the elements of A, relative to the concentration. They are held where A A' is far from singular: all beyond
    would be rounding.
    """
    size = middle.shape[-1]
    step = jnp.clip(jnp.asarray(move) / jnp.sqrt(q.concentration)[..., None, None], -2.0, 2.0)
    root = jnp.linalg.cholesky(middle)
    factor = jnp.tril(step, -1) / math.sqrt(size) + jnp.eye(size) * jnp.exp(step)
    moved = root @ factor
    return jnp.concatenate(
        [middle[None], here.astype(moved.dtype).reshape(middle[None].shape), moved @ jnp.matrix_transpose(moved)]
    )


def around_middle(q: Any, middle: Array, here: Array, move: Any) -> Array:
    """In the unconstrained space, by units of it."""
    transform = biject_to(q.support)
    return _unconstrained(transform, transform.inv(middle), 1.0, here, move)


def around_draws(q: Any, here: Array, move: Any, prior: Any = None) -> Array:
    """In the unconstrained space, by the distance of two draws."""
    transform = biject_to(q.support)
    centre, other = transform.inv(q.sample(jax.random.PRNGKey(1), (2,)))
    return _unconstrained(transform, centre, other - centre, here, move)


def _unconstrained(transform: Any, centre: Array, radius: Any, here: Array, move: Any) -> Array:
    free = jnp.asarray(move).reshape(len(move), -1)[:, : centre.size].reshape(len(move), *centre.shape)
    at = transform(jnp.concatenate([centre[None], centre + jnp.clip(radius * free, -30.0, 30.0)]))
    return jnp.concatenate([at[:1], here.astype(at.dtype).reshape(at[:1].shape), at[1:]])


def around_choices(q: Any, here: Array, move: Any, prior: Any = None) -> Array:
    """Of an enumerated site: the first choice, the last, and mixed ones, element by element."""
    inner, shape = unwrapped(q), q.shape()
    likely = inner.choices[jnp.argmax(inner.logits, axis=-1)].reshape(shape)
    number = len(inner.choices)
    ends = jnp.stack([jnp.zeros(shape, int), jnp.full(shape, number - 1)])
    every = inner.choices[jnp.concatenate([ends, pairs_of_choices(shape, number)])]
    return jnp.concatenate([likely[None], here[None].astype(likely.dtype), every])


def around_paths(q: Any, here: Array, move: Any, prior: Any) -> Array:
    """Of a discrete site with structure: draws of the conditional and of the prior; of a chain of labels, paths so that
    any two steps have every pair of states."""
    first, second = jax.random.split(jax.random.PRNGKey(1))
    drawn = jnp.concatenate([q.sample(first, (3,)), prior.sample(second, (4,))])
    if isinstance(q, MarkovChain):
        paths = pairs_of_choices(q.shape(), q.num_states)
        if q.lengths is not None:  # after its length a path stays where it is
            at = jnp.minimum(jnp.arange(q.num_steps), q.lengths[..., None] - 1)
            paths = jnp.take_along_axis(paths, jnp.broadcast_to(at, paths.shape), -1)
        drawn = jnp.concatenate([drawn, paths.astype(drawn.dtype)])
    return jnp.concatenate([drawn[:1], here[None].astype(drawn.dtype), drawn[1:]])


def pairs_of_choices(shape: tuple[int, ...], choices: int) -> Array:
    """Numbers of choices (value, *shape), so that any two elements have every pair of different ones in some value.

    What two elements say together may be said of one pair of choices only. Where that takes too many values they are
    random.
    """
    number, size = choices * (choices - 1), max(math.prod(shape), 1)
    bits = sum((length - 1).bit_length() for length in shape)
    most = min(MAX_VALUES, MAX_ELEMENTS // size)
    if 0 < bits * number <= most:
        moved = halves(shape)[1]
        first, step = np.divmod(np.arange(number), choices - 1)
        along = [-1, *(1 for _ in range(moved.ndim))]
        both = first.reshape(along), step.reshape(along) + 1
        return jnp.asarray(((both[0] + both[1] * moved) % choices).reshape(-1, *shape))
    mixed = min(max(most, 4), 64) if bits else 4
    return jax.random.randint(jax.random.PRNGKey(1), (mixed, *shape), 0, choices)


def halves(shape: tuple[int, ...]) -> tuple[list[int], np.ndarray]:
    """For every axis and every bit of its places: the axis, and which elements are at a place with the bit."""
    axes, masks = [], [np.zeros((0, *shape), bool)]
    for axis, size in enumerate(shape):
        place = np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        for bit in range((size - 1).bit_length()):
            axes.append(axis)
            masks.append(np.broadcast_to((place >> bit) & 1 == 1, shape)[None])
    return axes, np.concatenate(masks)
