"""Paths of a program whose parameters are known: a particle filter forwards, then backward simulation."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from bayeslab.elimination.sweep import deterministic_values
from bayeslab.methods.setting_checks import require_positive
from bayeslab.particles.filtering import evidence_summary
from bayeslab.particles.particle_filter import ParticleFilter, run_filter
from bayeslab.particles.paths import Population, simulated_path
from bayeslab.particles.state_space import (
    StateSpace,
    require_guide,
    require_known_parameters,
    require_memory,
    state_space,
)
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis


@dataclass(frozen=True)
class BackwardSimulation(Method):
    """Smoothing of states: draws of paths given all observed values, where all parameters are given too.

    particle_filter: settings of the filter, whose particles the paths are made of.
    num_samples: paths that are simulated backwards through the particles of one run. num_chains: independent runs, so
    that R-hat tells whether there are enough particles.
    Draws are of the posterior in the limit of many particles; `ParticleGibbs` needs none. `attrs` have `log_evidence`,
    `log_evidence_se` and `log_evidence_sd`, as those of `filter`.
    """

    particle_filter: ParticleFilter = field(default_factory=ParticleFilter)
    num_samples: int = 1000
    num_chains: int = 4

    num_warmup = 0
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains")

    def plan(self, analysis: Analysis) -> Sampler:
        space = analysis.ask(state_space)
        require_known_parameters(space)
        require_memory(space)
        if self.particle_filter.guide is not None:
            require_guide(analysis.bound, self.particle_filter.guide)
        return SmoothingSampler(self.particle_filter, space)


class SmoothingState(NamedTuple):
    """The state of backward simulation: the particles of the filter, and its estimate of the log evidence."""

    population: Population
    log_evidence: Array
    key: Array


@dataclass(frozen=True)
class SmoothingSampler(Sampler):
    """One run of the filter, and paths through its particles."""

    settings: ParticleFilter
    space: StateSpace

    def start(self, key: Array, bound: Bound) -> SmoothingState:
        filter_key, key = jax.random.split(key)
        start, (values, carry, log_weight, increments) = run_filter(
            filter_key,
            self.settings,
            self.space,
            bound,
            {},
            lambda particles: (particles.values, particles.carry, particles.log_weight, particles.log_increment),
        )
        return SmoothingState(Population(start, values, carry, log_weight), start.log_increment + increments.sum(), key)

    def advance(self, state: SmoothingState, bound: Bound) -> tuple[SmoothingState, Draws]:
        key, path_key = jax.random.split(state.key)
        path = simulated_path(path_key, self.space, bound, {}, state.population)
        stats = {"lp": bound.log_joint(path)}
        return state._replace(key=key), Draws(path | deterministic_values(bound, path), stats)

    def run_summary(self, state: SmoothingState, data: Any) -> dict[str, float]:
        return evidence_summary(np.asarray(state.log_evidence))
