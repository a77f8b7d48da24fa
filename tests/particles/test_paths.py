"""Paths against dense algebra, parameters against quadrature; wrong ancestors fail the same tests."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.contrib.control_flow import scan
from scipy.stats import gamma, norm

import bayeslab as bl
from bayeslab.particles import (
    BackwardSimulation,
    ParticleFilter,
    ParticleGibbs,
    ParticleMarginalMetropolisHastings,
    multinomial,
    paths,
)
from bayeslab.particles.particle_metropolis import MarginalSampler
from bayeslab.particles.paths import conditional_path
from bayeslab.particles.state_space import state_space
from bayeslab.programs.binding import bind
from bayeslab.transforms.analysis import Analysis
from quick_cases import quick_ones
from state_spaces import (
    Truth,
    Y,
    linear,
    linear_truth,
    optimal,
    second_order,
    second_order_truth,
    unknown_coefficient,
    unknown_precision,
)

DATA = {"num_steps": 8, "y": Y}
NUM_PATHS, NUM_BATCHES = 20_000, 40


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def largest_score(path: np.ndarray, truth: Truth) -> float:
    """The largest deviation of first and second moments of a chain of paths (draw, state) from the truth, in standard
    errors by means of batches."""
    scores = []
    for power, right in ((1, truth.mean), (2, truth.mean**2 + truth.sd**2)):
        batches = (path**power).reshape(NUM_BATCHES, -1, path.shape[1]).mean(1)
        scores.append((batches.mean(0) - right) / (batches.std(0, ddof=1) / np.sqrt(NUM_BATCHES)))
    return float(np.abs(scores).max())


def particle_gibbs_paths(settings: ParticleFilter, model: Any = linear) -> np.ndarray:
    """A chain of paths (draw, state) by the conditional filter alone, with all parameters given."""
    bound = bind(model, DATA)
    space = state_space(bound)

    def step(path: dict[str, Array], key: Array) -> tuple[dict[str, Array], Array]:
        path = conditional_path(key, settings, space, bound, path)
        return path, jnp.concatenate([jnp.atleast_1d(path[name]) for name in space.path])

    start = {name: jnp.zeros(bound.sites[name].shape) for name in space.path}
    keys = jax.random.split(jax.random.PRNGKey(1), NUM_PATHS + 500)
    return np.asarray(jax.jit(lambda keys: jax.lax.scan(step, start, keys)[1])(keys))[500:]


@pytest.mark.parametrize("guide", [None, optimal])
def test_few_particles_draw_paths_from_their_posterior(guide: Any) -> None:
    assert largest_score(particle_gibbs_paths(ParticleFilter(4, guide=guide)), linear_truth()) < 4.5


def test_a_state_that_follows_two_keeps_both_in_mind() -> None:
    assert largest_score(particle_gibbs_paths(ParticleFilter(4), second_order), second_order_truth()) < 4.5


def blind_ancestors(space: Any, bound: Any, scan: Any) -> Any:
    """Wrong: how well the path goes on from a particle is forgotten."""
    return lambda carry, step, states: jnp.zeros(len(jax.tree.leaves(carry)[0]))


def test_ancestors_that_forget_the_path_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_what_follows", blind_ancestors)
    assert largest_score(particle_gibbs_paths(ParticleFilter(4)), linear_truth()) > 8


def test_ancestors_that_forget_their_weights_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unweighted(key: Array, weights: Array, number: int) -> Array:
        return multinomial(key, jnp.full_like(weights, 1 / len(weights)) if number > 1 else weights, number)

    monkeypatch.setattr(paths, "multinomial", unweighted)
    assert largest_score(particle_gibbs_paths(ParticleFilter(4)), linear_truth()) > 8


def with_sorted_resampling(key: Array, weights: Array, number: int) -> Array:
    """Wrong: the first of all sorted ancestors is the one that the path from before replaces."""
    return multinomial(key, weights, number + 1)[1:] if number > 1 else multinomial(key, weights, number)


def test_sorted_ancestors_of_which_the_first_is_left_out_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "multinomial", with_sorted_resampling)
    assert largest_score(particle_gibbs_paths(ParticleFilter(4)), linear_truth()) > 5


def test_a_memory_of_one_step_is_too_short_for_a_state_that_follows_two(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = paths._what_follows
    short = lambda space, bound, scan: honest(space._replace(memory=1), bound, scan)  # noqa: E731
    monkeypatch.setattr(paths, "_what_follows", short)
    assert largest_score(particle_gibbs_paths(ParticleFilter(4), second_order), second_order_truth()) > 6


@pytest.mark.parametrize(
    ("model", "truth"),
    [pytest.param(linear, linear_truth(), marks=pytest.mark.slow), (second_order, second_order_truth())],
)
def test_backward_simulation_smooths(model: Any, truth: Truth) -> None:
    method = BackwardSimulation(ParticleFilter(2000), num_samples=100, num_chains=10)
    tree = bl.fit(0, model, DATA, method, progress=False)
    draws = [tree["posterior"][name].values.reshape(10, 100, -1) for name in ("z0", "z") if name in tree["posterior"]]
    by_run = np.concatenate(draws, -1).mean(1)
    error = by_run.std(0, ddof=1) / np.sqrt(10)
    assert (abs(by_run.mean(0) - truth.mean) < 6 * error).all()  # t with nine degrees of freedom
    np.testing.assert_allclose(np.concatenate(draws, -1).std((0, 1)), truth.sd, rtol=0.15)
    assert abs(tree.attrs["log_evidence"] - truth.log_evidence) < 6 * tree.attrs["log_evidence_se"] < 0.6


@cache
def precision_by_quadrature() -> tuple[float, float]:
    """Posterior mean and standard deviation of tau in `unknown_precision`."""
    grid = np.linspace(0.02, 14.0, 700)
    return moments(grid, np.array([linear_truth(q=tau**-0.5).log_evidence for tau in grid]) + gamma(2).logpdf(grid))


@cache
def coefficient_by_quadrature() -> tuple[float, float]:
    """Posterior mean and standard deviation of a in `unknown_coefficient`."""
    grid = np.linspace(-0.999, 0.999, 500)
    return moments(grid, np.array([linear_truth(a=a).log_evidence for a in grid]))


def moments(grid: np.ndarray, log_density: np.ndarray) -> tuple[float, float]:
    weights = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=weights)
    return float(mean), float(np.sqrt(np.average((grid - mean) ** 2, weights=weights)))


METROPOLIS = ParticleMarginalMetropolisHastings(ParticleFilter(50), num_warmup=500, num_samples=2000)
PARAMETERS = {
    "precision, Gibbs": (unknown_precision, "tau", ParticleGibbs(15, num_samples=2000), precision_by_quadrature),
    "coefficient, Gibbs": (unknown_coefficient, "a", ParticleGibbs(15, num_samples=1000), coefficient_by_quadrature),
    "precision, Metropolis": (unknown_precision, "tau", METROPOLIS, precision_by_quadrature),
}


@pytest.mark.parametrize("name", quick_ones(PARAMETERS, "coefficient, Gibbs", "precision, Metropolis"))
def test_parameters_have_the_posterior_that_quadrature_gives(name: str) -> None:
    import arviz as az

    model, parameter, method, truth = PARAMETERS[name]
    tree = bl.fit(2, model, DATA, method, progress=False)
    mean, sd = truth()
    draws = tree["posterior"][parameter]
    for values, right in ((draws, mean), ((draws - mean) ** 2, sd**2)):
        assert abs(float(values.mean()) - right) < 4 * float(az.mcse(values))
    assert float(az.rhat(draws)) < 1.02
    assert set(tree["posterior"].data_vars) == {parameter, "z0", "z"}


class PriorTwice(MarginalSampler):
    """Wrong: decides by estimates that have the prior of the parameters in them already."""

    def _estimate(self, key: Array, bound: Any, flat: Array) -> Any:
        estimate = super()._estimate(key, bound, flat)
        return estimate._replace(log_density=estimate.log_density + estimate.log_prior)


class CountsPriorTwice(ParticleMarginalMetropolisHastings):
    def plan(self, analysis: Analysis) -> PriorTwice:
        right: Any = super().plan(analysis)
        return PriorTwice(right.settings, right.space, right.num_warmup)


def test_a_walk_that_counts_the_prior_of_parameters_twice_is_found_out() -> None:
    import arviz as az

    method = CountsPriorTwice(ParticleFilter(50), num_warmup=500, num_samples=1000)
    tau = bl.fit(2, unknown_precision, DATA, method, progress=False)["posterior"]["tau"]
    mean, sd = precision_by_quadrature()
    squares = (tau - mean) ** 2
    assert abs(float(squares.mean()) - sd**2) > 8 * float(az.mcse(squares))


def near(num_steps: int) -> None:
    """A state that is measured so closely that few particles can be where it was."""
    q = numpyro.sample("q", dist.Gamma(3.0, 1.0))

    def step(carry: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(0.0, q))
        numpyro.sample("y", dist.Uniform(z - 2.0, z + 2.0))
        return z, None

    scan(step, 0.0, None, num_steps)


@pytest.mark.slow
def test_chains_that_begin_where_no_particle_is_possible_come_to_where_some_are() -> None:
    """Against quadrature; before it looks at the data a chain is where q is too small for them."""
    import arviz as az

    y = np.array([14.0, -15.0])
    grid = np.linspace(0.05, 60, 4000)
    inside = norm.cdf((y[:, None] + 2) / grid) - norm.cdf((y[:, None] - 2) / grid)
    with np.errstate(divide="ignore"):
        mean, sd = moments(grid, np.log(inside).sum(0) + gamma(3).logpdf(grid))
    method = ParticleMarginalMetropolisHastings(ParticleFilter(300), num_warmup=1500, num_samples=3000, num_chains=2)
    tree = bl.fit(0, near, {"num_steps": 2, "y": y}, method, progress=False)
    q = tree["posterior"]["q"]
    assert np.isfinite(tree["sample_stats"]["lp"]).all()
    assert abs(float(q.mean()) - mean) < 4 * float(az.mcse(q))
    assert abs(float(q.std()) - sd) < 0.15 * sd
