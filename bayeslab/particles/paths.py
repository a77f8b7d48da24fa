"""Paths of states: traced back through ancestors, simulated backwards, and drawn given an earlier path.

Backward simulation (Godsill, Doucet and West 2004, JASA 99) draws a particle of the last step by weight, and of every
step before by weight times the density of what follows it,

    w_{t,i} p(z_{t+1}, y_{t+1} | particle i) ...,

over as many steps as something that the particle carries is met by: `StateSpace.memory`. The conditional filter with
ancestor sampling (Lindsten, Jordan and Schön 2014, JMLR 15) keeps one path among its particles, and draws anew in every
step, with the same density, whom this path came from.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.smc.resampling import multinomial
from jax import Array

from bayeslab.particles.particle_filter import (
    ParticleFilter,
    Particles,
    Start,
    draw_start,
    draw_states,
    parameterised_scan,
    weighted,
)
from bayeslab.particles.scans import OpenScan, weigh
from bayeslab.particles.state_space import StateSpace
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import number_or_zero_mass


class Ancestry(NamedTuple):
    """What a path is traced back through: values and ancestors of particles, stacked over steps."""

    values: Values
    ancestors: Array


class Population(NamedTuple):
    """All particles of a filter: before the first step, and after every step (step, particle, ...)."""

    start: Start
    values: Values
    carry: Any
    log_weight: Array


def drawn_index(key: Array, log_weights: Array) -> Array:
    """A particle, drawn by weight."""
    return multinomial(key, jax.nn.softmax(log_weights), 1)[0].astype(jnp.int32)


def traced_path(last: Array, start: Start, ancestry: Ancestry) -> Values:
    """The path of a particle of the last step, through its ancestors."""

    def back(index: Array, step: Ancestry) -> tuple[Array, Values]:
        return step.ancestors[index], jax.tree.map(lambda leaf: leaf[index], step.values)

    first, states = jax.lax.scan(back, last, ancestry, reverse=True)
    return {name: value[first] for name, value in start.values.items()} | states


def simulated_path(key: Array, space: StateSpace, bound: Bound, parameters: Values, population: Population) -> Values:
    """A path by backward simulation."""
    scan = parameterised_scan(space, bound, parameters)
    follows = _what_follows(space, bound, scan)
    last_key, start_key, key = jax.random.split(key, 3)
    last = drawn_index(last_key, population.log_weight[-1])
    states = {
        name: jnp.zeros_like(value[:, 0]).at[-1].set(value[-1, last]) for name, value in population.values.items()
    }

    def back(states: Values, given: tuple[Array, Array]) -> tuple[Values, None]:
        step, key = given
        carry, values, log_weight = jax.tree.map(
            lambda leaf: leaf[step], (population.carry, population.values, population.log_weight)
        )
        index = drawn_index(key, log_weight + follows(carry, step + 1, states))
        return {name: states[name].at[step].set(value[index]) for name, value in values.items()}, None

    steps = jnp.arange(scan.length - 1)
    states, _ = jax.lax.scan(back, states, (steps, jax.random.split(key, len(steps))), reverse=True)
    if not space.initial:
        return states
    start = population.start
    first = drawn_index(start_key, start.log_weight + follows(start.carry, jnp.zeros((), int), states))
    return {name: value[first] for name, value in start.values.items()} | states


def conditional_path(key: Array, settings: ParticleFilter, space: StateSpace, bound: Bound, values: Values) -> Values:
    """A path after one step of the conditional filter with ancestor sampling, which leaves the posterior of paths
    given the parameters as it is.

    values: of all latent sites, the path from before included, which is that of particle 0. Particles are resampled in
    every step, independently of each other.
    """
    parameters = {name: values[name] for name in space.parameters}
    scan = parameterised_scan(space, bound, parameters)
    states = {name: values[name] for name in space.states}
    follows = _what_follows(space, bound, scan)
    start_key, last_key, key = jax.random.split(key, 3)
    number = settings.num_particles
    start = draw_start(start_key, number, space, bound, parameters, {name: values[name] for name in space.initial})

    def step(particles: tuple[Any, Array], given: Any) -> tuple[tuple[Any, Array], Ancestry]:
        (carry, log_weight), (time, key, inputs, own) = particles, given
        resampling_key, ancestor_key, key = jax.random.split(key, 3)
        others = multinomial(resampling_key, jnp.exp(log_weight), number - 1).astype(jnp.int32)  # which are sorted
        own_ancestor = drawn_index(ancestor_key, log_weight + follows(carry, time, states))
        ancestors = jnp.concatenate([own_ancestor[None], others])
        carry = jax.tree.map(lambda leaf: leaf[ancestors], carry)
        drawn = draw_states(key, settings, bound, scan, carry, inputs)
        drawn = {name: value.at[0].set(own[name]) for name, value in drawn.items()}
        new = weighted(settings.guide, bound, scan, inputs, _unweighted(drawn, carry, ancestors))
        return (new.carry, new.log_weight), Ancestry(new.values, ancestors)

    given = jnp.arange(scan.length), jax.random.split(key, scan.length), scan.steps, states
    (_, log_weight), ancestry = jax.lax.scan(step, (start.carry, start.log_weight), given)
    return traced_path(drawn_index(last_key, log_weight), start, ancestry)


def _unweighted(values: Values, carry: Any, ancestors: Array) -> Particles:
    """Particles after resampling, with equal weights."""
    equal, none = jnp.full(len(ancestors), -jnp.log(len(ancestors))), jnp.zeros(())
    return Particles(values, carry, equal, ancestors, none, jnp.array(True), none, none)


def _what_follows(space: StateSpace, bound: Bound, scan: OpenScan) -> Callable[[Any, Array, Values], Array]:
    """The function (carry of particles, number of the next step, states (step, *site)) -> the log density of these
    states from that step on and of what is observed with them, given each particle (particle,), up to a constant."""
    assert space.memory is not None

    def density(step: Array, states: Values, carry: Any) -> Array:
        total = jnp.zeros(())
        for lead in range(space.memory or 0):
            place = jnp.minimum(step + lead, scan.length - 1)
            inputs, values = jax.tree.map(lambda leaf: leaf[place], (scan.steps, states))  # noqa: B023
            weighed = weigh(bound, scan, carry, inputs, values)
            counted = step + lead < scan.length
            total += jnp.where(counted, number_or_zero_mass(weighed.log_prior + weighed.log_likelihood), 0.0)
            carry = weighed.carry
        return total

    return lambda carry, step, states: jax.vmap(partial(density, step, states))(carry)
