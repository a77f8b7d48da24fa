"""Discrete elements drawn with coefficients integrated out: only rows of the precision that change are made anew."""

from collections.abc import Callable
from itertools import product
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.elimination.discrete.collapsed.collapsed_draws import (
    CollapsedElements,
    collapsed_elements,
    residual_of_moves,
)
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, Values, precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.points.probe_points import generic_points
from quick_cases import quick_ones

NUM_FEATURES = 12
RNG = np.random.default_rng(5)
X = RNG.normal(size=(20, NUM_FEATURES)) + 0.7 * RNG.normal(size=(20, 1))
Y = X[:, :3].sum(1) + RNG.normal(size=20)
SCALES = np.array([0.1, 0.7, 3.0])

Weights = Callable[[Any], Any]
"""From choices to what multiplies the coefficients."""


def regression(x: Any, weights: Weights, num_elements: int, probs: Any, y: Any = None) -> None:
    """Coefficients that are multiplied by functions of discrete elements."""
    with numpyro.plate("element", num_elements):
        z = numpyro.sample("z", dist.Categorical(jnp.asarray(probs)))
    with numpyro.plate("feature", NUM_FEATURES):
        b = numpyro.sample("b", dist.Normal(0.0, 1.5))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ (weights(z) * b), 1.0), obs=y)


def single(z: Any) -> Any:
    return jnp.asarray(z)


def scaled(z: Any) -> Any:
    return jnp.asarray(SCALES)[z]


def groups(z: Any) -> Any:
    return jnp.repeat(jnp.asarray(z), 3)


def neighbours(z: Any) -> Any:
    return z * (1 - 0.5 * jnp.append(z[1:], 0))


def all_at_once(z: Any) -> Any:
    return z + 0.3 * jnp.prod(1 + z)


PROGRAMS: dict[str, tuple[Weights, int, tuple[float, ...], list[set[int]] | None]] = {
    "single": (single, 12, (0.6, 0.4), [{j} for j in range(12)]),
    "scaled": (scaled, 12, (0.5, 0.3, 0.2), [{j} for j in range(12)]),
    "groups": (groups, 4, (0.6, 0.4), [{3 * g, 3 * g + 1, 3 * g + 2} for g in range(4)]),
    "neighbours": (neighbours, 12, (0.6, 0.4), [{max(j - 1, 0), j} for j in range(12)]),
    "all at once": (all_at_once, 12, (0.6, 0.4), None),
}
"""What multiplies the coefficients, elements, probabilities of their choices, and the rows that each changes."""


def analysed(name: str) -> Analysis:
    weights, size, probs, _ = PROGRAMS[name]
    data = {"x": X, "y": Y, "weights": weights, "num_elements": size, "probs": np.array(probs)}
    return Analysis(bind(regression, data))


def elements_at(name: str) -> tuple[CollapsedElements, Bound, Values]:
    """The elements of a program with coefficients integrated out, at a point, and their first choices."""
    analysis = analysed(name)
    [normal] = [rule for rule in analysis.rules if rule.family.is_normal]
    rule = analysis.collapsed_field(normal, ("z",)).by_element.rule
    assert rule is not None
    assert rule.field is not None
    bound, values = generic_points(analysis.bound)[1]
    return collapsed_elements(rule.field, normal, terms(bound).terms, bound, values), bound, values


def log_joint(name: str, z: np.ndarray) -> float:
    """By the Normal of the rows."""
    weights, _, probs, _ = PROGRAMS[name]
    spread = X * np.asarray(weights(z)) * 1.5
    prior = np.log(np.array(probs))[z].sum()
    return float(prior + multivariate_normal.logpdf(Y, np.zeros(len(Y)), np.eye(len(Y)) + spread @ spread.T))


@pytest.mark.parametrize(
    "name", quick_ones([name for name, (*_, rows) in PROGRAMS.items() if rows is not None], "scaled")
)
def test_rows_that_change_and_the_log_joint_that_they_give(name: str) -> None:
    _, size, probs, expected = PROGRAMS[name]
    with precision_scope():
        elements, _, values = elements_at(name)
        rows = elements.field.changed_rows
        assert rows is not None
        assert [set(each.tolist()) for each in rows] == expected
        z, rng = np.asarray(values["z"]).astype(int), np.random.default_rng(1)
        now, moved = jax.jit(elements.first)(jnp.asarray(z, jnp.int32), values["b"]), jax.jit(elements.moved)
        for _ in range(30):
            element, choice = rng.integers([size, len(probs)]).astype(np.int32)
            after = moved(now, element, choice)
            new = z.copy()
            new[element] = choice
            assert float(after.total - now.total) == pytest.approx(log_joint(name, new) - log_joint(name, z), abs=1e-9)
            now, z = after, new


def test_elements_that_change_all_rows_are_drawn_as_before() -> None:
    with precision_scope():
        analysis = analysed("all at once")
        [normal] = [rule for rule in analysis.rules if rule.family.is_normal]
        rule = analysis.collapsed_field(normal, ("z",)).by_element.rule
    assert rule is not None
    assert rule.field is not None
    assert rule.field.changed_rows is None


@pytest.mark.parametrize("name", [pytest.param("single", marks=pytest.mark.slow), "neighbours"])
def test_false_rows_are_seen(name: str) -> None:
    """A row too few, or another one: the log joint is then not that of the precision as a whole."""
    with precision_scope():
        elements, _, values = elements_at(name)
        indices = elements.field.joined(values)
        assert elements.field.changed_rows is not None
        wrong_rows = [np.roll(elements.field.changed_rows, 1, axis=0), np.zeros_like(elements.field.changed_rows)]
        if name == "neighbours":
            wrong_rows.append(elements.field.changed_rows[:, -1:])
        residuals = [
            float(residual_of_moves(elements._replace(rows=jnp.asarray(rows)), indices, values["b"]))
            for rows in wrong_rows
        ]
        assert float(residual_of_moves(elements, indices, values["b"])) < 1e-12
    assert not any(residual <= 1e-4 for residual in residuals)


def shifted(x: Any, offsets: Any, y: Any = None) -> None:
    """Elements that shift rows and leave the precision of the coefficients alone."""
    with numpyro.plate("element", offsets.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
    with numpyro.plate("feature", NUM_FEATURES):
        b = numpyro.sample("b", dist.Normal(0.0, 1.5))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ b + offsets @ z, 1.0), obs=y)


@pytest.mark.slow
def test_elements_that_change_no_row() -> None:
    offsets = np.random.default_rng(8).normal(size=(20, 5))
    tree = bl.fit(2, shifted, {"x": X, "offsets": offsets, "y": Y}, bl.Gibbs(num_samples=2000), progress=False)
    every = np.array(list(product(range(2), repeat=5)))
    cov = np.eye(len(Y)) + 1.5**2 * X @ X.T
    prior = np.log(np.where(every, 0.4, 0.6)).sum(1)
    log_probs = prior + [multivariate_normal.logpdf(Y - offsets @ z, np.zeros(len(Y)), cov) for z in every]
    right = np.exp(log_probs - logsumexp(log_probs)) @ every
    np.testing.assert_allclose(tree["posterior"]["z"].mean(("chain", "draw")), right, atol=0.04)


def test_draws_of_groups_of_coefficients() -> None:
    """Against all configurations."""
    name, size = "groups", 4
    weights, _, probs, _ = PROGRAMS[name]
    data = {"x": X, "y": Y, "weights": weights, "num_elements": size, "probs": np.array(probs)}
    tree = bl.fit(1, regression, data, bl.Gibbs(num_samples=2000), progress=False)
    every = np.array(list(product(range(2), repeat=size)))
    log_probs = np.array([log_joint(name, z) for z in every])
    right = np.exp(log_probs - logsumexp(log_probs)) @ every
    draws = tree["posterior"]["z"]
    error = np.sqrt(
        right * (1 - right) / np.maximum(np.array([float(az.ess(draws[..., k].values)) for k in range(size)]), 1)
    )
    assert (np.abs(draws.mean(("chain", "draw")).values - right) < 4.5 * error + 1e-3).all()
