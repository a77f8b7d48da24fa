"""Wrong versions of the Monte Carlo methods, which fail the calibration that right ones pass, on two models each.

Those of random walks and of rejection are in `test_calibration.py`; the test and its power are those of `ranks.py`.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import pytest
from blackjax.smc import resampling
from jax import Array

from bayeslab import sbc
from bayeslab.models import normal_known_mean, normal_known_variance
from bayeslab.monte_carlo.annealed import AnnealedSampler, AnnealedState
from bayeslab.monte_carlo.importance import WeightedSampler, WeightedState
from bayeslab.monte_carlo.metropolis import IndependenceSampler
from bayeslab.monte_carlo.parallel import TemperingSampler, TemperingState
from bayeslab.monte_carlo.proposals import PriorSampler
from bayeslab.monte_carlo.rejection import RejectionSampler
from bayeslab.monte_carlo.sequential import SMCSampler
from bayeslab.monte_carlo.slices import SliceSampler
from bayeslab.monte_carlo.tempering import Population
from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Draws, Sampler
from planned import Planned, Thinned
from quick_cases import quick_ones
from ranks import LEVEL, smallest_p


@dataclass(frozen=True)
class WithoutDensity(PriorSampler):
    """Does not say the density of its draws, so that the prior counts twice."""

    def advance(self, key: Array, bound: Bound) -> tuple[Array, Draws]:
        key, draws = super().advance(key, bound)
        return key, draws._replace(stats=draws.stats | {"log_q": 0.0 * draws.stats["log_q"]})


class Unweighted(WeightedSampler):
    """Resamples all proposals alike."""

    def _filled(self, state: WeightedState, data: Any) -> WeightedState:
        filled = super()._filled(state, data)
        return filled._replace(ancestors=jnp.arange(self.num_samples, dtype=jnp.int32))


class KeepsTooMany(RejectionSampler):
    """Keeps a proposal with the cube root of its probability."""

    def _accepts(self, uniform: Array, log_ratio: Array) -> Array:
        return super()._accepts(uniform, log_ratio / 3)


class KeepsAll(SMCSampler):
    """Weights particles and resamples all alike."""

    def _resampled(self, key: Array, weighted: Population) -> Population:
        return super()._resampled(key, weighted._replace(log_weight=0 * weighted.log_weight))


class WithoutWeights(AnnealedSampler):
    """Hands out all particles alike, as if they had arrived at the posterior."""

    def _step(self, state: AnnealedState, bound: Bound) -> tuple[AnnealedState, Array]:
        state, rate = super()._step(state, bound)
        return state._replace(ancestors=jnp.arange(self.num_particles, dtype=jnp.int32)), rate


class HalfTheHeight(SliceSampler):
    """Its slices are those of the square root of the density."""

    def _log_density(self, bound: Bound, flat: Array) -> Array:
        return super()._log_density(bound, flat) / 2


class AlwaysTrades(TemperingSampler):
    """Neighbours trade places whatever the ratio."""

    def _swapped(self, key: Array, state: TemperingState) -> tuple[TemperingState, Array]:
        return super()._swapped(key, state._replace(log_likelihood=jnp.zeros_like(state.log_likelihood)))


PILOT = SMCSampler(100, 0.5, 1)
WEIGHTED = (1, 1000, 1000, resampling.systematic, True)
"""Settings of importance sampling: steps of a fit, proposals, samples, how these are drawn, and whether smoothed."""


def importance(sampler: Sampler) -> Thinned:
    return Thinned(Planned(sampler, num_warmup=1, num_samples=1000))


def population(sampler: Sampler) -> Thinned:
    return Thinned(Planned(sampler, num_warmup=60, num_samples=390))


RIGHT_AND_WRONG: dict[str, tuple[Any, Any]] = {
    "importance": (
        importance(WeightedSampler(PriorSampler(), *WEIGHTED)),
        importance(WeightedSampler(WithoutDensity(), *WEIGHTED)),
    ),
    "SIR": (
        Planned(WeightedSampler(PriorSampler(), 1, 4000, 39, resampling.multinomial, False), num_warmup=1),
        Planned(Unweighted(PriorSampler(), 1, 4000, 39, resampling.multinomial, False), num_warmup=1),
    ),
    "rejection": (
        Planned(RejectionSampler(PriorSampler(), 100_000, None)),
        Planned(KeepsTooMany(PriorSampler(), 100_000, None)),
    ),
    "independence": (
        Planned(IndependenceSampler(PriorSampler()), 0, thinning=20),
        Planned(IndependenceSampler(WithoutDensity()), 0, thinning=20),
    ),
    "SMC": (population(SMCSampler(390, 0.2, 1)), population(KeepsAll(390, 0.2, 1))),
    "annealed": (population(AnnealedSampler(PILOT, 390)), population(WithoutWeights(PILOT, 390))),
    "slices": (Planned(SliceSampler(200), thinning=2), Planned(HalfTheHeight(200), thinning=2)),
    "tempering": (Planned(TemperingSampler(4, 1, 200), thinning=10), Planned(AlwaysTrades(4, 1, 200), thinning=10)),
}
every_method = pytest.mark.parametrize("name", quick_ones(RIGHT_AND_WRONG, "SIR", "slices"))


@pytest.mark.parametrize(
    "lecture",
    [normal_known_variance, pytest.param(normal_known_mean, marks=pytest.mark.slow)],
    ids=["normal_known_variance", "normal_known_mean"],
)
@every_method
def test_wrong_ones_fail_the_calibration_that_right_ones_pass(name: str, lecture: ModuleType) -> None:
    right, wrong = RIGHT_AND_WRONG[name]
    number = 1000 if name in ("importance", "independence") else 300

    def ranked(method: Any) -> float:
        return smallest_p(sbc(8, lecture.model, lecture.example(), method, number, progress=False))

    assert ranked(right) > LEVEL > ranked(wrong)
