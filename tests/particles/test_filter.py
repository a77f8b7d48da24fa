"""Particle filters against dense algebra: evidence without bias, filtered states; wrong filters fail the same tests."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan

import bayeslab as bl
from bayeslab.particles import ParticleFilter, multinomial, particle_filter, residual, stratified, systematic
from bayeslab.particles.particle_filter import run_filter
from bayeslab.particles.state_space import StateSpace, state_space
from bayeslab.programs.binding import bind
from quick_cases import quick_ones
from state_spaces import (
    Y,
    broad,
    linear,
    linear_truth,
    observed_in_the_program,
    optimal,
    second_order,
    second_order_truth,
)

NUM_RUNS = 1000
LONG = np.where(np.isin(np.arange(24), (2, 5, 17)), np.nan, np.tile(Y, 3))
"""Three times the values, some of them missing."""
SETTINGS = {
    "bootstrap": ParticleFilter(200),
    "every step": ParticleFilter(200, stratified, 1.0),
    "multinomial": ParticleFilter(200, multinomial, 1.0),
    "residual": ParticleFilter(200, residual, 0.7),
    "no resampling": ParticleFilter(200, systematic, 0.0),
    "broad guide": ParticleFilter(200, guide=broad),
    "optimal guide": ParticleFilter(200, guide=optimal),
}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def ratios(settings: ParticleFilter, model: Any = linear, truth: Any = None, y: np.ndarray = Y) -> np.ndarray:
    """Estimates of the evidence over the evidence (run,), of independent runs."""
    bound = bind(model, {"num_steps": len(y), "y": y})
    space = state_space(bound)
    exact = (linear_truth(y) if truth is None else truth).log_evidence

    def run(key: Array) -> Array:
        return run_filter(key, settings, space, bound, {}, lambda particles: particles.log_increment)[1].sum()

    keys = jax.random.split(jax.random.PRNGKey(3), NUM_RUNS)
    return np.exp(np.asarray(jax.jit(jax.vmap(run))(keys)) - exact)


def deviation(values: np.ndarray) -> float:
    """The deviation of the mean of these from 1, in its standard errors."""
    return float((values.mean() - 1) / (values.std(ddof=1) / np.sqrt(len(values))))


@pytest.mark.parametrize("name", quick_ones(SETTINGS, "bootstrap", "optimal guide"))
def test_evidence_has_no_bias(name: str) -> None:
    found = ratios(SETTINGS[name])
    assert abs(deviation(found)) < 4
    if name == "optimal guide":  # the bootstrap filter has 0.24
        assert found.std() < 0.12


def test_evidence_where_values_are_missing_and_where_two_states_are_carried() -> None:
    assert abs(deviation(ratios(SETTINGS["bootstrap"], y=LONG))) < 4
    assert abs(deviation(ratios(SETTINGS["bootstrap"], second_order, second_order_truth()))) < 4


def weights_kept(key: Array, settings: ParticleFilter, log_weights: Array, _: Array) -> Any:
    """Wrong: particles are resampled, but keep the weights that they were resampled by."""
    ancestors = settings.resampling(key, jnp.exp(log_weights), settings.num_particles)
    return ancestors, log_weights[ancestors] - logsumexp(log_weights[ancestors]), jnp.array(True)


def weights_lost(key: Array, settings: ParticleFilter, log_weights: Array, _: Array) -> Any:
    """Wrong: weights are made equal without resampling."""
    number = settings.num_particles
    return jnp.arange(number), jnp.full(number, -jnp.log(number)), jnp.array(False)


@pytest.mark.parametrize("wrong", [weights_kept, weights_lost])
def test_wrong_resampling_is_found_out(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(particle_filter, "_resampled", wrong)
    assert abs(deviation(ratios(SETTINGS["bootstrap"]))) > 6


def test_a_guide_whose_density_is_left_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = particle_filter.log_weight
    monkeypatch.setattr(particle_filter, "log_weight", lambda *arguments: honest(*arguments[:-1], None))
    assert abs(deviation(ratios(SETTINGS["broad guide"]))) > 6


def filtered_scores() -> np.ndarray:
    """Deviations of filtered means from those of the Kalman filter, in standard errors (step,)."""
    tree = bl.particles.filter(0, linear, {"num_steps": 8, "y": Y}, ParticleFilter(2000), (), 16)
    mean = tree["filtered/mean"]["z"]
    return ((mean.mean("run") - linear_truth().filtered) / (mean.std("run", ddof=1) / 4)).values


def test_filtered_states_are_those_of_the_kalman_filter() -> None:
    assert np.abs(filtered_scores()).max() < 5  # t with fifteen degrees of freedom


def test_what_a_filter_returns() -> None:
    tree, truth = bl.particles.filter(0, linear, {"num_steps": 8, "y": Y}, ParticleFilter(2000)), linear_truth()
    quantile = tree["filtered/quantile"]["z"]
    assert tree["filtered/mean"]["z"].dims == ("run", "z_dim_0")
    assert quantile.dims == ("run", "quantile", "z_dim_0")
    last = quantile.mean("run").isel(z_dim_0=-1)
    np.testing.assert_allclose((last - truth.mean[-1]) / truth.sd[-1], [-1.645, 0.0, 1.645], atol=0.15)
    assert tree["filtered/sd"]["z"].isel(z_dim_0=-1).mean() == pytest.approx(truth.sd[-1], rel=0.04)
    assert abs(tree.attrs["log_evidence"] - truth.log_evidence) < 6 * tree.attrs["log_evidence_se"] < 0.4
    assert ((tree["filter_stats"]["ess"] > 1) & (tree["filter_stats"]["ess"] <= 2000)).all()


def test_without_resampling_weights_degenerate() -> None:
    """Whiteboard notes, "SIS": of 20,000 particles 12,712 count in the first step and 4 after 40."""
    rng = np.random.default_rng(1)
    steps = rng.normal(size=40)
    z = [steps[0]]
    for step in steps[1:]:
        z.append(0.9 * z[-1] + step)
    data = {"num_steps": 40, "a": 0.9, "q": 1.0, "r": 1.0, "y": np.array(z) + rng.normal(size=40)}
    sis = bl.particles.filter(0, linear, data, ParticleFilter(20_000, ess_share=0.0), (), 1)["filter_stats"]["ess"]
    sir = bl.particles.filter(0, linear, data, ParticleFilter(20_000), (), 1)["filter_stats"]
    assert sis[0, 0] > 8000
    assert sis[0, -1] < 20
    assert sir["ess"].min() > 500
    assert 0 < sir["resampled"].sum() < 40


def test_parts_of_programs() -> None:
    assert state_space(bind(linear, {"num_steps": 8, "y": Y})) == StateSpace(("z",), ("z0",), (), (), 1)
    assert state_space(bind(second_order, {"num_steps": 8, "y": Y})) == StateSpace(("z",), (), (), (), 2)
    both = bind(observed_in_the_program, {"y": np.stack([Y, Y], 1)})
    assert state_space(both) == StateSpace(("z",), ("z0",), (), (), 1)


def bounded(num_steps: int) -> None:
    """A bound that moves, and values below it."""

    def step(z: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.LogNormal(0.1 * jnp.log(z), 0.1))
        numpyro.sample("y", dist.Uniform(0.0, z))
        return z, None

    scan(step, 1.0, None, num_steps)


def test_values_beyond_all_particles_have_no_evidence() -> None:
    """Nor have states a distribution from there on; before, they have."""
    data = {"num_steps": 3, "y": np.array([0.5, 9.0, 0.5])}
    tree = bl.particles.filter(0, bounded, data, ParticleFilter(50), num_runs=2)
    assert tree.attrs["log_evidence"] == -np.inf
    for group in ("mean", "sd", "quantile"):
        known = np.isfinite(tree[f"filtered/{group}"]["z"])
        np.testing.assert_array_equal(
            known.any([dim for dim in known.dims if dim not in ("run", "z_dim_0")]), [[1, 0, 0]] * 2
        )


def test_series_side_by_side_have_the_product_of_their_evidences() -> None:
    settings = ParticleFilter(4000)
    tree = bl.particles.filter(0, observed_in_the_program, {"y": np.stack([Y, Y], 1)}, settings, (), 8)
    assert tree["filtered/mean"]["z"].dims == ("run", "z_dim_0", "series")
    assert abs(tree.attrs["log_evidence"] - 2 * linear_truth().log_evidence) < 6 * tree.attrs["log_evidence_se"] < 0.6


@pytest.mark.parametrize(("width", "is_narrow"), [(0.1, True), (1.0, False), (1.5, False)])
def test_a_guide_that_is_too_narrow_is_named(width: float, is_narrow: bool) -> None:
    """Runs of it agree on an evidence that is far off; others are right, and get no line."""

    def guide(carry: Any, *_: Any) -> None:
        numpyro.sample("z", dist.Normal(0.8 * carry, width * 0.7))

    data = {"num_steps": 8, "y": Y}
    tree = bl.particles.filter(0, linear, data, ParticleFilter(1000, guide=guide), (), 8)
    error = tree.attrs["log_evidence"] - linear_truth().log_evidence
    assert (abs(error) > 6 * tree.attrs["log_evidence_se"]) == is_narrow
    text = bl.diagnose(tree)
    assert ("Guide: k-hat" in text) == is_narrow
    assert is_narrow or text == ""
    assert bl.diagnose(bl.particles.filter(0, linear, data, ParticleFilter(1000), (), 4)) == ""


def test_runs_that_differ_and_values_that_no_particle_allows_are_named() -> None:
    data = {"num_steps": 3, "y": np.array([0.5, 9.0, 0.5])}
    lost = bl.diagnose(bl.particles.filter(0, bounded, data, ParticleFilter(50), (), 2))
    assert "in 2 of 2 runs no particle allows what is observed (run 0, step 1)" in lost
    few = bl.particles.filter(0, linear, {"num_steps": 8, "y": 3 * Y}, ParticleFilter(3), (), 16)
    assert few.attrs["log_evidence_sd"] > 1
    assert "between runs, above 1; take more particles" in bl.diagnose(few)
