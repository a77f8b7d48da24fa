"""The random walk of Metropolis with the covariance and the scale that its own past suggests."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.random_walk import RWInfo, RWState, build_additive_step, normal
from jax import Array

TARGET_ACCEPTANCE = 0.44, 0.234
"""The acceptance rate at which a walk is fastest, in one dimension and in many (Roberts, Gelman and Gilks 1997)."""
DECAY = 0.6
"""Exponent with which adaptation fades."""
MIN_VARIANCE_SHARE = 1e-6
"""Share of the mean variance that is added to all, so that a covariance of few points has a Cholesky factor."""


class Walk(NamedTuple):
    """The steps of a walk: Normal with covariance exp(2 log_scale) times that of the positions so far.

    num_steps: that it was adapted in. mean (coordinate,), covariance (coordinate, coordinate).
    """

    num_steps: Array
    log_scale: Array
    mean: Array
    covariance: Array

    @property
    def factor(self) -> Array:
        """Cholesky's, of the covariance of steps."""
        return jnp.exp(self.log_scale) * stable_cholesky(self.covariance)


def first_walk(position: Array) -> Walk:
    """A walk that has seen nothing yet."""
    size = position.shape[-1]
    return Walk(jnp.zeros((), int), jnp.log(2.38 / jnp.sqrt(size)), position, jnp.eye(size))


def adapted_walk(walk: Walk, position: Array, acceptance: Array, adapting: Array) -> Walk:
    """The walk after a step that came to `position` (Andrieu and Thoms 2008, Statistics and Computing 18), the same
    where it is no longer adapting."""
    rate = (walk.num_steps + 2.0) ** -DECAY
    deviation = position - walk.mean
    covariance = walk.covariance + rate * (jnp.outer(deviation, deviation) - walk.covariance)
    log_scale = walk.log_scale + rate * (acceptance - target_acceptance(position.size))
    adapted = Walk(walk.num_steps + 1, log_scale, walk.mean + rate * deviation, covariance)
    return jax.tree.map(partial(jnp.where, adapting), adapted, walk)


def target_acceptance(size: int) -> float:
    """The acceptance rate that adaptation aims at in so many dimensions."""
    return TARGET_ACCEPTANCE[0] if size == 1 else TARGET_ACCEPTANCE[1]


def walk_step(
    key: Array, state: RWState, log_density: Callable[[Array], Array], factor: Array
) -> tuple[RWState, RWInfo]:
    """One step of Metropolis with Normal increments. factor: Cholesky's, of their covariance."""
    return build_additive_step()(key, state, log_density, normal(factor))


def stable_cholesky(covariance: Array) -> Array:
    """The Cholesky factor of a covariance that may not have full rank."""
    size = covariance.shape[-1]
    ridge = MIN_VARIANCE_SHARE * jnp.trace(covariance) / size + jnp.finfo(covariance.dtype).tiny
    return jnp.linalg.cholesky(covariance + ridge * jnp.eye(size))


def weighted_covariance(positions: Array, weights: Array) -> Array:
    """The covariance of positions (particle, coordinate) with weights that sum to one."""
    deviations = positions - weights @ positions
    return (weights[:, None] * deviations).T @ deviations


def moved_population(
    key: Array, positions: Array, log_density: Callable[[Array], Array], factor: Array, num_moves: int
) -> tuple[Array, Array]:
    """Every particle (particle, coordinate) after some steps of its own walk, and the mean acceptance of each."""

    def move(key: Array, position: Array) -> tuple[Array, Array]:
        def step(state: RWState, key: Array) -> tuple[RWState, Array]:
            state, info = walk_step(key, state, log_density, factor)
            return state, info.acceptance_rate

        state, rates = jax.lax.scan(step, RWState(position, log_density(position)), jax.random.split(key, num_moves))
        return state.position, rates.mean()

    return jax.vmap(move)(jax.random.split(key, len(positions)), positions)
