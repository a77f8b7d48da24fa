"""The law refuses what is conjugate at some points only, accepts guards that never act, and draws are watched."""

import re
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import HealthCheck, given, seed, settings
from numpyro.distributions import biject_to
from scipy import stats
from scipy.stats import kstest

import bayeslab as bl
from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.families import families_of
from bayeslab.elimination.terms import terms
from bayeslab.models import normal_wishart
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.verification import findings as proof
from bayeslab.verification.findings import find_conditional, find_conditionals
from false_rules import MANY, RIGHT, TIES, WRONG, Wrong
from quick_cases import quick_ones
from random_programs import Program, checked, programs

POINTS = 6001
FUNCTIONS = ("step", "clip", "sign", "round", "sort", "index", "interp", "cond", "while", "scan", "straight through")


def is_quick(case: str) -> bool:
    """Half of the functions of a Normal site, which differ most, one of sites of other families, and all that are alone
    of their kind."""
    family, _, function = case.partition(", ")
    return function in ("", "where") or (family == "Normal" and function in FUNCTIONS)


@pytest.mark.parametrize("case", quick_ones(WRONG, *filter(is_quick, WRONG)))
def test_what_holds_at_some_points_only_is_refused_by_name(case: str) -> None:
    with precision_scope():
        bound = bind(WRONG[case].program, WRONG[case].data)
        found = {one.site: one for one in find_conditionals(bound)}[WRONG[case].site]
    assert found.rule is None
    assert WRONG[case].reason in found.reason
    assert distance(WRONG[case]) > 1e-4, "the rule would be right after all"


def distance(case: Wrong) -> float:
    """In total variation, between the conditional that a rule would give and the right one, by quadrature."""
    with precision_scope():
        bound = bind(case.program, case.data)
        prior, known = terms(bound).priors[case.site], terms(bound)
        [family] = families_of(prior)
        children = tuple(term.name for term in known.terms if case.site in term.depends and term.name != case.site)
        rule = Rule(case.site, family, (), children)
        values = {name: jnp.asarray(case.given.get(name, 0.0)) for name in bound.latent}

        @jax.jit
        def both(values: Any) -> Any:
            transform = biject_to(prior.distribution(bound, values).support)
            q = conditional(rule, known.terms, bound, values).distribution
            grid = jnp.linspace(-40.0, 40.0, POINTS) if family.name != "Normal" else normal_grid(q, bound, case)
            at = transform(grid)
            volume = transform.log_abs_det_jacobian(grid, at)
            right = jax.vmap(lambda x: bound.log_joint(values | {case.site: x}))(at) + volume
            return right, q.log_prob(at) + volume

        right, found = (np.nan_to_num(np.asarray(each), nan=-np.inf) for each in both(values))
    if not np.isfinite(found).any():
        return 1.0
    right, found = (np.exp(each - each.max()) for each in (right, found))
    return 0.5 * float(np.abs(right / right.sum() - found / found.sum()).sum())


def normal_grid(q: dist.Distribution, bound: Any, case: Wrong) -> Any:
    """As wide as the conditional, or as data are."""
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(bound))
    far = jnp.maximum(jnp.abs(q.mean) + 12 * q.scale, 0.0)
    wide = jnp.linspace(-1.0, 1.0, POINTS)
    return jnp.sort(jnp.concatenate([far * wide, min(largest, 20.0) * wide, q.mean + 12 * q.scale * wide]))


@pytest.mark.parametrize("case", TIES)
def test_labels_of_which_two_are_tied_are_not_enumerated_one_by_one(case: str) -> None:
    with precision_scope():
        assert find_conditional(bind(*TIES[case]), "z").reason.startswith("its elements meet in")


@pytest.mark.parametrize("case", MANY)
def test_one_element_of_a_large_plate_is_seen(case: str) -> None:
    with precision_scope():
        assert find_conditional(bind(*MANY[case]), "mu").rule is None


@pytest.mark.parametrize("case", RIGHT)
def test_guards_that_never_act_and_all_scales_are_accepted(case: str) -> None:
    program, data, families = RIGHT[case]
    with precision_scope():
        found = find_conditionals(bind(program, data))
    assert {one.site: one.rule and one.rule.family.name for one in found} == families


@pytest.mark.parametrize("factor", [1.0, 100.0])
@pytest.mark.parametrize("kappa", [1.0, 1e-3])
def test_a_precision_is_proven_for_priors_of_any_width(factor: float, kappa: float) -> None:
    data = normal_wishart.data()
    with precision_scope():
        found = find_conditional(
            bind(normal_wishart.model, data | {"scale": factor * data["scale"], "kappa0": kappa}), "precision"
        )
    assert found.rule is not None
    assert found.residual < 1e-10


def noise_added(n: int) -> None:
    precision = numpyro.sample("precision", dist.Wishart(6.0, jnp.eye(3)))
    covariance = jnp.linalg.inv(precision) + 1e-4 * jnp.eye(3)
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(3), covariance))


def heavy_rows(n: int) -> None:
    precision = numpyro.sample("precision", dist.Wishart(6.0, jnp.eye(3)))
    with numpyro.plate("row", n):
        numpyro.sample(
            "y", dist.MultivariateStudentT(1e4, jnp.zeros(3), jnp.linalg.cholesky(jnp.linalg.inv(precision)))
        )


@pytest.mark.parametrize("program", [noise_added, heavy_rows])
def test_a_precision_that_is_not_conjugate_is_refused(program: Any) -> None:
    y = np.random.default_rng(5).normal(size=(20, 3))
    with precision_scope():
        assert find_conditional(bind(program, {"n": 20, "y": y}), "precision").reason == "not Wishart given 'y'"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(200))
def test_conditionals_of_random_programs_are_those_of_quadrature(part: int) -> None:
    """Ten of them a part, 2,000 in all."""

    @seed(20 + part)
    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(programs())
    def check(program: Program) -> None:
        for closed in checked(program):
            assert closed.distance < 2e-3, closed

    check()


def threshold(x: Any) -> None:
    c = numpyro.sample("c", dist.Exponential(0.1))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(2.0 * (x > c), 0.3))


DOSES = np.linspace(0, 10, 20)
STEPS = {"x": DOSES, "y": 2.0 * (DOSES > 4)}


def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule that is a candidate is taken for proven."""

    def trusting(bound: Any, sites: Any = None) -> list[Any]:
        wide, found = bound, []
        for name, prior in terms(wide).priors.items():
            children = tuple(t.name for t in terms(wide).terms if name in t.depends and t.name != name)
            found.append(proof.Finding(name, children, Rule(name, families_of(prior)[0], (), children), 0.0, ""))
        return found

    monkeypatch.setattr("bayeslab.transforms.analysis.find_conditionals", trusting)


@pytest.mark.parametrize("method", [bl.Exact(50), bl.Gibbs(num_warmup=10, num_samples=50, num_chains=1)])
def test_a_false_rule_does_not_leave_the_library(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were one taken for proven, its draws would be seen to be false."""
    believed(monkeypatch)
    with pytest.raises(bl.FalseConditional, match=r"more than rounding at a draw, so the draws are not"):
        bl.fit(0, threshold, STEPS, method, progress=False)


def test_calibration_sees_a_posterior_that_is_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a threshold, if the law is asked above it only: the likelihood has no uniform ranks, the site has."""
    believed(monkeypatch)
    monkeypatch.setattr("bayeslab.calibration.sbc.require_identity", lambda excess: None)
    checks = bl.sbc(2, threshold, STEPS, bl.Exact(100), num_simulations=200, progress=False)
    assert kstest(checks["prior_sbc"]["c"].values.ravel(), "uniform").pvalue > 1e-3
    assert kstest(checks["prior_sbc"]["log_likelihood"].values.ravel(), "uniform").pvalue < 1e-6
    assert not bl.calibration_verdict(checks).attrs["passes"]


def test_exact_draws_of_calibration_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    believed(monkeypatch)
    with pytest.raises(bl.FalseConditional, match="the exact posterior differs from the log joint"):
        bl.sbc(2, threshold, STEPS, bl.Exact(20), num_simulations=10, progress=False)


def root_of_nothing(e: Any) -> None:
    r = numpyro.sample("r", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(e)):
        numpyro.sample("y", dist.Normal(jnp.sqrt(r * e), 1.0))


def test_a_derivative_that_is_no_number_is_named_with_its_place() -> None:
    data = {"e": np.array([1.0, 0, 2]), "y": np.array([2, 0, 1])}
    told = "the derivative of the density of 'y' by 'r' is not a number at position (1,)"
    assert told in str(bl.explain(root_of_nothing, data))
    with pytest.raises(ValueError, match=re.escape(told)):
        bl.fit(0, root_of_nothing, data, bl.NUTS(num_warmup=20, num_samples=20, num_chains=1), progress=False)


def test_bounds_that_are_data_are_named_where_they_are_far_apart() -> None:
    def model(low: Any, high: Any) -> None:
        with numpyro.plate("row", 3):
            k = numpyro.sample("k", dist.DiscreteUniform(low, high))
            numpyro.sample("y", dist.Normal(k, 2.0))

    data = {"low": np.array([0, 2, 5]), "high": np.array([3, 6, 5000]), "y": np.array([2.0, 5.0, 9.0])}
    assert "a DiscreteUniform has bounds that differ between elements or are data" in str(bl.explain(model, data))


def test_a_factor_in_a_plate_counts_once_a_row() -> None:
    """Counts above zero: the factor is a number, and NumPyro adds it up over the plate."""

    def model(n: int) -> None:
        r = numpyro.sample("r", dist.Gamma(2.0, 1.0))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Poisson(r))
            numpyro.factor("above zero", -jnp.log1p(-jnp.exp(-r)))

    y = np.array([1, 2, 1])
    tree = bl.fit(0, model, {"n": 3, "y": y}, progress=False)
    grid = np.linspace(1e-4, 15, 40001)
    log = stats.gamma.logpdf(grid, 2) + stats.poisson.logpmf(y[:, None], grid).sum(0) - 3 * np.log1p(-np.exp(-grid))
    weights = np.exp(log - log.max())
    error = tree.posterior["r"].values.std() / np.sqrt(float(az.ess(tree)["r"]))
    assert abs(tree.posterior["r"].values.mean() - (weights * grid).sum() / weights.sum()) < 5 * error
