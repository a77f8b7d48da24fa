"""Wrong versions of the methods for parameters of state spaces fail the calibration that right ones pass.

The right ones are in `test_programs.py`; the test and its power are those of `ranks.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bayeslab import sbc
from bayeslab.models import nonlinear_state_space
from bayeslab.particles import ParticleFilter, ParticleGibbs, ParticleMarginalMetropolisHastings, paths
from bayeslab.particles.particle_metropolis import MarginalSampler
from bayeslab.transforms.analysis import Analysis
from ranks import LEVEL, smallest_p
from state_spaces import Y, unknown_precision

MODELS = [
    pytest.param(nonlinear_state_space.model, nonlinear_state_space.example(), id="volatility"),
    pytest.param(unknown_precision, {"num_steps": 8, "y": Y}, id="linear"),
]


class LikelihoodTwice(MarginalSampler):
    """Wrong: decides by the square of the estimated likelihood."""

    def _estimate(self, key: Any, bound: Any, flat: Any) -> Any:
        estimate = super()._estimate(key, bound, flat)
        return estimate._replace(log_density=2 * estimate.log_density - estimate.log_prior)


class CountsLikelihoodTwice(ParticleMarginalMetropolisHastings):
    def plan(self, analysis: Analysis) -> LikelihoodTwice:
        right: Any = super().plan(analysis)
        return LikelihoodTwice(right.settings, right.space, right.num_warmup)


def blind_ancestors(space: Any, bound: Any, scan: Any) -> Any:
    """Wrong: how well the path goes on from a particle is forgotten."""
    return lambda carry, step, states: jnp.zeros(len(jax.tree.leaves(carry)[0]))


def ranked(model: Any, data: Any, method: Any) -> float:
    return smallest_p(sbc(3, model, data, method, 300, progress=False))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data"), MODELS)
def test_particle_gibbs_whose_ancestors_forget_the_path(model: Any, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    method = ParticleGibbs(4, num_warmup=100, num_samples=39, thinning=10, num_chains=1)
    assert ranked(model, data, method) > LEVEL
    monkeypatch.setattr(paths, "_what_follows", blind_ancestors)
    assert ranked(model, data, method) < LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data"), MODELS)
def test_a_walk_that_counts_the_likelihood_twice(model: Any, data: Any) -> None:
    settings = {"num_warmup": 1000, "num_samples": 39, "thinning": 20, "num_chains": 1}
    assert ranked(model, data, ParticleMarginalMetropolisHastings(ParticleFilter(30), **settings)) > LEVEL
    assert ranked(model, data, CountsLikelihoodTwice(ParticleFilter(30), **settings)) < LEVEL
