"""Whether a site changes the branch of an operation that is not analytic in it, anywhere on any scale.

A guard against logarithms of zero does not hurt where it never acts, and a threshold does wherever it lies. So the
branch itself, and no density, is compared at thousands of values of the site: draws of its prior and of the conditional
that was found, values at every distance from the middle of the support, and values as large as the data are.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.analyticity import Kink
from bayeslab.elimination import Rule, conditional
from bayeslab.points import Point
from bayeslab.program import Bound, Values
from bayeslab.terms import terms

VALUES = 2048
"""Of the site that are tried, where these are not more numbers than `NUMBERS`, those of the data included."""
NUMBERS = 10**8
FEWEST = 128
FARTHEST = 18.0
"""From zero, of an unconstrained coordinate: probabilities of 1e-8 and positive numbers of 1e-8 and 1e8."""


def broken(bound: Bound, site: str, rule: Rule | None, places: Sequence[Point]) -> Kink | None:
    """An operation between a continuous site and its densities of which the site changes the branch; None if none.

    What the distribution of the site itself does with its value, such as to ask whether this is in its support, is left
    out: its family knows it.
    rule: what was found for the site, if anything was. places: points of all sites; the last are those of the data.
    """
    known = terms(bound)
    reached = ((term, known.kinks[path]) for term in known.terms if site in term.depends for path in term.kinks)
    kinks = sorted({k for term, k in reached if site in k.sites and not (k.of_library and term.name == site)})
    for kink in kinks:
        if not kink.known:
            return kink
    if not kinks:
        return None
    number = int(np.clip(NUMBERS // max(sum(map(np.size, jax.tree.leaves(bound))), 1), FEWEST, VALUES))
    random = np.random.default_rng(0)
    changes = _changes(tuple(kinks), site)
    found = np.zeros(len(kinks), bool)
    for _, values in places:
        at = np.concatenate([*_values(bound, site, rule, values, number, random)])
        at = at[_inside(bound, site, values, at)]
        others = {name: jnp.asarray(value) for name, value in values.items()}
        found |= np.asarray(changes(bound, others, jnp.asarray(at)))
    return next((kink for kink, changed in zip(kinks, found, strict=True) if changed), None)


@lru_cache(maxsize=64)
def _changes(kinks: tuple[Kink, ...], site: str) -> Callable[[Bound, Values, Array], Array]:
    """Of every operation, whether some values (value, *site) lead to different branches."""

    @jax.jit
    def changes(bound: Bound, values: Values, at: Array) -> Array:
        def taken(x: Array) -> list[Array]:
            return terms(bound).branches(kinks, bound, values | {site: x})

        first = taken(at[0])

        def step(found: Array, x: Array) -> tuple[Array, None]:
            new = [jnp.any(one != other) for one, other in zip(taken(x), first, strict=True)]
            return found | jnp.stack(new), None

        return jax.lax.scan(step, jnp.zeros(len(kinks), bool), at)[0]

    return changes


def _values(
    bound: Bound, site: str, rule: Rule | None, values: Values, number: int, random: np.random.Generator
) -> Iterator[np.ndarray]:
    """Values (value, *site) on every scale, some of them perhaps outside of the support."""
    prior = terms(bound).priors[site]
    yield np.asarray(values[site])[None]
    for distribution in _distributions(bound, rule, values, prior):
        try:
            drawn = np.asarray(jax.jit(lambda q: q.sample(jax.random.PRNGKey(0), (number // 4,)))(distribution))
        except (NotImplementedError, AttributeError):  # improper, or without a sampler
            continue
        yield drawn.reshape(-1, *prior.shape)
        middle = np.median(drawn, 0)
        yield (middle + 10 ** random.uniform(-1, 1, drawn.shape) * (drawn - middle)).reshape(-1, *prior.shape)
    transform = biject_to(prior.distribution(bound, values).support)
    shape = transform.inverse_shape(prior.shape)
    move = random.choice([-1.0, 1.0], (number, *shape)) * 10 ** random.uniform(-8, np.log10(FARTHEST), (number, *shape))
    yield np.asarray(transform(move))
    if prior.event_dim == 0:
        yield from _of_data(bound, prior.shape, number, random)


def _distributions(bound: Bound, rule: Rule | None, values: Values, prior: Any) -> Iterator[Distribution]:
    yield prior.distribution(bound, values)
    if rule is not None:
        yield conditional(rule, terms(bound).terms, bound, values).distribution


def _of_data(bound: Bound, shape: tuple[int, ...], number: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Numbers between the least and the largest of every array, and close to single ones."""
    arrays = [np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(bound) if np.size(leaf)]
    for array in arrays:
        array = array[np.isfinite(array)]
        if array.size == 0:
            continue
        each = max(number // len(arrays), 16)
        low, high = array.min(), array.max()
        yield random.uniform(low, high, (each, *shape)) if high > low else np.full((1, *shape), low)
        near = random.choice(array, (each, *shape))
        yield near + (1 + np.abs(near)) * random.normal(size=(each, *shape)) * 10 ** random.uniform(
            -6, 1, (each, *shape)
        )


def _inside(bound: Bound, site: str, values: Values, at: np.ndarray) -> np.ndarray:
    """Which values are inside of the support, and not at its end by rounding."""
    prior = terms(bound).priors[site]
    support = prior.distribution(bound, values).support
    inside = np.asarray(support(jnp.asarray(at)))
    inside = inside.reshape(len(at), -1).all(1)
    free = np.asarray(biject_to(support).inv(jnp.asarray(np.where(np.isfinite(at), at, 0.5))))
    return inside & (np.isfinite(free) & (np.abs(free) < 1e300)).reshape(len(at), prod(free.shape[1:])).all(1)
