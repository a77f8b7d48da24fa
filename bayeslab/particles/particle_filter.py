"""The particle filter: particles are drawn step by step, weighted by what is observed, and resampled by weight.

With w_i the weights after step t - 1, which sum to one, and z_i drawn by a guide q, step t has the weights

    w_i p(z_i | z_{t-1,i}) p(y_t | z_i) / q(z_i),

whose sum estimates p(y_t | y_{1:t-1}). The product of these sums over steps estimates the evidence without bias (Del
Moral 2004, Feynman-Kac Formulae, section 7.4.2). The bootstrap filter (Gordon, Salmond and Smith 1993, IEE Proceedings
F 140) draws z_i from its prior, so that p(y_t | z_i) is left; Whiteboard notes, "Particle filter": without resampling
it is SIS, with resampling SIR.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.diagnostics import psis_weights
from blackjax.smc.resampling import multinomial, residual, stratified, systematic
from jax import Array

from bayeslab.methods.setting_checks import require_positive
from bayeslab.particles.scans import (
    Guide,
    OpenScan,
    StepInputs,
    StepKeys,
    drawn_values,
    log_densities,
    log_weight,
    open_scan,
    propose,
)
from bayeslab.particles.state_space import StateSpace
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import number_or_zero_mass

__all__ = ["ParticleFilter", "multinomial", "residual", "stratified", "systematic"]

Resampling = Callable[[Array, Array, int], Array]
"""(key, weights (particle,), number) -> so many indices of particles, each as often as its weight says on average."""
MIN_PARTICLES_OF_TAIL = 25
"""Particles from which on the tail of their ratios has the five that a fit takes."""
MIN_TAIL_SPAN = 1e-6
"""Nats between the largest ratios of a tail, below which they are equal but for rounding, and have no tail."""
MAX_LOG_RATIO_SPAN = 700.0
"""Nats below the largest ratio at which a ratio of zero is taken to be: about the range of exp."""


@dataclass(frozen=True)
class ParticleFilter:
    """Settings of a particle filter.

    resampling: `systematic`, `stratified`, `residual` or `multinomial` of this module, or a function like them.
    ess_share: particles are resampled where their effective number is below this share of them: 1 resamples in every
    step, 0 in none, which is sequential importance sampling.
    guide: a NumPyro program (carry, element, values) that draws the latent sites of one step in place of their prior,
    knowing what is observed. carry and element are those of the body of the scan; values has the observed values of the
    step and the values of parameters and observed sites before the scan, by name. Its tails must be no lighter than
    those of the prior times the likelihood.
    """

    num_particles: int = 1000
    resampling: Resampling = systematic
    ess_share: float = 0.5
    guide: Guide | None = None

    def __post_init__(self) -> None:
        require_positive(self, "num_particles")
        if not 0 <= self.ess_share <= 1:
            raise ValueError(f"ess_share must be from 0 to 1, but is {self.ess_share}")
        for name in ("resampling", "guide"):
            value = getattr(self, name)
            if not callable(value) and not (name == "guide" and value is None):
                raise TypeError(f"{name} must be a function, not {value!r}")


class Particles(NamedTuple):
    """The particles after one step.

    values: of the latent sites of the step (particle, *site). carry: what each takes on.
    log_weight (particle,): of weights that sum to one. ancestors (particle,): whom each came from, in the step before.
    ess: effective number before they were resampled. resampled: whether they were, before this step.
    log_increment: the log of the estimate of p(y_t | y_{1:t-1}).
    k_hat: of the ratios of this step, by which a guide is corrected; NaN without one.
    """

    values: Values
    carry: Any
    log_weight: Array
    ancestors: Array
    ess: Array
    resampled: Array
    log_increment: Array
    k_hat: Array


class Start(NamedTuple):
    """Particles before the first step: values of the sites that the scan starts from, and what it starts with.

    log_weight (particle,), ess, log_increment: as those of `Particles`, by what is observed before the scan.
    """

    values: Values
    carry: Any
    log_weight: Array
    ess: Array
    log_increment: Array


def run_filter[Recorded](
    key: Array,
    settings: ParticleFilter,
    space: StateSpace,
    bound: Bound,
    parameters: Values,
    record: Callable[[Particles], Recorded],
) -> tuple[Start, Recorded]:
    """A run of the filter. parameters: values of `space.parameters`.

    record: what to keep of the particles of every step, which is stacked.
    """
    start_key, key = jax.random.split(key)
    scan = parameterised_scan(space, bound, parameters)
    start = draw_start(start_key, settings.num_particles, space, bound, parameters)

    def step(state: tuple[Any, Array, Array], given: tuple[Array, StepInputs]) -> tuple[Any, Recorded]:
        (carry, log_weights, ess), (key, inputs) = state, given
        resampling_key, key = jax.random.split(key)
        ancestors, log_weights, resampled = _resampled(resampling_key, settings, log_weights, ess)
        carry = jax.tree.map(lambda leaf: leaf[ancestors], carry)
        values = draw_states(key, settings, bound, scan, carry, inputs)
        none = jnp.zeros(())
        drawn = Particles(values, carry, log_weights, ancestors, none, resampled, none, none)
        particles = weighted(settings.guide, bound, scan, inputs, drawn)
        return (particles.carry, particles.log_weight, particles.ess), record(particles)

    first = start.carry, start.log_weight, start.ess
    keys = jax.random.split(key, scan.length)
    _, history = jax.lax.scan(step, first, (keys, scan.steps), scan.length)
    return start, history


def parameterised_scan(space: StateSpace, bound: Bound, parameters: Values) -> OpenScan:
    """The scan of a program at values of its parameters, for all particles: without the sites that differ for each."""
    scan = open_scan(jax.random.PRNGKey(0), bound, parameters)
    return scan._replace(sites={name: site for name, site in scan.sites.items() if name not in space.initial})


def draw_start(
    key: Array, num_particles: int, space: StateSpace, bound: Bound, parameters: Values, first: Values | None = None
) -> Start:
    """Particles before the first step, from their prior. first: values of the first of them, which it keeps."""

    def draw(key: Array) -> Values:
        values = drawn_values(open_scan(key, bound, parameters).sites)
        return {name: values[name] for name in space.initial}

    def started(values: Values) -> tuple[Any, Array]:
        scan = open_scan(key, bound, parameters | values)
        densities = log_densities(scan)
        log_likelihood = sum((densities[name] for name in space.initial_observed), jnp.zeros(()))
        return jax.tree.map(jnp.asarray, scan.start), log_likelihood

    values = jax.vmap(draw)(jax.random.split(key, num_particles))
    if first is not None:
        values = {name: value.at[0].set(first[name]) for name, value in values.items()}
    carry, log_likelihoods = jax.vmap(started, axis_size=num_particles)(values)
    equal = jnp.full(num_particles, -jnp.log(num_particles))
    if not space.initial_observed:
        return Start(values, carry, equal, jnp.asarray(num_particles, float), jnp.zeros(()))
    return Start(values, carry, *_normalised(equal + number_or_zero_mass(log_likelihoods)))


def draw_states(
    key: Array, settings: ParticleFilter, bound: Bound, scan: OpenScan, carry: Any, inputs: StepInputs
) -> Values:
    """A draw of the latent sites of one step for every particle."""
    number = settings.num_particles

    def one(keys: StepKeys, carry: Any) -> Values:
        return propose(keys, bound, scan, carry, inputs, settings.guide)

    num_sites = len(jax.eval_shape(one, StepKeys.of(key), jax.tree.map(lambda leaf: leaf[0], carry)))
    site_key, key = jax.random.split(key)
    keys = StepKeys(jax.random.split(site_key, (num_sites, number)).swapaxes(0, 1), jax.random.split(key, number))
    return jax.vmap(one)(keys, carry)


def weighted(guide: Guide | None, bound: Bound, scan: OpenScan, inputs: StepInputs, drawn: Particles) -> Particles:
    """Particles with the weights of one step. drawn: with the weights before, and with what was carried to the step."""

    def one(carry: Any, values: Values) -> tuple[Any, Array]:
        return log_weight(bound, scan, carry, inputs, values, guide)

    carry, new = jax.vmap(one)(drawn.carry, drawn.values)
    log_weights, ess, log_increment = _normalised(drawn.log_weight + number_or_zero_mass(new))
    k_hat = jnp.full_like(ess, jnp.nan) if guide is None else _tail_of_ratios(new)
    return drawn._replace(carry=carry, log_weight=log_weights, ess=ess, log_increment=log_increment, k_hat=k_hat)


def _normalised(total: Array) -> tuple[Array, Array, Array]:
    """Log weights that sum to one, the effective number of particles, and the log of the sum of the weights before.

    total: log weights (particle,). Where no particle is possible, all have equal weights, and the number is 0.
    """
    top = total.max()
    weights = jnp.exp(total - jnp.where(jnp.isfinite(top), top, 0.0))  # exponentials are what a step spends its time on
    log_sum = top + jnp.log(weights.sum())
    alive = jnp.isfinite(log_sum)
    log_weights = jnp.where(alive, total - jnp.where(alive, log_sum, 0.0), -jnp.log(len(total)))
    return log_weights, jnp.where(alive, weights.sum() ** 2 / (weights**2).sum(), 0.0), log_sum


def _tail_of_ratios(log_ratios: Array) -> Array:
    """k-hat of ratios (particle,); minus infinity where the largest are equal, NaN where they are too few to tell.

    Above 0.7 the guide is narrower than what it stands in for, and above 1 the ratios have no mean: what the particles
    say is wrong, and by as much in every run, so that these do not differ.
    """
    number = len(log_ratios)
    if number < MIN_PARTICLES_OF_TAIL:
        return jnp.asarray(jnp.nan)
    largest = jax.lax.top_k(log_ratios, min(int(3 * number**0.5), number // 5))[0]
    span = largest[0] - largest[-1]
    lowest = log_ratios.max() - MAX_LOG_RATIO_SPAN
    k_hat = psis_weights(jnp.where(jnp.isfinite(log_ratios), log_ratios, lowest))[1]
    return jnp.where(jnp.isfinite(span), jnp.where(span > MIN_TAIL_SPAN, k_hat, -jnp.inf), jnp.nan)


def _resampled(key: Array, settings: ParticleFilter, log_weights: Array, ess: Array) -> tuple[Array, Array, Array]:
    """The ancestors of the next particles, the weights that they have from before, and whether they were resampled.

    ess: the effective number of particles, 0 where none is possible, so that all have equal weights.
    """
    number = settings.num_particles
    effective = jnp.where(ess > 0, ess, number)
    resample = (effective < settings.ess_share * number) | (settings.ess_share == 1)
    equal = jnp.full_like(log_weights, -jnp.log(number))

    def resampled() -> tuple[Array, Array]:
        return settings.resampling(key, jnp.exp(log_weights), number).astype(jnp.int32), equal

    def kept() -> tuple[Array, Array]:
        return jnp.arange(number, dtype=jnp.int32), log_weights

    return *jax.lax.cond(resample, resampled, kept), resample
