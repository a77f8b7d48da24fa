"""Populations of particles on their way from the prior to the posterior, p(z) p(y | z)^temperature.

The temperature is the inverse one: 0 at the prior, 1 at the posterior. Its next value is where the effective sample
size of the incremental weights has fallen to a share of the particles; then these are resampled and moved.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from blackjax.smc import ess as effective_size
from blackjax.smc.solver import dichotomy
from jax import Array

from bayeslab.monte_carlo.random_walk import (
    moved_population,
    stable_cholesky,
    target_acceptance,
    weighted_covariance,
)
from bayeslab.monte_carlo.targets import flat_densities, flat_prior_draw, log_likelihoods
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import number_or_zero_mass

MIN_STEP = 1e-12
"""The least change of temperature: particles whose data are impossible need only that to be left behind."""
MIN_LEFT = 1e-9
"""What may be left of the way to the posterior to be made in one step with the last."""


class Population(NamedTuple):
    """Particles at a temperature.

    positions: (particle, coordinate), flat and unconstrained. log_likelihood: (particle,). log_weight: (particle,), not
    normalised. eves: the particles of the prior that they descend from. temperature, log_scale: of all.
    """

    positions: Array
    log_likelihood: Array
    log_weight: Array
    eves: Array
    temperature: Array
    log_scale: Array


def prior_population(key: Array, bound: Bound, size: int) -> Population:
    """Particles from the prior."""
    positions = jax.vmap(lambda key: flat_prior_draw(key, bound))(jax.random.split(key, size))
    log_likelihood = log_likelihoods(bound, positions)
    scale = jnp.log(2.38 / jnp.sqrt(positions.shape[1]))
    zeros, scale = jnp.zeros(size), jnp.asarray(scale, positions.dtype)
    return Population(positions, log_likelihood, zeros, jnp.arange(size), jnp.zeros(()), scale)


def next_temperature(population: Population, share: float) -> Array:
    """The temperature at which the effective sample size of the incremental weights is this share of the particles."""
    left = 1.0 - population.temperature
    step = effective_size.ess_solver(lambda values: values, population.log_likelihood, share, left, dichotomy)
    step = jnp.where(jnp.isnan(step), left, jnp.clip(step, MIN_STEP, left))
    return jnp.where(left - step < MIN_LEFT, 1.0, population.temperature + step)


def incremental_log_weight(population: Population, temperature: Array) -> Array:
    """What the weights of particles are multiplied with when the temperature changes, as logs (particle,)."""
    step = temperature - population.temperature
    return jnp.where(step > 0, step * population.log_likelihood, 0.0)


def walk_factor(population: Population) -> Array:
    """Cholesky's factor of the covariance of steps that suit a population."""
    weights = jax.nn.softmax(population.log_weight)
    return jnp.exp(population.log_scale) * stable_cholesky(weighted_covariance(population.positions, weights))


def moved(key: Array, bound: Bound, population: Population, factor: Array, num_moves: int) -> tuple[Population, Array]:
    """The particles after random walks at their temperature, and the acceptance rate of each."""
    log_density = partial(tempered_log_density, bound, population.temperature)
    positions, rates = moved_population(key, population.positions, log_density, factor, num_moves)
    return population._replace(positions=positions, log_likelihood=log_likelihoods(bound, positions)), rates


def rescaled(population: Population, rate: Array) -> Population:
    """The population with the scale of its next walks, by the acceptance rate of the last."""
    size = population.positions.shape[1]
    return population._replace(log_scale=population.log_scale + rate - target_acceptance(size))


def joined(first: Population, second: Population) -> Population:
    """The particles of two populations at the temperature and the scale of the first."""
    return first._replace(
        **{name: jnp.concatenate([getattr(first, name), getattr(second, name)]) for name in _OF_PARTICLES}
    )


def parted(both: Population, number: int) -> tuple[Population, Population]:
    """The first particles, as many as `number`, and the others."""
    first, second = slice(number), slice(number, None)
    parts = [{name: getattr(both, name)[part] for name in _OF_PARTICLES} for part in (first, second)]
    return both._replace(**parts[0]), both._replace(**parts[1])


def verdict_of_temperature(population: Population) -> tuple[None, str] | None:
    """Why a population has not arrived at the posterior, as `Sampler.convergence_verdict` says it; None if it has."""
    if (temperature := float(population.temperature)) >= 1:
        return None
    return None, (
        f"when num_temperatures ran out the particles were at a temperature of {temperature:.2g}, not 1, so they are "
        "no draws of the posterior; take more temperatures"
    )


_OF_PARTICLES = ("positions", "log_likelihood", "log_weight", "eves")
"""What a population has of every particle."""


def tempered_log_density(bound: Bound, temperature: Array, flat: Array) -> Array:
    """log p(z) + temperature log p(y | z), with the Jacobian, at flat unconstrained coordinates."""
    prior, likelihood = flat_densities(bound, flat)
    return number_or_zero_mass(prior + jnp.where(temperature > 0, temperature * likelihood, 0.0))
