"""Simulation-based calibration of the Monte Carlo methods, and of wrong ones, which must fail it.

The test and its power are those of `ranks.py`.
"""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest
from jax import Array

from bayeslab import sbc
from bayeslab.models import beta_binomial, normal_gamma, normal_known_variance
from bayeslab.monte_carlo import (
    SIR,
    SMC,
    AnnealedImportance,
    ImportanceSampling,
    Independence,
    MetropolisHastings,
    ParallelTempering,
    Proposal,
    RejectionSampling,
    Slice,
)
from bayeslab.monte_carlo.metropolis import RandomWalkSampler, WalkState
from bayeslab.monte_carlo.rejection import RejectionSampler
from bayeslab.programs.program import Bound, Values
from bayeslab.sampling.protocols import Draws, Method, Sampler
from bayeslab.transforms.analysis import Analysis
from planned import Planned, Thinned
from quick_cases import quick_ones
from ranks import LEVEL, smallest_p
from two_modes import DATA, product

SHORT_CHAIN = {"num_warmup": 200, "num_samples": 39, "num_chains": 1}
METHODS: dict[str, Method] = {
    "importance": Thinned(ImportanceSampling(num_samples=4000)),
    "SIR": SIR(num_proposals=4000, num_samples=39),
    "rejection": RejectionSampling(num_samples=39),
    "random walk": MetropolisHastings(**SHORT_CHAIN, thinning=20),
    "independence": MetropolisHastings(Independence(), num_samples=39, num_chains=1, thinning=20),
    "slices": Slice(**SHORT_CHAIN, thinning=2),
    "SMC": Thinned(SMC(num_samples=400, num_moves=5, num_temperatures=50)),
    "annealed": Thinned(AnnealedImportance(num_samples=400, ess_share=0.9, num_moves=3, num_temperatures=100)),
    "tempering": ParallelTempering(num_temperatures=4, num_moves=2, thinning=10, **SHORT_CHAIN),
}
every_method = pytest.mark.parametrize("name", METHODS)


@pytest.mark.parametrize(
    "name", quick_ones(METHODS, *(name for name in METHODS if name not in ("importance", "rejection", "SMC")))
)
def test_methods_are_calibrated(name: str) -> None:
    lecture = normal_known_variance
    assert smallest_p(sbc(1, lecture.model, lecture.example(), METHODS[name], 300, progress=False)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("lecture", [beta_binomial, normal_gamma], ids=["beta_binomial", "normal_gamma"])
@every_method
def test_methods_are_calibrated_on_more_models(name: str, lecture: ModuleType) -> None:
    assert smallest_p(sbc(2, lecture.model, lecture.example(), METHODS[name], 1000, progress=False)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("name", ["importance", "SIR", "rejection", "SMC", "annealed", "tempering"])
def test_methods_are_calibrated_where_there_are_two_modes(name: str) -> None:
    """Those that see the whole of a space do find both; chains that walk do not."""
    method = METHODS[name]
    if name == "tempering":
        method = ParallelTempering(num_temperatures=6, num_moves=4, thinning=20, **SHORT_CHAIN)
    assert smallest_p(sbc(3, product, DATA, method, 1000, progress=False)) > LEVEL


def stretch(key: Array, values: Values) -> Values:
    """Multiplies the precision by a random factor, and moves the mean."""
    factor_key, step_key = jax.random.split(key)
    factor = jnp.exp(0.8 * jax.random.normal(factor_key))
    return {"tau": values["tau"] * factor, "mu": values["mu"] + 0.5 * jax.random.normal(step_key)}


def stretch_density(new: Values, old: Values) -> Array:
    step = dist.Normal(old["mu"], 0.5).log_prob(new["mu"])
    return dist.LogNormal(jnp.log(old["tau"]), 0.8).log_prob(new["tau"]) + step


@pytest.mark.parametrize(("log_density", "passes"), [(stretch_density, True), (None, False)])
def test_an_accept_step_that_forgets_the_proposal_ratio_fails(log_density: Any, passes: bool) -> None:
    method = MetropolisHastings(Proposal(stretch, log_density), **SHORT_CHAIN, thinning=20)
    checks = sbc(4, normal_gamma.model, normal_gamma.example(), method, 600, progress=False)
    assert (smallest_p(checks) > LEVEL) == passes


class OnlyAccepted(RandomWalkSampler):
    """Records a state only when it was accepted, as the algorithm is printed in the lecture (M56)."""

    def advance(self, state: WalkState, bound: Bound) -> tuple[WalkState, Draws]:
        def stayed(carry: tuple[WalkState, Draws]) -> Array:
            return jnp.all(carry[0].current.position == state.current.position)

        step = super().advance
        return jax.lax.while_loop(stayed, lambda carry: step(carry[0], bound), step(state, bound))


@pytest.mark.parametrize(
    ("kind", "passes"), [pytest.param(RandomWalkSampler, True, marks=pytest.mark.slow), (OnlyAccepted, False)]
)
def test_a_chain_that_does_not_record_where_it_stays_fails(kind: type[RandomWalkSampler], passes: bool) -> None:
    lecture = normal_known_variance
    method = Planned(kind(0, 4.0), num_warmup=50, thinning=5 if kind is OnlyAccepted else 40)
    assert (smallest_p(sbc(5, lecture.model, lecture.example(), method, 1000, progress=False)) > LEVEL) == passes


class TooLow(RejectionSampler):
    """Has a bound that is three nats too low: what lies above it is kept with probability one only."""

    def _accepts(self, uniform: Array, log_ratio: Array) -> Array:
        return super()._accepts(uniform, log_ratio + 3.0)


@dataclass(frozen=True)
class RejectionWithLowBound(RejectionSampling):
    def plan(self, analysis: Analysis) -> Sampler:
        sampler: Any = super().plan(analysis)
        return TooLow(sampler.inner, sampler.max_proposals, sampler.log_bound, sampler.mixture)


@pytest.mark.slow
def test_a_bound_that_is_too_low_fails() -> None:
    lecture = normal_known_variance
    method = RejectionWithLowBound(num_samples=39)
    assert smallest_p(sbc(7, lecture.model, lecture.example(), method, 1000, progress=False)) < LEVEL


def test_methods_are_records() -> None:
    """Equal settings are equal methods, so that nothing is compiled twice."""
    assert all(method == replace(method) and hash(method) == hash(replace(method)) for method in METHODS.values())
