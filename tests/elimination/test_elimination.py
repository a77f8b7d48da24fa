"""Elimination: families found, false friends refused, evidence equal to closed forms, sums and quadrature."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask
from scipy import integrate, special, stats

import bayeslab as bl
from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.verification.findings import find_conditional, find_conditionals
from bayeslab.verification.identity import RESIDUAL_TOLERANCE
from bayeslab.verification.ordering import elimination_order
from quick_cases import quick_ones
from zoo import ALIKE, CASES, STICKY, Case


@pytest.mark.parametrize("case", quick_ones(CASES, *(case for case in CASES if case not in ALIKE.split())))
def test_the_family_of_every_site_is_found_or_refused(case: str) -> None:
    with precision_scope():
        found = find_conditionals(bind(CASES[case].program, CASES[case].data))
    assert {one.site: one.rule and one.rule.family.name for one in found} == CASES[case].families
    for one in found:
        if one.rule is not None:
            assert one.residual < 1e-11
        else:
            assert one.reason and not one.residual <= RESIDUAL_TOLERANCE  # noqa: PT018


REFUSALS = {
    "student_200": "not Normal given 'y'",
    "logistic": "not Normal given 'y'",
    "concentration": "not Gamma given 'y'",
    "coupled_labels": "its elements meet in 'y'",
    "coupled_chain": "not MarkovChain given 'y'",
    "cauchy_prior": "a Cauchy has no family",
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_name_the_reason_and_the_child(case: str) -> None:
    with precision_scope():
        [found] = find_conditionals(bind(CASES[case].program, CASES[case].data))
    assert found.reason == REFUSALS[case]


def up_to(top: dist.Distribution) -> Callable[[Any], None]:
    def program(y: Any) -> None:
        bound = numpyro.sample("top", top)
        with numpyro.plate("row", len(y)):
            numpyro.sample("y", dist.Uniform(0.0, bound), obs=y)

    return program


@pytest.mark.parametrize("top", [dist.Gamma(12.0, 1.0), dist.Uniform(0.0, 10.0)], ids=["Gamma", "Uniform"])
@pytest.mark.parametrize(
    "y", [[5.5, 2.0, 4.0], *(pytest.param(y, marks=pytest.mark.slow) for y in ([3.5, 1.0], [0.1, 0.2]))]
)
def test_data_that_bound_a_site_leave_no_conjugate_conditional(top: dist.Distribution, y: list[float]) -> None:
    """The density of the data is a power of the bound, as it would be if they did not cut its posterior off."""
    with precision_scope():
        assert find_conditional(bind(up_to(top), {"y": np.array(y)}), "top").rule is None


def test_the_first_choice_of_a_discrete_site_may_be_impossible() -> None:
    def caught() -> None:
        number = numpyro.sample("number", dist.DiscreteUniform(0, 20))
        numpyro.sample("n", dist.Binomial(number, 0.4))

    tree = bl.fit(0, caught, {"n": 4}, bl.Exact(num_samples=10), progress=False)
    each = stats.binom.pmf(4, np.arange(21), 0.4) / 21
    np.testing.assert_allclose(tree.attrs["log_evidence"], np.log(each.sum()), rtol=1e-10)


def test_the_power_of_the_law() -> None:
    """A Student-t that is all but Normal leaves orders of magnitude more than a Normal with many rows."""

    def model(n: int, normal: bool) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(mu, 1.0) if normal else dist.StudentT(1e4, mu, 1.0))

    with precision_scope():
        y = np.random.default_rng(0).normal(size=100_000)
        right = find_conditional(bind(model, {"n": len(y), "normal": True, "y": y}), "mu")
        wrong = find_conditional(bind(model, {"n": 20, "normal": False, "y": y[:20]}), "mu")
    assert right.residual < 1e-13
    assert wrong.residual > 100 * RESIDUAL_TOLERANCE


def test_a_proof_holds_for_its_data_only() -> None:
    """y ~ N(mu + c mu^2, 1) is conjugate at c = 0 and not at c = 1: the same program and shapes, so the same code."""

    def model(n: int, c: float = 0.0) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(mu + c * mu**2, 1.0))

    data = {"n": 3, "y": np.array([0.1, 0.5, 0.3])}
    with precision_scope():
        assert find_conditional(bind(model, data), "mu").rule is not None
        assert find_conditional(bind(model, data | {"c": 1.0}), "mu").rule is None
    bl.fit(0, model, data, bl.Gibbs(num_samples=10), progress=False)
    with pytest.raises(ValueError, match=r"no site has a conditional in closed form.*'mu': not Normal given 'y'"):
        bl.fit(0, model, data | {"c": 1.0}, bl.Gibbs(num_samples=10), progress=False)


def exact(case: str, num_samples: int = 20) -> Any:
    return bl.fit(1, CASES[case].program, CASES[case].data, bl.Exact(num_samples), progress=False)


def log_joint(case: str, **latent: Any) -> Any:
    """log p(latent, data) of a program with NumPyro's own densities, vectorised over the last argument."""
    bound = bind(CASES[case].program, CASES[case].data)
    return jax.jit(jax.vmap(lambda values: bound.log_joint(values)))(latent)


ONE_DIMENSION = {  # a grid on which the trapezoidal rule is exact to rounding
    "normal_mean": ("mu", np.linspace(-12, 14, 4001)),
    "normal_precision": ("tau", np.exp(np.linspace(-25, 6, 8001))),
    "normal_variance": ("variance", np.exp(np.linspace(-6, 25, 8001))),
    "poisson_rate": ("rate", np.exp(np.linspace(-25, 6, 8001))),
    "chi2_prior": ("rate", np.exp(np.linspace(-30, 6, 8001))),
    "geometric_probability": ("p", special.expit(np.linspace(-30, 30, 8001))),
    "log_normal_child": ("mu", np.linspace(-12, 14, 4001)),
    "masked_rows": ("mu", np.linspace(-12, 14, 4001)),
    "scaled_rows": ("mu", np.linspace(-12, 14, 4001)),
    "through_deterministic": ("mu", np.linspace(-12, 14, 4001)),
}


@pytest.mark.parametrize("case", ONE_DIMENSION)
def test_evidence_is_that_of_quadrature(case: str) -> None:
    name, grid = ONE_DIMENSION[case]
    with precision_scope():
        density = np.exp(log_joint(case, **{name: jnp.asarray(grid)}))
    np.testing.assert_allclose(exact(case).attrs["log_evidence"], np.log(integrate.simpson(density, x=grid)), rtol=1e-9)


def test_evidence_of_truncated_normals_is_that_of_quadrature() -> None:
    for case, low, high in (
        ("truncated_mean", -0.5, 1.5),
        ("uniform_mean", -1.0, 3.0),
        ("half_normal_mean", 0.0, 12.0),
    ):
        nodes, weights = np.polynomial.legendre.leggauss(400)
        grid = low + (high - low) * (nodes + 1) / 2
        with precision_scope():
            density = np.exp(log_joint(case, mu=jnp.asarray(grid)))
        closed = np.log((weights * density).sum() * (high - low) / 2)
        np.testing.assert_allclose(exact(case).attrs["log_evidence"], closed, rtol=1e-9)


def test_evidence_of_a_switch_and_a_change_point_are_sums_over_models() -> None:
    y, x = CASES["switch"].data["y"], np.array([-1.0, -0.5, 0.2, 0.6, 1.1])
    off = stats.norm.logpdf(y, 0, 0.5).sum()
    on = stats.multivariate_normal(np.zeros(5), 0.25 * np.eye(5) + np.outer(x, x)).logpdf(y)
    closed = np.logaddexp(np.log(0.7) + off, np.log(0.3) + on)
    tree = exact("switch", 4000)
    np.testing.assert_allclose(tree.attrs["log_evidence"], closed, rtol=1e-10)
    share = np.exp(np.log(0.3) + on - closed)
    assert abs(tree["posterior"]["on"].mean() - share) < 5 * np.sqrt(share * (1 - share) / 4000)

    counts = CASES["change_point"].data["y"]

    def part(y: np.ndarray) -> float:
        a, n = 2 + y.sum(), len(y)
        return special.gammaln(a) - a * np.log(1 + n) - special.gammaln(y + 1).sum()

    models = [np.log(1 / 4) + part(counts[:k]) + part(counts[k:]) for k in range(1, 5)]
    np.testing.assert_allclose(exact("change_point").attrs["log_evidence"], special.logsumexp(models), rtol=1e-10)


def test_evidence_of_normal_hierarchies_is_that_of_one_normal() -> None:
    y = CASES["nested_plates"].data["y"]
    covariance = (0.4**2 + 0.6**2) * np.eye(5) + np.ones((5, 5))
    closed = stats.multivariate_normal(np.zeros(5), covariance).logpdf(y).sum()
    np.testing.assert_allclose(exact("nested_plates").attrs["log_evidence"], closed, rtol=1e-10)
    y = CASES["crossed_effects"].data["y"]
    same = np.eye(3)[:, None, :, None] + np.eye(5)[None, :, None, :] + 0 * np.zeros((3, 5, 3, 5))
    covariance = same.reshape(15, 15) + 0.25 * np.eye(15)
    closed = stats.multivariate_normal(np.zeros(15), covariance).logpdf(y.ravel())
    np.testing.assert_allclose(exact("crossed_effects").attrs["log_evidence"], closed, rtol=1e-10)


def vectors(rows: int) -> None:
    """Vectors of independent elements, given whole or picked from."""
    with numpyro.plate("row", rows):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(mu, 0.5).to_event(1))
    nu = numpyro.sample("nu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("x", dist.Normal(nu[np.array([0, 1, 1])], 0.5).to_event(1))


def test_evidence_of_vectors_of_independent_elements() -> None:
    y, x = np.array([[0.3, -1.2], [2.0, 0.1], [-0.4, 0.7]]), np.array([1.1, -0.3, 0.2])
    found = bl.fit(0, vectors, {"rows": 3, "y": y, "x": x}, bl.Exact(5), progress=False).attrs["log_evidence"]
    covariance = np.array([[1.25, 0.0, 0.0], [0.0, 1.25, 1.0], [0.0, 1.0, 1.25]])
    closed = stats.norm(0.0, np.sqrt(1.25)).logpdf(y).sum() + stats.multivariate_normal(np.zeros(3), covariance).logpdf(
        x
    )
    np.testing.assert_allclose(found, closed, rtol=1e-10)


def known_mixture(n: int) -> None:
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        numpyro.sample("y", dist.Normal(jnp.array([-1.0, 0.5, 3.0])[z], 0.7))


def test_a_mixture_of_known_components_is_exact() -> None:
    y = CASES["mixture"].data["y"]
    tree = bl.fit(0, known_mixture, {"n": 5, "y": y}, bl.Exact(5000), progress=False)
    joint = np.log([0.2, 0.5, 0.3]) + stats.norm.logpdf(y[:, None], [-1.0, 0.5, 3.0], 0.7)
    np.testing.assert_allclose(tree.attrs["log_evidence"], special.logsumexp(joint, axis=1).sum(), rtol=1e-10)
    share = special.softmax(joint, axis=1)
    drawn = np.stack([(tree["posterior"]["z"].values[0] == k).mean(0) for k in range(3)], axis=1)
    assert (abs(drawn - share) <= 5 * np.sqrt(share * (1 - share) / 5000) + 1e-12).all()


@pytest.mark.parametrize("case", ["regression", "wishart", "random_effects", "mixture", "uniform_mean"])
def test_conditionals_are_the_log_joint_up_to_a_constant(case: str) -> None:
    """The law once more, with NumPyro's own log density of the whole program."""
    with precision_scope():
        bound = bind(CASES[case].program, CASES[case].data)
        values = {n: s["value"] for n, s in bound.prior_draw(jax.random.key(3)).items() if n in bound.latent}
        for found in find_conditionals(bound):
            assert found.rule is not None
            q = conditional(found.rule, terms(bound).terms, bound, values).distribution
            x, y = (q.sample(key).astype(values[found.site].dtype) for key in jax.random.split(jax.random.key(4)))
            joint = bound.log_joint(values | {found.site: x}) - bound.log_joint(values | {found.site: y})
            np.testing.assert_allclose(joint, q.log_prob(x).sum() - q.log_prob(y).sum(), rtol=1e-9, atol=1e-9)


def test_a_site_inside_scan_whose_density_depends_on_itself() -> None:
    def model(n: int) -> None:
        def step(x: Any, y: Any) -> Any:
            x = numpyro.sample("x", dist.Normal(0.9 * x, 1.0))
            numpyro.sample("y", dist.Normal(x, 0.5))
            return x, None

        scan(step, 0.0, None, length=n)

    y = np.array([0.3, 1.0, -0.4, 0.8])
    tree = bl.fit(0, model, {"n": 4, "y": y}, bl.Exact(10), progress=False)
    drift = np.tril(0.9 ** np.maximum(np.subtract.outer(np.arange(4), np.arange(4)), 0))
    closed = stats.multivariate_normal(np.zeros(4), drift @ drift.T + 0.25 * np.eye(4)).logpdf(y)
    np.testing.assert_allclose(tree.attrs["log_evidence"], closed, rtol=1e-10)


def carried(mu: Any, tau: Any) -> Any:
    return jax.lax.scan(lambda carry, _: (carry, carry[0]), (mu, tau), None, length=4)[1]


@jax.custom_jvp
def first(mu: Any, tau: Any) -> Any:
    return 1.0 * mu


@first.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return first(*primals), tangents[0]


@pytest.mark.parametrize(("passes_by", "children"), [(carried, ("u",)), (first, ("u", "y"))], ids=["scan", "custom"])
def test_a_site_that_only_passes_by_changes_no_answer(passes_by: Any, children: tuple[str, ...]) -> None:
    """tau goes through what computes the mean of y, which does not need it; a custom derivative hides that."""

    def model() -> None:
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", 4):
            numpyro.sample("y", dist.Normal(passes_by(mu, tau), 1.0))
            numpyro.sample("u", dist.Normal(0.0, 1 / jnp.sqrt(tau)))

    y, u = np.array([0.3, 1.0, -0.4, 0.8]), np.array([1.0, -0.5, 0.2, 0.6])
    with precision_scope():
        assert find_conditional(bind(model, {"y": y, "u": u}), "tau").children == children
    tree = bl.fit(0, model, {"y": y, "u": u}, bl.Exact(10), progress=False)
    of_y = stats.multivariate_normal(np.zeros(4), np.eye(4) + 1.0).logpdf(y)
    of_u = special.gammaln(4) - special.gammaln(2) - 4 * np.log(1 + u @ u / 2) - 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(tree.attrs["log_evidence"], of_y + of_u, rtol=1e-10)


def test_missing_rows_change_the_conditional_and_the_evidence() -> None:
    case = CASES["regression_event"]
    y = case.data["y"]
    gone = np.array([True, False, True, True, False])

    def model(x: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("row", len(x)):
            numpyro.sample("y", dist.Normal(x @ w, 0.5))

    x = np.stack([np.ones(5), np.arange(5.0)], axis=1)
    with_gaps = bl.fit(0, model, {"x": x, "y": np.where(gone, np.nan, y)}, bl.Exact(10), progress=False)
    without = bl.fit(0, model, {"x": x[~gone], "y": y[~gone]}, bl.Exact(10), progress=False)
    np.testing.assert_allclose(with_gaps.attrs["log_evidence"], without.attrs["log_evidence"], rtol=1e-12)


def test_the_order_of_elimination_is_found() -> None:
    """The last site of a program is not always the first that can go."""

    def model(n: int) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        on = numpyro.sample("on", dist.Bernoulli(0.5))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(mu * on, 1.0))

    with precision_scope():
        bound = bind(model, {"n": 2, "y": np.array([1.0, 2.0])})
        rules = elimination_order(bound, bound.latent, find_conditionals(bound))
    assert {rule.site for rule in rules} == {"mu", "on"}


def test_evidence_of_a_hidden_chain_is_the_sum_over_its_paths() -> None:
    y = CASES["hidden_chain"].data["y"]
    paths = np.array(np.meshgrid(*[range(3)] * 5, indexing="ij")).reshape(5, -1)
    start, moves = np.array([0.5, 0.3, 0.2]), STICKY
    prior = np.log(start[paths[0]]) + np.log(moves[paths[:-1], paths[1:]]).sum(0)
    joint = prior + stats.norm.logpdf(y[:, None], np.array([-1.0, 0.5, 3.0])[paths], 0.7).sum(0)
    tree = exact("hidden_chain", 5000)
    np.testing.assert_allclose(tree.attrs["log_evidence"], special.logsumexp(joint), rtol=1e-10)
    share = np.stack([[special.softmax(joint)[paths[t] == k].sum() for k in range(3)] for t in range(5)])
    drawn = np.stack([(tree["posterior"]["z"].values[0] == k).mean(0) for k in range(3)], axis=1)
    assert (abs(drawn - share) <= 5 * np.sqrt(share * (1 - share) / 5000) + 1e-12).all()


def test_a_distribution_that_names_its_own_family() -> None:
    """The root of a Gamma variate as 1 / sd has the evidence of the Gamma as a precision."""

    def model(n: int) -> None:
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(0.3, 1 / jnp.sqrt(tau)))

    case = CASES["own_distribution"]
    other = bl.fit(0, model, {"n": 5} | case.data, bl.Exact(10), progress=False)
    np.testing.assert_allclose(exact("own_distribution").attrs["log_evidence"], other.attrs["log_evidence"], rtol=1e-10)


REFUSED: dict[str, tuple[Case, Any, str]] = {
    "exact, no family": (CASES["logistic"], bl.Exact(), "Exact cannot eliminate all sites .*'w': not Normal given 'y'"),
    "gibbs, nothing": (CASES["logistic"], bl.Gibbs(), "no site has a conditional in closed form"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    case, method, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        bl.fit(0, case.program, case.data, method, progress=False)


def test_rules_are_records() -> None:
    with precision_scope():
        bound = bind(CASES["regression"].program, CASES["regression"].data)
        assert find_conditional(bound, "w").rule[2:4] == ((0,), ("y",))


def test_missing_values_of_a_scan_on_which_nothing_depends() -> None:
    """A local level in a scan has the evidence of one Normal over what is there."""

    def model(n: int) -> None:
        def step(before: Any, _: Any) -> tuple[Any, Any]:
            x = numpyro.sample("x", dist.Normal(before, 1.0))
            return x, numpyro.sample("y", dist.Normal(x, 0.5))

        scan(step, 0.0, None, n)

    y, there = np.array([0.5, 1.2, np.nan, 3.0, 2.5]), np.array([0, 1, 3, 4])
    tree = bl.fit(0, model, {"n": 5, "y": y}, bl.Exact(10), progress=False)
    expected = stats.multivariate_normal(cov=np.minimum.outer(there, there) + 1 + np.eye(4) / 4).logpdf(y[there])
    np.testing.assert_allclose(tree.attrs["log_evidence"], expected, rtol=1e-10)


def test_evidence_of_a_masked_chain_is_the_sum_over_its_paths() -> None:
    """Its mask leaves a chain where all paths are equally likely: each counts 1 instead of 1 / 8."""

    def model() -> None:
        with numpyro.plate("sequence", 2):
            with mask(mask=jnp.array([True, False])):
                z = numpyro.sample("z", bl.MarkovChain(np.full(2, 0.5), np.full((2, 2), 0.5), 3))
            numpyro.sample("y", dist.Normal(2.0 * z, 1.0).to_event(1))

    y = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    found = bl.fit(0, model, {"y": y}, bl.Exact(10), progress=False).attrs["log_evidence"]
    np.testing.assert_allclose(found, np.log(stats.norm.pdf(y) + stats.norm.pdf(y, 2.0)).sum() - np.log(8))
