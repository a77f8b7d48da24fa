"""Sites that are jointly Normal: which are found, what is refused, and the posterior against dense algebra."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from jax.flatten_util import ravel_pytree
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.distributions.block_normal import BlockNormal
from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, Values, precision_scope
from bayeslab.transforms.analysis import Analysis
from quick_cases import quick_ones

sample, plate = numpyro.sample, numpyro.plate
RANDOM = np.random.default_rng(0)
GROUP = np.array([0, 1, 2, 3, 0, 2])
X = RANDOM.normal(size=(6, 2))
Y = RANDOM.normal(size=6)
TABLE = RANDOM.normal(size=(3, 4))


def growth_curves() -> None:
    tau = sample("tau", dist.Gamma(2.0, 2.0))
    mean_a = sample("mean_a", dist.Normal(1.0, 2.0))
    mean_b = sample("mean_b", dist.Normal(0.0, 1.0))
    with plate("group", 4):
        a = sample("a", dist.Normal(mean_a, 1 / jnp.sqrt(tau)))
        b = sample("b", dist.Normal(mean_b, 0.5))
        with plate("time", 3):
            sample("y", dist.Normal(a + b * jnp.array([-1.0, 0.0, 1.0])[:, None], 0.7))


def crossed() -> None:
    mu = sample("mu", dist.Normal(1.0, 2.0))
    with plate("rater", 3, dim=-2):
        a = sample("a", dist.Normal(0.0, 1.0))
    with plate("item", 4, dim=-1):
        b = sample("b", dist.Normal(0.0, 0.5))
    with plate("rater", 3, dim=-2), plate("item", 4, dim=-1):
        c = sample("c", dist.Normal(0.0, 0.3))
        sample("y", dist.Normal(mu + a + b + c, 0.7))


def nested() -> None:
    mu = sample("mu", dist.Normal(1.0, 2.0))
    with plate("school", 4):
        a = sample("a", dist.Normal(mu, 0.6))
        with plate("class", 3):
            b = sample("b", dist.Normal(a, 0.4))
            sample("y", dist.Normal(b, 0.7))


def scalar_chain() -> None:
    state: Any = 0.5
    for step in range(6):
        state = sample(f"x{step}", dist.Normal(0.9 * state, 0.6))
        sample(f"y{step}", dist.Normal(state, 0.8), obs=Y[step])


def vector_chain() -> None:
    moves, state = jnp.array([[1.0, 1.0], [0.0, 0.9]]), jnp.zeros(2)
    for step in range(3):
        state = sample(f"x{step}", dist.MultivariateNormal(moves @ state, 0.5 * jnp.eye(2)))
        sample(f"y{step}", dist.Normal(state[0], 0.8), obs=Y[step])


def group_regression() -> None:
    w = sample("w", dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.3], [0.3, 2.0]])))
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("group", 4):
        a = sample("a", dist.Normal(mu, 0.6))
    with plate("row", 6):
        sample("y", dist.Normal(X @ w + a[GROUP], 0.7))


def pairs() -> None:
    mean = sample("mean", dist.Normal(jnp.array([1.0, -1.0]), 2.0).to_event(1))
    with plate("group", 4):
        pair = sample("pair", dist.MultivariateNormal(mean, jnp.array([[1.0, 0.3], [0.3, 0.5]])))
    with plate("row", 6):
        sample("y", dist.Normal(pair[GROUP, 0] + pair[GROUP, 1] * X[:, 0], 0.7))


def two_parts() -> None:
    """Sites that no term has in common stay apart."""
    for part in "ab":
        mu = sample(f"mu_{part}", dist.Normal(0.0, 1.0))
        theta = sample(f"theta_{part}", dist.Normal(mu, 0.5))
        sample(f"y_{part}", dist.Normal(theta, 0.7), obs=0.4)


def factor_analysis() -> None:
    """Loadings and factors are Normal given each other; their products are not."""
    with plate("item", 4):
        level = sample("level", dist.Normal(0.0, 1.0))
        loading = sample("loading", dist.Normal(1.0, 0.5))
    with plate("person", 3, dim=-2):
        factor = sample("factor", dist.Normal(0.0, 1.0))
    with plate("person", 3, dim=-2), plate("item", 4, dim=-1):
        sample("y", dist.Normal(level + loading * factor, 0.7))


def three_factors() -> None:
    """Each is Normal given the others, and so are no two."""
    x, y, z = (sample(name, dist.Normal(1.0, 1.0)) for name in "xyz")
    sample("seen", dist.Normal(x * y * z, 0.5))


def product_with_offset() -> None:
    """How y and z meet depends on x."""
    x, y, z = (sample(name, dist.Normal(1.0, 1.0)) for name in "xyz")
    sample("seen", dist.Normal(y + z * x, 0.5))


def precision_of_another() -> None:
    """y is Normal given x, with a precision that depends on x; x has no Normal conditional."""
    x = sample("x", dist.Normal(0.0, 1.0))
    y = sample("y", dist.Normal(0.0, jnp.exp(x)))
    sample("seen", dist.Normal(y, 0.5))


def conditionally_normal() -> None:
    """The density exp(-(x² y² + x² + y²) / 2) of Gelman and Meng: each is Normal given the other."""
    x = sample("x", dist.Normal(0.0, 1.0))
    y = sample("y", dist.Normal(0.0, 1.0))
    sample("seen", dist.Normal(x * y, 1.0))


def regime() -> None:
    """How two sites meet depends on a discrete one: a block given that."""
    mu = sample("mu", dist.Normal(0.0, 1.0))
    label = sample("label", dist.Bernoulli(0.4))
    with plate("group", 4):
        a = sample("a", dist.Normal(jnp.where(label, mu, 0.0), 0.6))
    with plate("row", 6):
        sample("y", dist.Normal(a[GROUP], 0.7))


LINEAR: dict[str, tuple[Callable[..., None], dict[str, Any], set[frozenset[str]]]] = {
    "crossed": (crossed, {"y": TABLE}, {frozenset({"mu", "a", "b", "c"})}),
    "nested": (nested, {"y": TABLE}, {frozenset({"mu", "a", "b"})}),
    "scalar chain": (scalar_chain, {}, {frozenset(f"x{step}" for step in range(6))}),
    "vector chain": (vector_chain, {}, {frozenset(f"x{step}" for step in range(3))}),
    "regression with groups": (group_regression, {"y": Y}, {frozenset({"w", "mu", "a"})}),
    "pairs": (pairs, {"y": Y}, {frozenset({"mean", "pair"})}),
    "two parts": (two_parts, {}, {frozenset({"mu_a", "theta_a"}), frozenset({"mu_b", "theta_b"})}),
}
"""Programs with Normal sites alone: data, and the blocks."""
QUICK = ("crossed", "vector chain", "pairs", "two parts")

OTHERS: dict[str, tuple[Callable[..., None], dict[str, Any], set[frozenset[str]]]] = {
    "growth curves": (growth_curves, {"y": TABLE}, {frozenset({"mean_a", "mean_b", "a", "b"})}),
    "factor analysis": (factor_analysis, {"y": TABLE}, {frozenset({"level", "loading"})}),
    "three factors": (three_factors, {"seen": 0.7}, set()),
    "product with offset": (product_with_offset, {"seen": 0.7}, {frozenset({"x", "y"})}),
    "precision of another": (precision_of_another, {"seen": 0.7}, set()),
    "conditionally normal": (conditionally_normal, {"seen": 0.7}, set()),
    "regime": (regime, {"y": Y}, {frozenset({"mu", "a"})}),
}


@cache
def analysis_of(case: str) -> Analysis:
    program, data, _ = (LINEAR | OTHERS)[case]
    return Analysis(bind(program, data))


@pytest.mark.parametrize("case", quick_ones(LINEAR | OTHERS, *QUICK, *OTHERS))
def test_blocks(case: str) -> None:
    """The sets of sites that are jointly Normal given all others are found, and no others."""
    with precision_scope():
        found = {frozenset(finding.rule.sites) for finding in analysis_of(case).normal_blocks if finding.rule}
    assert found == (LINEAR | OTHERS)[case][2]


@pytest.mark.parametrize("case", quick_ones(LINEAR, *QUICK))
def test_a_block_is_the_normal_of_dense_algebra(case: str) -> None:
    """Mean, covariance and evidence against the gradient and the Hessian of the log joint at zero."""
    with precision_scope():
        analysis = analysis_of(case)
        bound = analysis.bound
        zero = {name: jnp.zeros(bound.sites[name].shape) for name in bound.latent}
        for finding in analysis.normal_blocks:
            assert finding.rule is not None
            sparse, dense = jax.jit(partial(both_ways, finding.rule, bound))(zero)
            for one, other in zip(sparse, dense, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def both_ways(rule: Rule, bound: Bound, zero: Values) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Mean, covariance and log evidence of a block, by its rule and by dense algebra."""
    start, back = ravel_pytree([zero[name] for name in rule.sites])

    def density(x: Array) -> Array:
        return bound.log_joint(zero | dict(zip(rule.sites, back(x), strict=True)))

    precision, reached = -jax.hessian(density)(start), rule.reached(terms(bound).terms)
    mean = jnp.linalg.solve(precision, jax.grad(density)(start))
    others = density(start) - sum(term.density(bound, zero).sum() for term in reached)
    log_evidence = density(mean) - others - jnp.linalg.slogdet(precision / (2 * jnp.pi))[1] / 2
    normal, sparse_evidence = conditional(rule, terms(bound).terms, bound, zero)
    assert isinstance(normal, BlockNormal)
    columns = normal.from_noise(jnp.eye(len(start))) - normal.loc
    return (normal.loc, columns.T @ columns, sparse_evidence), (mean, jnp.linalg.inv(precision), log_evidence)


def test_exact_draws_and_evidence_are_those_of_normal_data() -> None:
    """y is Normal with a covariance that is written down here; mu given y follows from it."""
    tree = bl.fit(0, crossed, {"y": TABLE}, bl.Exact(4000), progress=False)
    same = np.ones((12, 12))
    rater, item = (grid.ravel() for grid in np.indices((3, 4)))
    covariance = 4.0 * same + 1.0 * (rater[:, None] == rater) + 0.25 * (item[:, None] == item) + 0.58 * np.eye(12)
    log_evidence = multivariate_normal(np.ones(12), covariance).logpdf(TABLE.ravel())
    np.testing.assert_allclose(tree.attrs["log_evidence"], log_evidence, rtol=1e-9)
    gain = np.linalg.solve(covariance, 4.0 * np.ones(12))
    mean, variance = 1 + gain @ (TABLE.ravel() - 1), 4 - 4.0 * gain.sum()
    draws = tree["posterior"]["mu"].values.ravel()
    assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / 4000)
    assert abs(draws.var() / variance - 1) < 5 * np.sqrt(2 / 4000)


def test_gibbs_draws_a_block_at_once() -> None:
    """Of growth curves, all Normal sites are one block of Gibbs sampling."""
    with precision_scope():
        sampler = bl.Gibbs().plan(analysis_of("growth curves"))
    blocks = {frozenset(name for rule in block for name in rule.sites) for block in sampler.blocks}
    assert blocks == {frozenset({"tau"}), frozenset({"mean_a", "mean_b", "a", "b"})}
