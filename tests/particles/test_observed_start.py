"""Values observed of the state that a scan starts from, against dense algebra and quadrature."""

from typing import Any

import arviz as az
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.particles import (
    BackwardSimulation,
    ParticleFilter,
    ParticleGibbs,
    ParticleMarginalMetropolisHastings,
    particle_filter,
)
from bayeslab.particles.state_space import StateSpace, state_space
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.sampling.executables import compile_sampler
from state_spaces import Y, observed_start, observed_start_truth, unknown_coefficient_after_a_start

FIRST = -1.5
"""A value two standard deviations below what the prior of the start expects."""
DATA = {"num_steps": 8, "y0": FIRST, "y": Y}
TRUTH = observed_start_truth(FIRST)


def test_it_is_no_parameter() -> None:
    with precision_scope():
        assert state_space(bind(observed_start, DATA)) == StateSpace(("z",), ("z0",), ("y0",), (), 1)


def smoothed() -> tuple[np.ndarray, float]:
    """Deviations of smoothed means and of the log evidence, in standard errors."""
    tree = bl.fit(0, observed_start, DATA, BackwardSimulation(ParticleFilter(500), 100, num_chains=20), progress=False)
    draws = np.concatenate([tree["posterior"]["z0"].values[..., None], tree["posterior"]["z"].values], -1).mean(1)
    means = (draws.mean(0) - TRUTH.mean) / (draws.std(0, ddof=1) / np.sqrt(20))
    return means, (tree.attrs["log_evidence"] - TRUTH.log_evidence) / tree.attrs["log_evidence_se"]


def test_filters_and_backward_simulation_weigh_the_start() -> None:
    means, evidence = smoothed()
    assert (abs(means) < 5).all()
    assert abs(evidence) < 5
    tree = bl.particles.filter(1, observed_start, DATA, ParticleFilter(1000), (), 16)
    assert abs(tree.attrs["log_evidence"] - TRUTH.log_evidence) < 5 * tree.attrs["log_evidence_se"] < 0.2
    mean = tree["filtered/mean"]["z"]
    assert (abs(mean.mean("run") - TRUTH.filtered[1:]) < 5 * mean.std("run", ddof=1) / 4).all()


def test_a_start_whose_weights_are_forgotten_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = particle_filter.draw_start

    def unweighted(key: Any, number: int, space: StateSpace, *rest: Any) -> Any:
        return right(key, number, space._replace(initial_observed=()), *rest)

    monkeypatch.setattr(particle_filter, "draw_start", unweighted)
    compile_sampler.cache_clear()
    try:
        means, evidence = smoothed()
    finally:
        compile_sampler.cache_clear()
    assert abs(means).max() > 10
    assert abs(evidence) > 10


def test_particle_gibbs_draws_the_start_given_what_is_observed_of_it() -> None:
    tree = bl.fit(2, observed_start, DATA, ParticleGibbs(10, num_samples=1000), progress=False)
    draws = tree["posterior"]["z0"]
    assert abs(float(draws.mean()) - TRUTH.mean[0]) < 4 * float(az.mcse(draws))
    assert abs(float(((draws - TRUTH.mean[0]) ** 2).mean()) / TRUTH.sd[0] ** 2 - 1) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [ParticleGibbs(15), ParticleMarginalMetropolisHastings(ParticleFilter(50), 500, 2000)], ids=["pg", "pmmh"]
)
def test_parameters_have_the_posterior_that_quadrature_gives(method: Any) -> None:
    grid = np.linspace(-0.999, 0.999, 500)
    log_density = np.array([observed_start_truth(FIRST, a=a).log_evidence for a in grid])
    mean = np.average(grid, weights=np.exp(log_density - log_density.max()))
    draws = bl.fit(3, unknown_coefficient_after_a_start, DATA, method, progress=False)["posterior"]["a"]
    assert abs(float(draws.mean()) - mean) < 4 * float(az.mcse(draws))
    assert float(az.rhat(draws)) < 1.02


def uniform_start(y: Any, first: Any) -> None:
    z0 = numpyro.sample("z0", dist.Uniform(0.0, 1.0))
    numpyro.sample("first", dist.Uniform(z0, z0 + 1.0), obs=first)

    def step(z: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(z, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=value)
        return z, None

    scan(step, z0, y)


def test_a_first_value_that_no_particle_allows_is_impossible() -> None:
    with pytest.raises(ValueError, match="first"):
        bl.fit(0, uniform_start, {"y": np.zeros(3), "first": 5.0}, BackwardSimulation(), progress=False)


@pytest.mark.slow
def test_a_first_value_that_half_of_the_particles_allow() -> None:
    data = {"y": np.zeros(3), "first": 1.5}
    tree = bl.particles.filter(0, uniform_start, data, ParticleFilter(500), (), 20)
    steps = np.arange(1.0, 4.0)
    given = multivariate_normal(cov=np.minimum.outer(steps, steps) + np.eye(3))
    starts = np.linspace(0.5, 1.0, 501)
    evidence = np.trapezoid([given.pdf(np.full(3, -start)) for start in starts], starts)
    assert abs(tree.attrs["log_evidence"] - np.log(evidence)) < 5 * tree.attrs["log_evidence_se"] < 0.1
