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
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.probe_points import Point

MAX_VALUES_PER_KIND = 512
"""Values of every kind at which a site is tried, where the data are few numbers."""
MAX_BRANCH_NUMBERS = 2 * 10**7
"""Numbers of the data times values of a kind, at most, as long as these are not fewer than the least."""
MIN_VALUES_PER_KIND = 64
"""Values of every kind at which a site is tried, at least."""
MAX_UNCONSTRAINED_DISTANCE = 18.0
"""Largest unconstrained distance from zero: probabilities of 1e-8 and positive numbers of 1e-8 and 1e8."""
MAX_DISTANCE_IN_DEVIATIONS = 30.0
"""Largest distance from a mean, in standard deviations."""


def find_branch_change(bound: Bound, site: str, rule: Rule | None, points: Sequence[Point]) -> Kink | None:
    """An operation between a continuous site and its densities of which the site changes the branch, or None.

    One whose values jump comes before others. What the distribution of the site itself does with its value, such as to
    ask whether this is in its support, is left out: its family knows it.
    rule: the one that was found for the site, if any was. points: values of all sites.
    """
    log_joint = terms(bound)
    reached_kinks = (
        (term, log_joint.kinks[path]) for term in log_joint.terms if site in term.depends for path in term.kinks
    )
    kinks = sorted({k for term, k in reached_kinks if site in k.sites and not (k.of_library and term.name == site)})
    for kink in kinks:
        if not kink.known:
            return kink
    if not kinks:
        return None
    rng = np.random.default_rng(0)
    num_values = int(
        np.clip(
            MAX_BRANCH_NUMBERS // max(sum(map(np.size, jax.tree.leaves(bound))), 1),
            MIN_VALUES_PER_KIND,
            MAX_VALUES_PER_KIND,
        )
    )
    shape = log_joint.priors[site].shape
    moves = rng.choice([-1.0, 1.0], (num_values, *shape)) * 10 ** rng.uniform(-8, 0, (num_values, *shape))
    data = _values_near_data(bound, shape, num_values, rng)
    bend = None
    for _, values in points:
        [changed] = evaluate_all([_branch_changes(tuple(kinks), site, rule)], (bound, values, moves, data))
        found = [kink for kink, has_changed in zip(kinks, changed, strict=True) if has_changed]
        for kink in found:
            if not kink.is_continuous:
                return kink
        bend = bend or next(iter(found), None)
    return bend


@lru_cache(maxsize=64)
def _branch_changes(kinks: tuple[Kink, ...], site: str, rule: Rule | None) -> Callable[[Any], Array]:
    """A function of a point: for every operation, whether any values of the site lead to different branches."""

    def changes(argument: tuple[Bound, Values, Array, Array]) -> Array:
        bound, values, moves, data = argument
        probe_values = _values_on_all_scales(bound, terms(bound).priors[site], rule, values, moves, data)

        def branches_at(x: Array) -> list[Array]:
            return terms(bound).branches(kinks, bound, values | {site: x})

        def step(index: Array, state: Any) -> Any:
            first, changed = state
            current = branches_at(probe_values[index])
            first = [jnp.where(index == 0, new, old) for new, old in zip(current, first, strict=True)]
            new = jnp.stack([jnp.any(branch != other) for branch, other in zip(current, first, strict=True)])
            return first, changed | new

        blank = [jnp.zeros(kind.shape, kind.dtype) for kind in jax.eval_shape(branches_at, probe_values[0])]
        return jax.lax.fori_loop(0, len(probe_values), step, (blank, jnp.zeros(len(kinks), bool)))[1]

    return changes


def _values_on_all_scales(
    bound: Bound, prior: Prior, rule: Rule | None, values: Values, moves: Array, data: Array
) -> Array:
    """Values (value, *site) of a site on every scale; outside of the support its current value takes their place."""
    current = jnp.asarray(values[prior.name])
    prior_distribution = prior.distribution(bound, values)
    transform = biject_to(prior_distribution.support)
    start = transform.inv(current)
    free = jnp.reshape(jnp.reshape(moves, (len(moves), -1))[:, : start.size], (len(moves), *start.shape))
    candidates = [
        current[None],
        transform(MAX_UNCONSTRAINED_DISTANCE * free),
        transform(start + MAX_UNCONSTRAINED_DISTANCE * free),
        jnp.asarray(data, current.dtype),
    ]
    distributions = [prior_distribution]
    if rule is not None:
        distributions.append(conditional(rule, terms(bound).terms, bound, values).distribution)
    for mean, sd in (scale for each in distributions if (scale := _mean_and_deviation(each)) is not None):
        candidates.append(mean + MAX_DISTANCE_IN_DEVIATIONS * sd * moves)
    probe_values = jnp.concatenate(
        [jnp.broadcast_to(candidate, (len(candidate), *prior.shape)) for candidate in candidates]
    )
    event = range(1 + len(prior.shape) - prior.event_dim, 1 + len(prior.shape))
    inside = prior_distribution.support(probe_values) & jnp.isfinite(probe_values).all(tuple(event))
    is_representable = jnp.isfinite(
        transform.inv(jnp.where(_over_events(inside, probe_values), probe_values, current))
    )  # no probability that is 1 by rounding
    inside = inside.reshape(len(probe_values), -1).all(1) & is_representable.reshape(len(probe_values), -1).all(1)
    return jnp.where(_over_events(inside, probe_values), probe_values, current)


def _over_events(inside: Array, values: Array) -> Array:
    """A mask with axes of length 1 for the event axes of the values that it is of."""
    return inside.reshape(inside.shape + (1,) * (values.ndim - inside.ndim))


def _mean_and_deviation(distribution: Distribution) -> tuple[Array, Array] | None:
    """The mean and the standard deviation of a distribution that has them."""
    try:
        return jnp.asarray(distribution.mean), jnp.sqrt(distribution.variance)
    except (ArithmeticError, AttributeError, NotImplementedError, ValueError):
        return None


def _values_near_data(bound: Bound, shape: tuple[int, ...], number: int, random: np.random.Generator) -> np.ndarray:
    """Values between the least and the largest number of every array of the data, and close to single ones."""
    return np.concatenate([np.zeros((0, *shape)), *_values_near_arrays(bound, shape, number, random)])


def _values_near_arrays(
    bound: Bound, shape: tuple[int, ...], number: int, random: np.random.Generator
) -> Iterator[np.ndarray]:
    arrays = [np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(bound)]
    for array in (array[np.isfinite(array)] for array in arrays):
        sample_shape = (max(number // len(arrays), 16), *shape)
        if array.size == 0:
            continue
        yield (
            random.uniform(array.min(), array.max(), sample_shape)
            if array.max() > array.min()
            else array.min() + np.zeros(sample_shape)
        )
        centre = random.choice(array, sample_shape)
        yield centre + (1 + np.abs(centre)) * random.normal(size=sample_shape) * 10 ** random.uniform(
            -6, 1, sample_shape
        )
