"""What particles follow and what they refuse; calibration of particle Gibbs on a nonlinear model."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import bayeslab as bl
from bayeslab.methods.moves.noncentered import noncentered_sites
from bayeslab.models import local_level, nonlinear_state_space
from bayeslab.particles import BackwardSimulation, ParticleFilter, ParticleGibbs, ParticleMarginalMetropolisHastings
from bayeslab.programs.binding import bind
from state_spaces import Y, linear, unknown_precision

DATA = {"num_steps": 8, "y": Y}


def backwards(y: Any) -> None:
    def step(z: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(z, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=value)
        return z, None

    scan(step, 0.0, y, reverse=True)


def observed_later(num_steps: int) -> None:
    def step(z: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(z, 1.0))
        return z, z

    _, z = scan(step, 0.0, None, num_steps)
    with numpyro.plate("step", num_steps):
        numpyro.sample("y", dist.Normal(z, 1.0))


def stateless(num_steps: int) -> None:
    def step(sd: Any, _: Any) -> Any:
        y = numpyro.sample("y", dist.Normal(0.0, sd))
        return 0.5 + 0.5 * jnp.abs(y), None

    scan(step, 1.0, None, num_steps)


def drawn_later(num_steps: int) -> None:
    linear(num_steps)
    numpyro.sample("c", dist.Normal(0.0, 1.0))


def met_by_another_site(num_steps: int) -> None:
    first = numpyro.sample("first", dist.Normal(0.0, 1.0))
    numpyro.sample("x", dist.Normal(first, 1.0))

    def step(z: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(z, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0))
        return z, None

    scan(step, first, None, num_steps)


def summing(num_steps: int) -> None:
    def step(total: Any, _: Any) -> Any:
        z = numpyro.sample("z", dist.Normal(0.1 * total, 1.0))
        numpyro.sample("y", dist.Normal(total, 1.0))
        return total + z, None

    scan(step, 0.0, None, num_steps)


def loop(num_steps: int) -> None:
    """As states are written before one has met scans, with some values that nobody measured."""
    z = 0.0
    for step in range(num_steps):
        z = numpyro.sample(f"z_{step}", dist.Normal(jnp.sin(z), 1.0))
        numpyro.sample(f"y_{step}", dist.Normal(z**2, 1.0))


def other_site(carry: Any, element: Any, values: Any) -> None:
    numpyro.sample("state", dist.Normal(carry, 1.0))


def filtered(model: Any, data: Any, settings: ParticleFilter | None = None) -> Any:
    return bl.particles.filter(0, model, data, settings)


def fitted(model: Any, data: Any, method: Any) -> Any:
    return bl.fit(0, model, data, method, progress=False)


REFUSED = {
    "no scan": (
        lambda: filtered(local_level.model, local_level.example()),
        "control_flow.scan, and the program has none",
    ),
    "a loop": (
        lambda: filtered(loop, {"num_steps": 5, "y_0": 1.0, "y_3": 0.5}),
        r"among 'z_0', 'z_1', 'y_1', \.\.\. as scan\(step, start, elements\)",
    ),
    "backwards": (lambda: filtered(backwards, {"y": Y}), "backwards in time"),
    "observed later": (lambda: filtered(observed_later, DATA), "site 'y' comes after the scan; observe it in the body"),
    "drawn later": (lambda: filtered(drawn_later, DATA), "site 'c' comes after the scan"),
    "no state": (lambda: filtered(stateless, DATA), "draws no latent site"),
    "met": (
        lambda: filtered(met_by_another_site, DATA),
        "density of site 'x' depends on site 'first', which the scan starts from; particles need latent sites",
    ),
    "parameters": (lambda: filtered(unknown_precision, DATA), "site 'tau' is a parameter of the steps; give values"),
    "guide": (
        lambda: filtered(linear, DATA, ParticleFilter(guide=other_site)),
        r"guide draws sites of the shapes {'state': \(\)}, but those of one step of the scan are {'z': \(\)}",
    ),
    "sum": (lambda: fitted(summing, DATA, ParticleGibbs()), "carries something of all states so far"),
    "sum, smoothed": (lambda: fitted(summing, DATA, BackwardSimulation()), "carries something of all states so far"),
    "smoothed": (lambda: fitted(unknown_precision, DATA, BackwardSimulation()), "site 'tau' is a parameter"),
    "no parameter": (lambda: fitted(linear, DATA, ParticleMarginalMetropolisHastings()), "none to walk over"),
    "collapsed": (
        lambda: fitted(bl.collapse(unknown_precision, "z0"), DATA, ParticleGibbs()),
        "give the program without sites integrated out",
    ),
    "particles": (lambda: ParticleFilter(0), "num_particles of ParticleFilter must be a positive integer"),
    "one particle": (lambda: ParticleGibbs(1), "at least 2"),
    "share": (lambda: ParticleFilter(ess_share=1.5), "ess_share must be from 0 to 1, but is 1.5"),
    "runs": (lambda: bl.particles.filter(0, linear, DATA, num_runs=0), "num_runs must be a positive integer"),
    "quantiles": (lambda: bl.particles.filter(0, linear, DATA, None, (5.0,)), "quantiles must be between 0 and 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        call()


def test_resampling_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="resampling must be a function, not 'systematic'"):
        ParticleFilter(resampling="systematic")  # type: ignore[arg-type]


def test_a_carry_that_is_a_sum_can_be_filtered() -> None:
    assert np.isfinite(filtered(summing, DATA, ParticleFilter(50)).attrs["log_evidence"])


def test_one_step_and_one_particle() -> None:
    tree = bl.particles.filter(0, linear, {"num_steps": 1, "y": Y[:1]}, ParticleFilter(1), num_runs=1)
    assert tree["filtered/sd"]["z"].values == 0.0
    assert np.isnan(tree.attrs["log_evidence_se"])


@pytest.mark.slow
def test_particle_gibbs_goes_on_where_it_stopped() -> None:
    method = ParticleGibbs(5, num_warmup=10, num_samples=10, num_chains=2)
    longer = ParticleGibbs(5, num_warmup=10, num_samples=20, num_chains=2)
    first = fitted(unknown_precision, DATA, method)
    both = bl.fit(0, unknown_precision, DATA, method, previous=first, progress=False)
    np.testing.assert_array_equal(both["posterior"]["z"], fitted(unknown_precision, DATA, longer)["posterior"]["z"])


def test_nuts_leaves_sites_of_a_scan_in_the_coordinates_of_the_program() -> None:
    assert noncentered_sites(bind(unknown_precision, DATA)) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "data"),
    [(nonlinear_state_space.model, nonlinear_state_space.example()), (unknown_precision, DATA)],
    ids=["volatility", "linear"],
)
@pytest.mark.parametrize(
    "method",
    [
        ParticleGibbs(10, num_warmup=100, num_samples=63, thinning=10, num_chains=1),
        ParticleMarginalMetropolisHastings(
            ParticleFilter(30), num_warmup=1000, num_samples=63, thinning=20, num_chains=1
        ),
    ],
    ids=lambda method: type(method).__name__,
)
def test_both_methods_for_parameters_are_calibrated(model: Any, data: Any, method: Any) -> None:
    checks = bl.sbc(3, model, data, method, num_simulations=150, progress=False)
    assert bl.calibration_verdict(checks).attrs["passes"]
