"""Densities that grow without bound where a scale goes to zero: an ascent ends where numbers do, not at a maximum."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.programs.unconstrained import flat_log_joint
from bayeslab.verification.optimum import check_maximum

SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def centred_schools(y: Any, prior: Any) -> None:
    """Effects of groups around their mean: with a prior that allows a scale of zero the density is unbounded."""
    mean = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    scale = numpyro.sample("tau", prior)
    with numpyro.plate("school", len(y)):
        effect = numpyro.sample("theta", dist.Normal(mean, scale))
        numpyro.sample("obs", dist.Normal(effect, 10.0), obs=y)


def sharp(y: Any) -> None:
    """A posterior of a standard deviation of 1e-11 around 1: a maximum, though a narrow one."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    numpyro.sample("y", dist.Normal(mean, 1e-11), obs=y)


def test_a_density_without_bound_is_not_said_to_want_more_steps() -> None:
    """The ascent goes on until the effects are as near to their mean as numbers are: here some are the next ones."""
    mean, rounding = 4.6, np.spacing(4.6)
    effects = mean + rounding * np.array([0, 1, -1, 0, 0, 2, 0, -1])
    with precision_scope(np.float64):
        bound = bind(centred_schools, {"y": SCHOOLS, "prior": dist.HalfCauchy(5.0)})
        ended = check_maximum(flat_log_joint, bound, jnp.array([mean, np.log(rounding / 3), *effects]))
    assert "narrower than rounding errors of 'mu', 'theta' in float64, as where a scale goes to zero" in ended.why
    assert ended.lasting


def test_a_scale_kept_from_zero_has_its_maximum() -> None:
    """Given the scale the mode of the effects is linear, and the profile of the scale has its maximum on a grid."""
    data = {"y": SCHOOLS, "prior": dist.Gamma(12.0, 1.0)}
    tree = bl.fit(0, centred_schools, data, bl.MAP(), progress=False)
    assert bl.diagnose(tree) == ""
    scales = np.linspace(1.0, 20.0, 20000)
    weight = 1 / (100 + scales**2)
    mean = weight * SCHOOLS.sum() / (weight * len(SCHOOLS) + 1 / 25)
    squares = ((SCHOOLS - mean[:, None]) ** 2).sum(1) * weight / 2
    profile = 11 * np.log(scales) - scales - len(SCHOOLS) * np.log(scales) - squares - mean**2 / 50
    assert float(tree["posterior"]["tau"].values.item()) == pytest.approx(scales[np.argmax(profile)], abs=2e-3)


def test_a_narrow_maximum_is_one() -> None:
    tree = bl.fit(0, sharp, {"y": 1.0}, bl.MAP(), progress=False)
    assert "narrower than rounding errors" not in bl.diagnose(tree)
    assert tree["posterior"]["mean"].values.item() == pytest.approx(1.0, abs=1e-10)


def product_of_shares() -> None:
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    q = numpyro.sample("q", dist.Beta(2.0, 2.0))
    numpyro.sample("k", dist.Binomial(10, p * q), obs=9)


def test_a_mode_at_the_end_of_a_support_is_one_where_other_sites_settle() -> None:
    """The density is q^10 (1 - q)^2 there, and an error of the flat direction along q would fall."""
    tree = bl.fit(0, product_of_shares, {}, bl.MAP(), progress=False)
    assert tree.attrs["converged"] == 1
    assert float(tree.posterior["p"].squeeze()) == pytest.approx(1.0)
    assert float(tree.posterior["q"].squeeze()) == pytest.approx(10 / 12, abs=1e-4)
    assert str(bl.diagnose(tree)) == ""


def test_an_ascent_that_ends_at_the_digits_of_rounding_has_converged() -> None:
    rng = np.random.default_rng(266)
    x = rng.integers(0, 2, (40, 4)).astype(float)
    y = x @ [0.1, 0.5, 0.3, 0.1] + rng.normal(0, 0.05, 40)

    def program(x: Any, y: Any) -> None:
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(4)))
        numpyro.sample("y", dist.Normal(x @ shares, numpyro.sample("sigma", dist.HalfNormal(0.2))), obs=y)

    assert bl.fit(0, program, {"x": x, "y": y}, bl.MAP(), progress=False).attrs["converged"] == 1


def test_an_ascent_that_rounding_ends_has_converged_however_many_rows_there_are() -> None:
    """The gradient that is left grows with the number of rows: no step changes a log joint of many rows."""
    rng = np.random.default_rng(2)
    x = np.c_[np.ones(10_000), rng.normal(size=10_000)]
    y = x @ [0.0, 0.97] + rng.normal(0, 0.27, 10_000)

    def program(x: Any) -> None:
        tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ weights, 1 / jnp.sqrt(tau)))

    with precision_scope():
        bound = bind(program, {"x": x, "y": y})
        tree = bl.fit(0, program, {"x": x, "y": y}, bl.MAP(), progress=False)
        assert tree.attrs["converged"] == 1
        top = np.append(np.log(tree.posterior["tau"].values.ravel()), tree.posterior["weights"].values.ravel())
        for distance, is_top in ((3e-9, True), (1e-4, False)):  # rises by 1e-13 and 1e-4 of a nat
            position = jnp.asarray(top + np.array([0, distance, 0]))
            assert (check_maximum(flat_log_joint, bound, position).why == "") == is_top
