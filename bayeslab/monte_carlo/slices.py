"""Slice sampling (Neal 2003, Annals of Statistics 31) over all continuous sites."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.slice import SliceState, build_coordinate_kernel, stepping_out
from jax import Array

from bayeslab.methods.setting_checks import require_count, require_names, require_positive
from bayeslab.methods.wrappers.collapsed import collapsed_sampler, without_discrete_sites
from bayeslab.monte_carlo.metropolis import chain_start
from bayeslab.monte_carlo.random_walk import Walk, adapted_walk, first_walk, stable_cholesky
from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, number_or_zero_mass
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis

WIDTH = 2.0
"""The first width of an interval, in standard deviations of the posterior along its direction."""
MAX_EXPANSIONS = 100
"""Steps by which an interval grows, at most: warm-up may start where the posterior is far wider than was thought."""


@dataclass(frozen=True)
class Slice(Method):
    """Draws a level under the density, then a point of the interval above it: no rejection and no step size.

    A draw is a sweep over as many directions as there are coordinates, in random order: those of the Cholesky factor of
    the covariance of the posterior in the unconstrained space, which warm-up adapts. Intervals step out and shrink.
    thinning: keep one draw in so many.
    Discrete sites are summed over, and so are those of `collapse`, such as ("w",).
    """

    num_warmup: int = 500
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    collapse: tuple[str, ...] = ()

    moves_coordinates = True

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        require_names(self, "collapse")

    def plan(self, analysis: Analysis) -> Sampler:
        left = without_discrete_sites(analysis, self)
        return collapsed_sampler(SliceSampler(self.num_warmup), left, analysis.bound)


class SweepState(NamedTuple):
    """The state of slice sampling. walk: the covariance that directions are taken from."""

    current: SliceState
    walk: Walk
    key: Array


@dataclass(frozen=True)
class SliceSampler(Sampler):
    """Sweeps of univariate slices. num_warmup: sweeps in which directions are adapted."""

    num_warmup: int

    warmup_draws = True

    def start(self, key: Array, bound: Bound) -> SweepState:
        key, position_key = jax.random.split(key)
        flat = chain_start(position_key, bound)
        return SweepState(SliceState(flat, flat_log_posterior(bound, flat)), first_walk(flat), key)

    def advance(self, state: SweepState, bound: Bound) -> tuple[SweepState, Draws]:
        key, step_key = jax.random.split(state.key)
        factor = stable_cholesky(state.walk.covariance)

        def along_column(key: Array, position: Array, log_density: Any, column: Array) -> Any:
            def at(distance: Array) -> tuple[SliceState, bool]:
                point = position + distance * factor[:, column]
                return SliceState(point, log_density(point)), True

            return at

        kernel = build_coordinate_kernel(
            stepping_out, along_column, initial_widths=WIDTH, max_expansions=MAX_EXPANSIONS
        )
        current, info = kernel(step_key, state.current, partial(self._log_density, bound))
        adapting = state.walk.num_steps < self.num_warmup
        walk = adapted_walk(state.walk, current.position, jnp.zeros(()), adapting)
        stats = {"lp": current.logdensity, "num_evaluations": info.num_expansions + info.num_shrink}
        return SweepState(current, walk, key), Draws(constrain_flat(bound, current.position), stats)

    def _log_density(self, bound: Bound, flat: Array) -> Array:
        """Of which slices are taken."""
        return number_or_zero_mass(flat_log_posterior(bound, flat))
