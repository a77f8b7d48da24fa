"""Coordinates in which priors of unknown scale are partly standard: the density there, also of collapsed programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats import ess
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import potential_energy

import bayeslab as bl
from bayeslab.methods.mcmc import NUTSKernel, is_dense_mass_worthwhile
from bayeslab.methods.moves.noncentered import (
    NoncenteredSampler,
    _lowest_likely_scale,
    _noncentered_program,
    noncentered_sites,
)
from bayeslab.planning import default_method
from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, compilation_signature, precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import marginal
from hierarchies import HIERARCHIES
from hierarchy_programs import meta_analysis

RNG = np.random.default_rng(9)
TRUTH = RNG.normal(size=15)
MEASURED = {"x": TRUTH + 0.3 * RNG.normal(size=15), "y": 1 + 2 * TRUTH + 0.5 * RNG.normal(size=15)}


def errors_in_variables(x: Any, y: Any) -> None:
    """A regression on a covariate that is measured with errors: intercept and slope are jointly Normal given it."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 10.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
    noise = numpyro.sample("noise", dist.Gamma(1.0, 1.0))
    spread = numpyro.sample("spread", dist.Gamma(1.0, 1.0))
    with numpyro.plate("row", len(x)):
        true = numpyro.sample("true", dist.Normal(0.0, 1 / jnp.sqrt(spread)))
        numpyro.sample("x", dist.Normal(true, 0.3), obs=x)
        numpyro.sample("y", dist.Normal(intercept + slope * true, 1 / jnp.sqrt(noise)), obs=y)


def density_differences(bound: Bound) -> np.ndarray:
    """log density in partly standard coordinates, minus that of the program and the log Jacobian, at random points."""
    sites = noncentered_sites(bound)
    assert sites
    sampler = NoncenteredSampler(NUTSKernel(False, 0.8, 10), sites, compilation_signature(bound), 1)
    shapes = dict(unconstrained.unconstrained_shapes(bound))
    key = jax.random.PRNGKey(3)
    centering = {name: 0.2 + 0.6 * jax.random.uniform(key, shapes[name]) for name in sites}
    centered = {name: 0.5 * jax.random.normal(key, shape) for name, shape in shapes.items()}
    flat, unravel = ravel_pytree(sampler._moved_position(bound, centered, centering))

    @jax.jit
    def difference(flat: Any) -> Any:
        def centred(flat: Any) -> Any:
            return ravel_pytree(sampler._centered_position(bound, unravel(flat), centering))[0]

        own = ravel_pytree(centered)[1](centred(flat))
        log_jacobian = jnp.linalg.slogdet(jax.jacfwd(centred)(flat))[1]
        moved = -potential_energy(_noncentered_program, (bound, centering), {}, unravel(flat))
        return moved - unconstrained.log_posterior(bound, own) - log_jacobian

    points = [flat + 0.3 * np.random.default_rng(seed).normal(size=flat.size) for seed in range(3)]
    return np.array([difference(point) for point in points])


@pytest.mark.parametrize("collapsed", [(), ("intercept", "slope")], ids=["whole", "collapsed"])
def test_density_of_other_coordinates_is_that_of_the_program(collapsed: tuple[str, ...]) -> None:
    with precision_scope():
        bound = marginal(bl.bind(errors_in_variables, MEASURED), collapsed)
        np.testing.assert_allclose(density_differences(bound), 0.0, atol=1e-8)


def test_a_group_with_far_more_data_has_a_coordinate_of_its_own() -> None:
    """Fifteen small trials and one of 58,000 patients, which draws the mean of all to its own at the top."""
    control = np.array([131, 140, 194, 238, 32, 57, 210, 238, 81, 95, 220, 120, 86, 211, 82, 29000])
    deaths = np.array([14, 12, 14, 14, 4, 2, 26, 27, 1, 4, 19, 11, 6, 16, 18, 1413])
    deaths_treated = np.array([8, 14, 9, 7, 1, 3, 24, 24, 1, 1, 11, 2, 6, 7, 13, 1491])
    trials = {"control": control, "treated": control, "deaths": deaths, "deaths_treated": deaths_treated}
    with precision_scope():
        bound = bl.bind(meta_analysis, trials | {"shape": 0.001, "rate": 0.001})
        sampler = NoncenteredSampler(NUTSKernel(False, 0.8, 10), ("delta",), compilation_signature(bound), 1)
        share = np.asarray(jax.jit(sampler.start)(jax.random.PRNGKey(0), bound).centering["delta"])
    assert share[-1] > 0.6
    assert share[:-1].max() < 0.3


def test_a_shift_of_all_tells_nothing_of_a_scale_with_a_free_mean() -> None:
    """With an unknown mean, three values near each other have no scale however far they are from zero."""
    values, variances = jnp.array([5.0, 5.1, 4.9]), jnp.full(3, 0.1)
    assert _lowest_likely_scale(values, variances, has_free_mean=True) < 0.01
    assert _lowest_likely_scale(values, variances, has_free_mean=False) > 1.0
    shifted = _lowest_likely_scale(jnp.array([-1.0, 0.0, 3.0]), variances, True)
    assert shifted == _lowest_likely_scale(jnp.array([99.0, 100.0, 103.0]), variances, True) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", HIERARCHIES)
def test_density_of_other_coordinates_on_the_catalogue(name: str) -> None:
    """With what the default integrates out, where sites of unknown scale are left."""
    entry = HIERARCHIES[name]
    with precision_scope():
        analysis = Analysis(bl.bind(entry.program, entry.data))
        bound = marginal(analysis.bound, getattr(default_method(analysis).method, "collapse", ()), analysis)
        if noncentered_sites(bound):
            np.testing.assert_allclose(density_differences(bound), 0.0, atol=1e-6)


@pytest.mark.slow
def test_a_collapsed_program_is_sampled_right_in_other_coordinates() -> None:
    """The default integrates intercept and slope out and moves the covariate; Gibbs draws all from conditionals."""
    default = bl.fit(0, errors_in_variables, MEASURED, progress=False)
    assert default.attrs["method"] == "NUTS"
    gibbs = bl.fit(1, errors_in_variables, MEASURED, bl.Gibbs(num_samples=2000), progress=False)
    for name in ("noise", "spread", "slope"):
        one, other = (tree["posterior"][name].values for tree in (default, gibbs))
        error = np.hypot(*(draws.std() / np.sqrt(float(ess(draws))) for draws in (one, other)))
        assert abs(one.mean() - other.mean()) < 5 * error, name


def log_rates(y: Any, walks: bool) -> None:
    """Counts whose log rates are a random walk, or have effects of their own."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    prior = dist.GaussianRandomWalk(scale, len(y)) if walks else dist.Normal(0.0, scale).expand([len(y)])
    numpyro.sample("y", dist.Poisson(jnp.exp(numpyro.sample("rate", prior))), obs=y)


@pytest.mark.parametrize(("size", "walks", "dense"), [(60, True, True), (60, False, False), (200, True, False)])
def test_walks_have_dense_mass_matrices_in_more_dimensions(size: int, walks: bool, dense: bool) -> None:
    bound = bl.bind(log_rates, {"y": np.ones(size, int), "walks": walks})
    assert is_dense_mass_worthwhile(bound, bound.latent) is dense


@pytest.mark.slow
def test_a_walk_under_a_poisson_mixes() -> None:
    """With a diagonal mass matrix the least effective size was 77 of 4,000, and R-hat 1.07."""
    y = np.random.default_rng(11).poisson(np.exp(1 + np.cumsum(0.2 * RNG.normal(size=60))))
    tree = bl.fit(0, log_rates, {"y": y, "walks": True}, progress=False)
    assert not tree["sample_stats"]["diverging"].any()
    last, scale = tree["posterior"]["rate"].values[..., -1], tree["posterior"]["scale"].values
    assert min(float(ess(last)), float(ess(scale))) > 200


def num_runs_at_start(num_steps: int) -> int:
    """How often the program of a walk, a site a step, is run until the code of a start is traced."""
    runs = []

    def walk(y: Any) -> None:
        runs.append(1)
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        x = 0.0
        for step in range(num_steps):
            x = numpyro.sample(f"x_{step}", dist.Normal(x, scale))
            numpyro.sample(f"y_{step}", dist.Poisson(jnp.exp(x)), obs=y[step])

    with precision_scope():
        bound = bl.bind(walk, {"y": np.arange(num_steps)})
        sites = noncentered_sites(bound)
        assert len(sites) == num_steps
        sampler = NoncenteredSampler(NUTSKernel(False, 0.8, 10), sites, compilation_signature(bound), 1)
        runs.clear()
        jax.eval_shape(sampler.start, jax.random.PRNGKey(0), bound)
    return len(runs)


def test_a_program_is_run_no_oftener_for_more_sites() -> None:
    """Each run of a loop takes time in proportion to its steps; several for every step made a start quadratic."""
    assert num_runs_at_start(3) == num_runs_at_start(6)


def test_the_curvatures_of_several_sites_are_those_of_the_density() -> None:
    """Moved together the elements of a site have the curvature of a sum of second derivatives, here in closed form."""

    def model(y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        a = numpyro.sample("a", dist.Normal(jnp.zeros(2), scale))
        b = numpyro.sample("b", dist.Normal(a.sum(), scale))
        numpyro.sample("y", dist.Poisson(jnp.exp(b + a)), obs=y)

    with precision_scope():
        bound = bl.bind(model, {"y": np.array([2, 3])})
        sampler = NoncenteredSampler(NUTSKernel(False, 0.8, 10), ("a", "b"), compilation_signature(bound), 1)
        position = {"scale": jnp.log(0.5), "a": jnp.array([0.1, -0.2]), "b": jnp.array(0.3)}
        found = sampler._curvatures(bound, position)
    rates = np.exp(0.3 + np.array([0.1, -0.2]))
    np.testing.assert_allclose(found["b"], -rates.sum() - 4.0, rtol=1e-12)
    # of a_i: its own prior, the mean of b, which moves by two for both elements, and its rate
    np.testing.assert_allclose(found["a"], -rates - 4.0 - 8.0, rtol=1e-12)
