"""Sufficient statistics found from programs: the same densities and conditionals as from all rows, or none at all."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.sweep import feasible_point, gibbs_start
from bayeslab.elimination.terms import terms
from bayeslab.methods.wrappers.compressed import CompressedSampler
from bayeslab.models import linear_regression, normal_gamma, normal_wishart
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.sufficient_statistics.compress import compressible
from bayeslab.transforms.sufficient_statistics.tables import build_tables, compressed_terms
from bayeslab.verification.findings import find_conditionals

SAMPLE = ["chain", "draw"]
RNG = np.random.default_rng(0)
ROWS = 300
X = RNG.normal(size=(ROWS, 3))
GROUP = RNG.integers(0, 4, ROWS)


def random_intercepts(x: Any, group: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("group", 4):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ w + a[group], 1 / jnp.sqrt(tau)))


def counts(n: int) -> None:
    p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Bernoulli(p))


def motifs(n: int) -> None:
    with numpyro.plate("position", 3):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(4)))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Categorical(p).to_event(1))


def variances(n: int) -> None:
    with numpyro.plate("series", 3):
        variance = numpyro.sample("variance", dist.InverseGamma(3.0, 2.0))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(variance)))


class Case(NamedTuple):
    program: Callable[..., None]
    data: dict[str, Any]
    groups: list[set[str]]


Y = X @ np.array([1.0, -2.0, 0.5]) + RNG.normal(size=ROWS)
WISHART = {"num_rows": ROWS, "mu0": np.zeros(3), "scale": np.eye(3), "n0": 5.0, "y": X}
CASES = {
    "regression": Case(linear_regression.model, {"x": X, "y": Y}, [{"tau", "w"}]),
    "far from zero": Case(normal_gamma.model, {"num_rows": 2 * ROWS, "y": 1e6 + np.tile(Y, 2)}, [{"tau", "mu"}]),
    "wishart": Case(normal_wishart.model, WISHART, [{"precision", "mu"}]),
    "two vectors": Case(random_intercepts, {"x": X, "group": GROUP, "y": Y}, [{"tau", "w", "a"}]),
    "beta": Case(counts, {"n": ROWS, "y": (Y > 0).astype(int)}, [{"p"}]),
    "dirichlets": Case(motifs, {"n": ROWS, "y": RNG.integers(0, 4, (ROWS, 3))}, [{"p"}]),
    "a plate": Case(variances, {"n": ROWS, "y": RNG.normal(size=(ROWS, 3))}, [{"variance"}]),
}


LONG = ("wishart", "two vectors", "dirichlets", "a plate")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in CASES])
def test_conditionals_from_tables_are_those_from_all_rows(name: str) -> None:
    case = CASES[name]
    with precision_scope():
        bound = bind(case.program, case.data)
        found = find_conditionals(bound)
        groups = compressible(bound, found)
        assert [{rule.site for rule in group.rules} for group in groups] == case.groups
        rules = tuple(one.rule for one in found if one.rule is not None)

        @jax.jit
        def differences(key: jax.Array) -> list[jax.Array]:
            values = gibbs_start(key, rules, bound, feasible_point(key, bound))
            known = values | build_tables(groups, bound, values)
            gaps = []
            for rule in rules:
                raw = conditional(rule, terms(bound).terms, bound, known, initial=known[rule.site]).distribution
                ours = conditional(rule, compressed_terms(groups, bound), bound, known).distribution
                draws = raw.sample(key, (5,))
                known = known | {rule.site: draws[0]}
                gaps.append(jax.vmap(lambda x, q=raw, r=ours: q.log_prob(x).sum() - r.log_prob(x).sum())(draws))  # type: ignore[misc]
            return gaps

        # relative to sums over hundreds of squares of 1e6 with 16 digits, nothing but rounding around the centre
        for gap in differences(jax.random.PRNGKey(0)):
            np.testing.assert_allclose(gap, 0, atol=1e-8)


def student(n: int) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.StudentT(200.0, mu, 1 / jnp.sqrt(tau)))


def curved(n: int, c: float = 0.0) -> None:
    """Both sites are conjugate alone, but not multilinear: the mean is a root of the precision."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))
        numpyro.sample("u", dist.Normal(mu + c * jnp.cos(tau), 1.0))


def mixture(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu[z], 1.0))


@pytest.mark.parametrize(
    ("program", "more"),
    [(student, {}), (curved, {"u": Y, "c": 1.0}), (mixture, {})],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_not_multilinear_keeps_its_rows(program: Callable[..., None], more: dict[str, Any]) -> None:
    with precision_scope():
        bound = bind(program, {"n": ROWS, "y": Y} | more)
        assert compressible(bound, find_conditionals(bound)) == ()


def test_a_table_is_proven_on_the_data_of_the_fit() -> None:
    """The same program and shapes, so the same code: statistics at c = 0, none at c = 1."""
    with precision_scope():
        data = {"n": ROWS, "y": Y, "u": Y}
        assert len(compressible(bind(curved, data), find_conditionals(bind(curved, data)))) == 1


@pytest.mark.filterwarnings("error")
def test_a_bound_in_single_precision_gives_one() -> None:
    """Outside of any scope, after the law was checked in double precision."""
    bound = bind(linear_regression.model, {"x": X, "y": Y})
    small = bl.compress(bound)
    values = {"tau": jnp.array(1.2), "w": jnp.array([0.9, -2.0, 0.6])}
    assert small.log_joint(values).dtype == jnp.float32
    np.testing.assert_allclose(small.log_joint(values), bound.log_joint(values), rtol=1e-5)


def test_few_rows_are_not_worth_a_table() -> None:
    with precision_scope():
        bound = bind(linear_regression.model, linear_regression.example())
        assert compressible(bound, find_conditionals(bound)) == ()


def test_missing_rows_are_missing_in_the_table() -> None:
    gone = np.arange(ROWS) % 3 == 0
    y = CASES["a plate"].data["y"]
    sets = {"n": ROWS, "y": np.where(gone[:, None], np.nan, y)}, {"n": int((~gone).sum()), "y": y[~gone]}
    one, other = (bl.fit(0, variances, data, bl.Exact(100), progress=False) for data in sets)
    np.testing.assert_allclose(one.attrs["log_evidence"], other.attrs["log_evidence"], rtol=1e-10)


def test_nuts_with_statistics_is_nuts_with_rows() -> None:
    """The same log joint, so the same draws but for rounding, for as long as a trajectory lasts."""
    case = CASES["regression"]
    with precision_scope():
        bound = bind(case.program, case.data)
        sampler = bl.NUTS(statistics=True).plan(Analysis(bound))
        small = sampler.prepare(bound)
        for key in jax.random.split(jax.random.PRNGKey(1), 3):
            values = {n: site["value"] for n, site in bound.prior_draw(key).items() if n in bound.latent}
            joint = numpyro.infer.util.log_density(small.program, (), {}, values)[0]
            np.testing.assert_allclose(joint, bound.log_joint(values), rtol=1e-10)
    tree = bl.fit(0, case.program, case.data, bl.NUTS(statistics=True), progress=False)
    assert bl.diagnose(tree) == ""
    precision_of_w = X.T @ X + 0.1 * np.eye(3)
    mean = np.linalg.solve(precision_of_w, X.T @ Y)
    tau = (2.0 + ROWS / 2) / (1.0 + (Y @ Y - mean @ precision_of_w @ mean) / 2)
    for name, expected in (("tau", tau), ("w", mean)):
        draws = tree["posterior"][name]
        assert (abs(draws.mean(SAMPLE) - expected) < 5 * draws.std(SAMPLE) / np.sqrt(1000)).all()


@pytest.mark.parametrize(
    "method", [bl.MAP(), pytest.param(bl.Laplace(), marks=pytest.mark.slow)], ids=["MAP", "Laplace"]
)
def test_modes_are_the_same_with_statistics(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if finding statistics took no time, so that few rows pay for it."""
    case = CASES["regression"]
    rows = bl.fit(0, case.program, case.data, method, progress=False)
    monkeypatch.setattr(import_module("bayeslab.transforms.sufficient_statistics.compress"), "SEARCH_SECONDS", 0.0)
    with precision_scope():
        assert isinstance(method.plan(Analysis(bind(case.program, case.data))), CompressedSampler)
    tables = bl.fit(0, case.program, case.data, method, progress=False)
    for name in ("tau", "w"):
        np.testing.assert_allclose(tables["posterior"][name].mean(SAMPLE), rows["posterior"][name].mean(SAMPLE), 1e-6)


def test_nuts_says_where_there_are_no_statistics() -> None:
    with pytest.raises(ValueError, match=r"no statistics replace the rows .*'mu': not Normal given 'y'"):
        bl.fit(0, student, {"n": ROWS, "y": Y}, bl.NUTS(statistics=True), progress=False)


def test_continuing_goes_on_from_the_tables() -> None:
    data = CASES["regression"].data
    whole = bl.fit(0, linear_regression.model, data, bl.Gibbs(num_samples=60), progress=False)
    part = bl.fit(0, linear_regression.model, data, bl.Gibbs(num_samples=30), progress=False)
    rest = bl.fit(0, linear_regression.model, data, bl.Gibbs(num_samples=30), previous=part, progress=False)
    np.testing.assert_allclose(rest["posterior"]["w"], whole["posterior"]["w"], rtol=1e-12)
