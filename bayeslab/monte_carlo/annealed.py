"""Annealed importance sampling (Neal 2001, Statistics and Computing 11)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc import resampling
from jax import Array

from bayeslab.methods.setting_checks import require_names, require_positive, require_share
from bayeslab.methods.wrappers.collapsed import collapsed_sampler
from bayeslab.monte_carlo.importance import summary_of_weights
from bayeslab.monte_carlo.sequential import SMCSampler, SMCState
from bayeslab.monte_carlo.targets import tempered_target
from bayeslab.monte_carlo.tempering import (
    Population,
    incremental_log_weight,
    joined,
    moved,
    parted,
    prior_population,
    rescaled,
    verdict_of_temperature,
)
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class AnnealedImportance(Method):
    """Independent particles that walk from the prior to the posterior while the temperature changes; the weight of each
    is the product of its incremental weights, and their mean an estimate of the evidence without bias.

    num_samples: particles. The draws are resampled from them by their weights; group `weighted_posterior` has these.
    ess_share: a small population, the pilot, goes ahead by sequential Monte Carlo and says where the next temperature
    is and how to walk, so that the particles stay independent. It is this share of the pilot that is left in every
    step.
    num_moves: steps of a random walk at every temperature. num_temperatures: the most that are taken;
    `attrs["converged"]` says whether they were enough.
    num_pilots: particles of the pilot. collapse: continuous sites to integrate out, as discrete ones always are.
    `attrs` have `log_evidence`, `log_evidence_se`, `k_hat` and `importance_ess`, as those of `ImportanceSampling`.
    """

    num_samples: int = 1000
    ess_share: float = 0.98
    num_moves: int = 5
    num_temperatures: int = 1000
    num_pilots: int = 200
    collapse: tuple[str, ...] = ()

    num_chains = 1
    thinning = 1
    moves_coordinates = True

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_moves", "num_temperatures", "num_pilots")
        require_names(self, "collapse")
        require_share(self, "ess_share")

    @property
    def num_warmup(self) -> int:
        return self.num_temperatures

    def plan(self, analysis: Analysis) -> Sampler:
        left = tempered_target(analysis, self)
        pilot = SMCSampler(self.num_pilots, self.ess_share, self.num_moves)
        return collapsed_sampler(AnnealedSampler(pilot, self.num_samples), left, analysis.bound)


class AnnealedState(NamedTuple):
    """The state of annealed importance sampling. ancestors: the particles that are handed out."""

    pilot: SMCState
    particles: Population
    ancestors: Array
    key: Array
    made: Array


@dataclass(frozen=True)
class AnnealedSampler(Sampler):
    """A pilot and particles that follow it. Given the pilot they are independent."""

    pilot: SMCSampler
    num_particles: int

    continues = False

    def start(self, key: Array, bound: Bound) -> AnnealedState:
        key, pilot_key, prior_key = jax.random.split(key, 3)
        particles = prior_population(prior_key, bound, self.num_particles)
        places = jnp.arange(self.num_particles, dtype=jnp.int32)
        return AnnealedState(self.pilot.start(pilot_key, bound), particles, places, key, jnp.zeros((), int))

    def adapt(self, state: AnnealedState, bound: Bound) -> tuple[AnnealedState, Draws]:
        arrived = state.particles.temperature >= 1
        state, rate = jax.lax.cond(arrived, lambda s: (s, jnp.nan), lambda s: self._step(s, bound), state)
        history = {"temperature": state.particles.temperature, "acceptance_rate": rate}
        return state, Draws({}, {}, history | {"converged": state.particles.temperature >= 1})

    def advance(self, state: AnnealedState, bound: Bound) -> tuple[AnnealedState, Draws]:
        flat = state.particles.positions[state.ancestors[state.made % self.num_particles]]
        draws = Draws(constrain_flat(bound, flat), {"lp": flat_log_posterior(bound, flat)})
        return state._replace(made=state.made + 1), draws

    def run_summary(self, state: AnnealedState, data: Any) -> dict[str, float]:
        log_weight = np.asarray(state.particles.log_weight)[0]
        num_temperatures = float(np.asarray(state.pilot.num_steps)[0])
        summary = summary_of_weights(log_weight, log_weight, float(np.abs(log_weight).max()))
        if np.asarray(state.particles.temperature)[0] < 1:
            summary |= {"log_evidence": np.nan, "log_evidence_se": np.nan}
        return summary | {"num_temperatures": num_temperatures}

    def convergence_verdict(self, state: AnnealedState, data: Any, samples: dict[str, Any]) -> tuple[None, str] | None:
        return verdict_of_temperature(state.particles)

    def weighted_draws(self, state: AnnealedState, data: Any) -> dict[str, Any]:
        at = jax.jit(lambda bound, flat: jax.vmap(lambda one: constrain_flat(bound, one))(flat))
        draws = at(data, jnp.asarray(state.particles.positions)[0])
        log_weight = jax.nn.log_softmax(jnp.asarray(state.particles.log_weight))
        return {**{name: value[None] for name, value in draws.items()}, "log_weight": log_weight}

    def _step(self, state: AnnealedState, bound: Bound) -> tuple[AnnealedState, Array]:
        """The pilot takes a step of temperature; the particles follow it with its walk."""
        key, move_key, resample_key = jax.random.split(state.key, 3)
        pilot, factor, _ = self.pilot.reweighted(state.pilot)
        particles, leaders = state.particles, pilot.population
        log_weight = particles.log_weight + incremental_log_weight(particles, leaders.temperature)
        both, rates = moved(move_key, bound, joined(leaders, particles), factor, self.pilot.num_moves)
        leaders, particles = parted(both, self.pilot.num_particles)
        pilot = pilot._replace(population=rescaled(leaders, rates[: self.pilot.num_particles].mean()))
        particles = particles._replace(log_weight=log_weight)
        ancestors = resampling.systematic(resample_key, jax.nn.softmax(log_weight), self.num_particles)
        rate = rates[self.pilot.num_particles :].mean()
        return AnnealedState(pilot, particles, ancestors.astype(jnp.int32), key, state.made), rate
