"""Blocks of the Gibbs sampler: sites drawn jointly, NUTS for what has no conditional, and what it refuses."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats import ess
from scipy.special import softmax
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.models import normal_gamma
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from hierarchy_programs import growth_curves

FEW = {"num_rows": 3, "kappa0": 0.01, "y": np.array([1.0, 3.0, 2.5])}
MANY = FEW | {"num_rows": 400, "y": np.random.default_rng(0).normal(2.0, 0.5, 400)}


def blocks(data: dict[str, Any], method: bl.Gibbs) -> list[tuple[str, ...]]:
    with precision_scope():
        sampler = method.plan(Analysis(bind(normal_gamma.model, data)))
    return [tuple(rule.site for rule in block) for block in sampler.blocks]


def test_sites_are_drawn_jointly_when_asked_and_where_statistics_make_it_cheap() -> None:
    assert blocks(FEW, bl.Gibbs()) == [("mu",), ("tau",)]
    assert blocks(FEW, bl.Gibbs(joint=(("tau", "mu"),))) == [("mu", "tau")]
    assert blocks(MANY, bl.Gibbs()) == [("mu", "tau")]


@pytest.mark.parametrize("data", [pytest.param(FEW, marks=pytest.mark.slow), MANY], ids=["rows", "statistics"])
def test_joint_draws_are_independent_draws_of_the_exact_posterior(data: dict[str, Any]) -> None:
    method = bl.Gibbs(num_warmup=10, num_samples=2000, num_chains=2, joint=(("mu", "tau"),))
    tree = bl.fit(1, normal_gamma.model, data, method, progress=False)
    exact = bl.fit(2, normal_gamma.model, data, bl.Exact(20_000), progress=False)
    for name in ("mu", "tau"):
        one, other = tree["posterior"][name].values, exact["posterior"][name].values
        # 4,000 independent draws have an ESS of 4,000 with an sd of about 4,000 sqrt(2 log(4,000) / 4,000) = 260
        assert float(ess(one)) > 2700
        error = np.hypot(one.std() / np.sqrt(one.size), other.std() / np.sqrt(other.size))
        assert abs(one.mean() - other.mean()) < 5 * error


def curved(n: int) -> None:
    """The log of the rate has no conditional in closed form, the rest has."""
    shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("row", n):
        rate = numpyro.sample("rate", dist.Gamma(shape, 1.0))
        numpyro.sample("y", dist.Poisson(rate))


@pytest.mark.slow
def test_chains_leave_a_start_where_effects_are_all_but_equal() -> None:
    """Precisions drawn before the effects would be large, and keep effects together for hundreds of sweeps."""
    random = np.random.default_rng(3)
    t = np.array([-14.0, -7.0, 0.0, 7.0, 14.0])
    lines = 240 + 14 * random.normal(size=24) + (6 + 0.5 * random.normal(size=24)) * t[:, None]
    data = {
        "t": t,
        "groups": 24,
        "shape": 0.001,
        "rates": np.full(3, 0.001),
        "y": lines + 6 * random.normal(size=(5, 24)),
    }
    method = bl.Gibbs(num_warmup=100, num_samples=100, num_chains=16)
    sd_a = bl.fit(0, growth_curves, data, method, progress=False).posterior["sd_a"].mean("draw")
    # the means of chains that move are near 17, with an error of 0.5; those of chains that stay are below 1
    assert float(sd_a.min()) > 12


def test_a_block_of_nuts_reports_its_divergences() -> None:
    y = np.array([0, 2, 1, 4, 0, 3])
    tree = bl.fit(3, curved, {"n": 6, "y": y}, bl.Gibbs(num_samples=1500), progress=False)
    other = bl.fit(4, curved, {"n": 6, "y": y}, bl.NUTS(num_samples=1500), progress=False)
    assert tree["sample_stats"]["diverging"].dtype == bool
    assert tree["posterior"]["shape"].shape == (4, 1500)
    one, two = (t["posterior"]["shape"] for t in (tree, other))
    error = np.hypot(*(float(x.std() / np.sqrt(ess(x.values))) for x in (one, two)))
    assert abs(float(one.mean() - two.mean())) < 5 * error


WRONG: dict[str, tuple[Any, str]] = {
    "a name alone": (lambda: bl.Gibbs(joint=("tau", "mu")), "joint must be blocks of names"),
    "unknown": (lambda: blocks(FEW, bl.Gibbs(joint=(("tau", "nu"),))), "joint names 'nu', which is not a latent site"),
    "twice": (lambda: blocks(FEW, bl.Gibbs(joint=(("tau", "mu"), ("mu",)))), "joint names site 'mu' twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals(case: str) -> None:
    call, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        call()


def test_a_block_that_cannot_be_drawn_jointly_is_refused() -> None:
    def model(n: int) -> None:
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(mu, tau**-0.5))

    words = "'tau' and 'mu' cannot be taken jointly .*not Gamma given 'evidence of mu' once 'mu' is eliminated"
    with pytest.raises(ValueError, match=words):
        bl.fit(0, model, {"n": 3, "y": FEW["y"]}, bl.Gibbs(joint=(("tau", "mu"),)), progress=False)


def bent_line(x: np.ndarray) -> None:
    """A line whose slope changes at one of the covariates."""
    level = numpyro.sample("level", dist.Normal(0.0, 100.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 100.0).expand([2]).to_event(1))
    bend = numpyro.sample("bend", dist.Categorical(np.full(len(x), 1 / len(x))))
    after = (np.arange(len(x)) > bend).astype(int)
    numpyro.sample("y", dist.Normal(level + slope[after] * (x - x[bend]), 0.02))


def test_change_points_are_drawn_with_the_lines_integrated_out() -> None:
    """Given the lines on both sides of it, a change point would stay for hundreds of sweeps."""
    x = np.linspace(-1.4, 1.2, 12)
    y = 0.5 - 0.4 * x - 0.1 * np.maximum(x - 0.1, 0.0) + 0.02 * np.random.default_rng(2).normal(size=12)
    log_evidence = []
    for bend in range(12):
        after = np.arange(12) > bend
        design = np.stack([np.ones(12), np.where(after, 0.0, x - x[bend]), np.where(after, x - x[bend], 0.0)], axis=1)
        covariance = 100.0**2 * design @ design.T + 0.02**2 * np.eye(12)
        log_evidence.append(multivariate_normal(np.zeros(12), covariance).logpdf(y))
    right = softmax(log_evidence)
    assert right.max() < 0.8
    method = bl.Gibbs(num_warmup=10, num_samples=2000, num_chains=2)
    bends = bl.fit(0, bent_line, {"x": x, "y": y}, method, progress=False)["posterior"]["bend"].values
    frequencies = np.bincount(bends.ravel(), minlength=12) / bends.size
    # draws are independent, for nothing else is unknown
    assert np.all(np.abs(frequencies - right) < 5 * np.sqrt(right * (1 - right) / bends.size) + 1e-3)
