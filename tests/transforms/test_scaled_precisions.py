"""Precisions that other sites only multiply: which terms have them, which are refused, and the evidence with tables."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import halfnorm, multivariate_normal

import bayeslab as bl
from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.normal_blocks import MAX_ERROR
from bayeslab.elimination.terms import terms
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import marginal
from bayeslab.transforms.sufficient_statistics.scaled_precisions import (
    MIN_JOINT_SIZE,
    ScaledTerms,
    are_multiples,
    scaled_terms,
    with_precision_tables,
)

sample, plate = numpyro.sample, numpyro.plate
RANDOM = np.random.default_rng(4)
TABLE = 240 + 5 * RANDOM.normal(size=(3, 4))
X = RANDOM.normal(size=4)
SCALES = {"sd": 1.3, "sd_a": 0.6, "sd_b": 2.1}


def scales() -> list[Any]:
    return [sample(name, dist.HalfNormal(3.0)) for name in SCALES]


def effects(sd_a: Any, sd_b: Any) -> tuple[Any, Any]:
    mu = sample("mu", dist.Normal(200.0, 50.0))
    with plate("rater", 3, dim=-2):
        a = sample("a", dist.Normal(mu, sd_a))
    with plate("item", 4, dim=-1):
        b = sample("b", dist.Normal(0.0, sd_b))
    return a, b


def crossed() -> None:
    """Every term is multiplied by a power of one scale."""
    sd, sd_a, sd_b = scales()
    a, b = effects(sd_a, sd_b)
    with plate("rater", 3, dim=-2), plate("item", 4, dim=-1):
        sample("y", dist.Normal(a + b, sd))


def moved_mean() -> None:
    """A mean that depends on a scale moves the gradient of the rows, not their precision."""
    sd, sd_a, sd_b = scales()
    a, b = effects(sd_a, sd_b)
    with plate("rater", 3, dim=-2), plate("item", 4, dim=-1):
        sample("y", dist.Normal(a + b + jnp.exp(-sd_b) * X, sd))


def scaled_effect() -> None:
    """An effect that a scale multiplies in the mean of rows changes the shape of their precision."""
    sd, sd_a, sd_b = scales()
    a, b = effects(sd_a, 1.0)
    with plate("rater", 3, dim=-2), plate("item", 4, dim=-1):
        sample("y", dist.Normal(a + sd_b * b, sd))


def two_scales() -> None:
    """Rows of which some have one scale and some another."""
    sd, sd_a, sd_b = scales()
    a, b = effects(sd_a, 1.0)
    with plate("rater", 3, dim=-2), plate("item", 4, dim=-1):
        sample("y", dist.Normal(a + b, jnp.where(X > 0, sd, sd_b)))


def capped_scale() -> None:
    """A scale that is capped far out: where it is, nothing was compared."""
    sd, sd_a, sd_b = scales()
    a, b = effects(sd_a, sd_b)
    with plate("rater", 3, dim=-2), plate("item", 4, dim=-1):
        sample("y", dist.Normal(a + jnp.where(sd > 50.0, 2.0, 1.0) * b, sd))


ALL = {"mu": True, "a": True, "b": True, "y": True}
CASES: list[tuple[Callable[[], None], dict[str, bool]]] = [
    (crossed, ALL),
    (moved_mean, ALL | {"y": False}),
    (scaled_effect, {"mu": True, "a": True, "b": True}),
    (two_scales, {"mu": True, "a": True, "b": True}),
    (capped_scale, {"mu": True, "a": True, "b": True}),
]


def slow(program: Callable[[], None]) -> Any:
    return pytest.param(program, marks=pytest.mark.slow)


def tabled(program: Callable[[], None]) -> tuple[Any, tuple[ScaledTerms, ...]]:
    """The program with its Normal sites integrated out, and the terms that tables know."""
    bound = bl.bind(program, {"y": TABLE})
    collapsed = marginal(bound, ("mu", "a", "b"), Analysis(bound))
    return collapsed, scaled_terms(bound, collapsed.transform.rules)


def dense_evidence(sd: float, sd_a: float, sd_b: float) -> float:
    """The log density of the rows of `crossed`, whose covariance is that of all effects together."""
    rater, item = (index.ravel() for index in np.indices(TABLE.shape))
    same_rater, same_item = rater[:, None] == rater, item[:, None] == item
    covariance = 50.0**2 + sd_a**2 * same_rater + sd_b**2 * same_item + sd**2 * np.eye(TABLE.size)
    return float(multivariate_normal(np.full(TABLE.size, 200.0), covariance).logpdf(TABLE.ravel()))


@pytest.mark.parametrize(("program", "known"), CASES)
def test_terms_that_are_only_multiplied_are_known_and_others_refused(
    program: Callable[[], None], known: dict[str, bool]
) -> None:
    with jax.enable_x64(True):
        assert [dict(each.slopes) for each in tabled(program)[1]] == [known]


@pytest.mark.parametrize("program", [crossed, *map(slow, (moved_mean, two_scales))])
def test_evidence_and_conditional_are_those_without_tables(program: Callable[[], None]) -> None:
    """So is the gradient of the evidence, and for `crossed` the evidence is that of dense algebra."""
    with jax.enable_x64(True):
        collapsed, scaled = tabled(program)
        [rule] = collapsed.transform.rules
        bound = collapsed.plain
        tables = jax.jit(lambda b: with_precision_tables(b, scaled).transform.statistics.tables)(collapsed)

        @jax.jit
        @partial(jax.grad, has_aux=True)
        def found(scales: dict[str, jax.Array], tables: dict[str, Any]) -> Any:
            q, log_evidence = conditional(rule, terms(bound).terms, bound, scales | tables)
            return log_evidence, (log_evidence, q.mean, q.conditional_scale)

        scales = {name: jnp.asarray(value) for name, value in SCALES.items()}
        with_tables, without = found(scales, tables), found(scales, {})
        for ours, right in zip(jax.tree.leaves(with_tables), jax.tree.leaves(without), strict=True):
            np.testing.assert_allclose(ours, right, rtol=1e-8)
        if program is crossed:
            np.testing.assert_allclose(with_tables[1][0], dense_evidence(**SCALES), rtol=1e-10)


@pytest.mark.parametrize("has_tables", [True, False])
@pytest.mark.parametrize("near_zero", [("sd_a",), ("sd_b",), ("sd_a", "sd_b")], ids=" and ".join)
def test_evidence_near_zero_scales_is_right_or_none(near_zero: tuple[str, ...], has_tables: bool) -> None:
    """By rounding alone it would be 1e24 nats too large at scales of 1e-20, where chains of NUTS would stay."""
    with jax.enable_x64(True):
        collapsed, scaled = tabled(crossed)
        [rule], bound = collapsed.transform.rules, collapsed.plain
        known = with_precision_tables(collapsed, scaled).transform.statistics.tables if has_tables else {}

        @jax.jit
        def evidence(scales: dict[str, jax.Array]) -> jax.Array:
            return conditional(rule, terms(bound).terms, bound, scales | known).log_evidence

        for exponent in np.arange(-25.0, 0.5, 0.25):
            scales = SCALES | dict.fromkeys(near_zero, 10.0**exponent)
            found = float(evidence({name: jnp.asarray(value) for name, value in scales.items()}))
            if exponent >= -6 or np.isfinite(found):
                assert abs(found - dense_evidence(**scales)) < (1e-6 if exponent >= -4 else MAX_ERROR), exponent
            else:
                assert np.isnan(found) or found == -np.inf


def test_multiples_hold_up_to_rounding() -> None:
    """What overflows is left out, but not at the first point; zeros tell no multiple."""
    vector = np.array([1.0, -2.0, 0.0])
    assert are_multiples([vector, 3 * vector, np.array([np.inf, 0.0, 0.0])])
    assert not are_multiples([vector, 3 * vector + [0.0, 0.0, 1e-6]])
    assert not are_multiples([np.array([np.nan, 1.0, 1.0]), vector])
    assert not are_multiples([0 * vector, 0 * vector])


def walk(y: Any) -> None:
    """One site of many joint elements: the steps of a level."""
    sd, sd_a = sample("sd", dist.HalfNormal(3.0)), sample("sd_a", dist.HalfNormal(3.0))
    a = sample("a", dist.Normal(0.5, sd_a).expand(y.shape).to_event(1))
    sample("y", dist.Normal(jnp.cumsum(a), sd).to_event(1), obs=y)


@pytest.mark.parametrize(("size", "has_table"), [(MIN_JOINT_SIZE, True), (MIN_JOINT_SIZE - 1, False)])
def test_one_site_of_many_joint_elements_has_a_table(size: int, has_table: bool) -> None:
    y = np.random.default_rng(size).normal(size=size)
    with jax.enable_x64(True):
        bound = bl.bind(walk, {"y": y})
        collapsed = marginal(bound, ("a",))
        scaled = scaled_terms(bound, collapsed.transform.rules)
        assert [dict(each.slopes) for each in scaled] == ([{"a": True, "y": True}] if has_table else [])
        tabled = with_precision_tables(collapsed, scaled)
        sd, sd_a = 0.7, 1.9
        evidence = tabled.log_joint({"sd": jnp.asarray(sd), "sd_a": jnp.asarray(sd_a)})
    sums = np.tri(size)
    priors = sum(halfnorm(scale=3.0).logpdf(scale) for scale in (sd, sd_a))
    right = multivariate_normal(sums @ np.full(size, 0.5), sd_a**2 * sums @ sums.T + sd**2 * np.eye(size)).logpdf(y)
    np.testing.assert_allclose(evidence, right + priors, rtol=1e-10)


@pytest.mark.slow
def test_chains_are_those_without_tables() -> None:
    """NUTS takes the same steps, whose positions differ by rounding alone."""
    data = {"y": TABLE}
    method = bl.NUTS(30, 20, 1, collapse=("mu", "a", "b"))
    plain = bl.NUTS(30, 20, 1, collapse=("mu", "a", "b"), statistics=False)
    ours, right = (bl.fit(0, crossed, data, each, progress=False).posterior for each in (method, plain))
    np.testing.assert_allclose(ours["sd"], right["sd"], rtol=1e-6)
    np.testing.assert_allclose(ours["mu"].mean(), right["mu"].mean(), rtol=0.1)
