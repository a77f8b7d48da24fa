"""Whether a site changes the branch of an operation that is not analytic in it, anywhere on any scale.

A guard against logarithms of zero does not hurt where it never acts, and a threshold does wherever it lies. So the
branch itself, and no density, is compared at thousands of values of the site: at every distance from the middle of its
support, of its prior and of the conditional that was found, and between the numbers of the data.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.terms import Prior, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.analyticity import Kink
from bayeslab.programs.tracing.compilation import evaluated
from bayeslab.verification.probe_points import Point

VALUES = 512
"""Of the site of every kind, where they and the data are not more numbers than `NUMBERS` for all of them."""
NUMBERS = 2 * 10**7
FEWEST = 64
FARTHEST = 18.0
"""From zero, of an unconstrained coordinate: probabilities of 1e-8 and positive numbers of 1e-8 and 1e8."""
WIDE = 30.0
"""Standard deviations."""


def broken(bound: Bound, site: str, rule: Rule | None, places: Sequence[Point]) -> Kink | None:
    """An operation between a continuous site and its densities of which the site changes the branch; None if none.

    What the distribution of the site itself does with its value, such as to ask whether this is in its support, is left
    out: its family knows it.
    rule: what was found for the site, if anything was. places: points of all sites.
    """
    known = terms(bound)
    reached = ((term, known.kinks[path]) for term in known.terms if site in term.depends for path in term.kinks)
    kinks = sorted({k for term, k in reached if site in k.sites and not (k.of_library and term.name == site)})
    for kink in kinks:
        if not kink.known:
            return kink
    if not kinks:
        return None
    random = np.random.default_rng(0)
    number = int(np.clip(NUMBERS // max(sum(map(np.size, jax.tree.leaves(bound))), 1), FEWEST, VALUES))
    shape = known.priors[site].shape
    moves = random.choice([-1.0, 1.0], (number, *shape)) * 10 ** random.uniform(-8, 0, (number, *shape))
    data = _of_data(bound, shape, number, random)
    for _, values in places:
        [found] = evaluated([_changes(tuple(kinks), site, rule)], (bound, values, moves, data))
        if found.any():
            return kinks[int(np.argmax(found))]
    return None


@lru_cache(maxsize=64)
def _changes(kinks: tuple[Kink, ...], site: str, rule: Rule | None) -> Callable[[Any], Array]:
    """Of every operation, whether any values of the site lead to different branches."""

    def changes(given: tuple[Bound, Values, Array, Array]) -> Array:
        bound, values, moves, data = given
        at = _values(bound, terms(bound).priors[site], rule, values, moves, data)

        def taken(x: Array) -> list[Array]:
            return terms(bound).branches(kinks, bound, values | {site: x})

        def step(place: Array, state: Any) -> Any:
            first, found = state
            here = taken(at[place])
            first = [jnp.where(place == 0, new, old) for new, old in zip(here, first, strict=True)]
            new = jnp.stack([jnp.any(one != other) for one, other in zip(here, first, strict=True)])
            return first, found | new

        blank = [jnp.zeros(kind.shape, kind.dtype) for kind in jax.eval_shape(taken, at[0])]
        return jax.lax.fori_loop(0, len(at), step, (blank, jnp.zeros(len(kinks), bool)))[1]

    return changes


def _values(bound: Bound, prior: Prior, rule: Rule | None, values: Values, moves: Array, data: Array) -> Array:
    """Values (value, *site) on every scale; in place of what is outside of the support the value that there is."""
    here = jnp.asarray(values[prior.name])
    own = prior.distribution(bound, values)
    transform = biject_to(own.support)
    start = transform.inv(here)
    free = jnp.reshape(jnp.reshape(moves, (len(moves), -1))[:, : start.size], (len(moves), *start.shape))
    found = [here[None], transform(FARTHEST * free), transform(start + FARTHEST * free), jnp.asarray(data, here.dtype)]
    distributions = [own]
    if rule is not None:
        distributions.append(conditional(rule, terms(bound).terms, bound, values).distribution)
    for mean, sd in (scale for each in distributions if (scale := _scale(each)) is not None):
        found.append(mean + WIDE * sd * moves)
    at = jnp.concatenate([jnp.broadcast_to(one, (len(one), *prior.shape)) for one in found])
    event = range(1 + len(prior.shape) - prior.event_dim, 1 + len(prior.shape))
    inside = own.support(at) & jnp.isfinite(at).all(tuple(event))
    far = jnp.isfinite(transform.inv(jnp.where(_over(inside, at), at, here)))  # no probability that is 1 by rounding
    inside = inside.reshape(len(at), -1).all(1) & far.reshape(len(at), -1).all(1)
    return jnp.where(_over(inside, at), at, here)


def _over(inside: Array, at: Array) -> Array:
    return inside.reshape(inside.shape + (1,) * (at.ndim - inside.ndim))


def _scale(distribution: Distribution) -> tuple[Array, Array] | None:
    """The mean and the standard deviation of a distribution that has them."""
    try:
        return jnp.asarray(distribution.mean), jnp.sqrt(distribution.variance)
    except (ArithmeticError, AttributeError, NotImplementedError, ValueError):
        return None


def _of_data(bound: Bound, shape: tuple[int, ...], number: int, random: np.random.Generator) -> np.ndarray:
    """Numbers between the least and the largest of every array of the data, and close to single ones."""
    return np.concatenate([np.zeros((0, *shape)), *_of_arrays(bound, shape, number, random)])


def _of_arrays(bound: Bound, shape: tuple[int, ...], number: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    arrays = [np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(bound)]
    for array in (array[np.isfinite(array)] for array in arrays):
        each = (max(number // len(arrays), 16), *shape)
        if array.size == 0:
            continue
        yield (
            random.uniform(array.min(), array.max(), each)
            if array.max() > array.min()
            else array.min() + np.zeros(each)
        )
        near = random.choice(array, each)
        yield near + (1 + np.abs(near)) * random.normal(size=each) * 10 ** random.uniform(-6, 1, each)
