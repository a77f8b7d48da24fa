"""Values of a site at which the branches of operations are compared: on every scale, and where the data are."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, biject_to

from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound, Values

BranchArgument = tuple[Bound, Values, Array | np.ndarray, Array | np.ndarray]
"""A program with data, values of its sites, and what `moves_and_data` returns for one of them."""
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


def moves_and_data(bound: Bound, site: str) -> tuple[np.ndarray, np.ndarray]:
    """Moves (value, *site) between -1 and 1 on all scales, and values between and near the numbers of the data."""
    rng = np.random.default_rng(0)
    num_values = int(
        np.clip(
            MAX_BRANCH_NUMBERS // max(sum(map(np.size, jax.tree.leaves(bound))), 1),
            MIN_VALUES_PER_KIND,
            MAX_VALUES_PER_KIND,
        )
    )
    shape = terms(bound).priors[site].shape
    moves = rng.choice([-1.0, 1.0], (num_values, *shape)) * 10 ** rng.uniform(-8, 0, (num_values, *shape))
    return moves, _values_near_data(bound, shape, num_values, rng)


def values_on_all_scales(argument: BranchArgument, site: str, rule: Rule | None) -> Array:
    """Values (value, *site) of a site on every scale; outside of the support its current value takes their place.

    rule: the one that was found for the site, if any was.
    """
    bound, values, moves, data = argument
    prior = terms(bound).priors[site]
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
