"""Hidden chains whose rows are tables of statistics: what fits compute from products is what they compute from rows."""

from importlib import import_module
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import bayeslab as bl
from bayeslab.distributions.markov.log_likelihoods import Rows
from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.sweep import feasible_point
from bayeslab.models import gaussian_hmm, hmm, multivariate_gaussian_hmm, poisson_hmm
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.collapse import marginal
from bayeslab.transforms.sufficient_statistics.row_statistics import ColumnSums, LabelledTerm, proportional_columns
from bayeslab.transforms.sufficient_statistics.tables import bound_parts
from bayeslab.verification.findings import find_conditionals

STEPS = 90
RNG = np.random.default_rng(0)
STATES = RNG.integers(0, 2, (2, STEPS))
GONE = RNG.random((2, STEPS)) < 0.1
SIZES = {"num_sequences": 2, "num_steps": STEPS, "num_states": 2, "lengths": np.array([STEPS, 70])}
GONE[1, 70:] = True


def missing(y: np.ndarray) -> np.ndarray:
    return np.where(GONE.reshape(*GONE.shape, *(1,) * (y.ndim - 2)), np.nan, y)


PLANE = RNG.normal(3.0 * STATES[..., None] * [1, -1], 1.0, (2, STEPS, 2))
CASES: dict[str, tuple[ModuleType, dict[str, Any], int]] = {
    "scalars": (gaussian_hmm, SIZES | {"y": missing(RNG.normal(3.0 * STATES, 1.0))}, 3),
    "counts": (poisson_hmm, SIZES | {"y": missing(RNG.poisson(2.0 + 5 * STATES).astype(float))}, 3),
    "vectors": (
        multivariate_gaussian_hmm,
        SIZES | {"mu0": np.zeros(2), "scale": np.eye(2), "n0": 5.0, "y": missing(PLANE)},
        6,
    ),
    "symbols, too many to multiply": (
        hmm,
        SIZES | {"num_symbols": 20, "y": missing(RNG.integers(0, 20, (2, STEPS)).astype(float))},
        20,
    ),
}


def each(*fast: str) -> list[Any]:
    return [pytest.param(name, marks=() if name in fast else pytest.mark.slow) for name in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("name", each("scalars"))
def test_states_given_tables_are_those_given_rows(name: str) -> None:
    """Evidence, smoothed states and moves, and the entropy of the path. 1, y and y^2 are what is left of nine products
    of statistics of mean and precision."""
    lecture, data, columns = CASES[name]
    with precision_scope():
        bound = bl.bind(lecture.model, data)
        short = bl.compress(bound)
        [group] = [one for one in short.transform.statistics.groups if isinstance(one, LabelledTerm)]  # type: ignore[union-attr]
        assert len(group.columns) == columns  # type: ignore[arg-type]
        table = short.transform.statistics.tables[group.name]  # type: ignore[union-attr]
        assert isinstance(table.laid, Rows) == (columns <= 12)
        [rule] = [one.rule for one in find_conditionals(bound) if one.site == "z"]

        @jax.jit
        def found(values: Any) -> Any:
            result = []
            for plain, of, tables in (bound_parts(bound), bound_parts(short)):
                given = conditional(rule, of, plain, values | tables)  # type: ignore[arg-type]
                q = given.distribution
                result.append((given.log_evidence, q.marginals(), q.entropy(), q.expected_log_prob(q)))  # type: ignore[attr-defined]
            return result

        for seed in range(2):
            rows, tables = found(feasible_point(jax.random.PRNGKey(seed), bound))
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), rows, tables)


@pytest.mark.parametrize("name", each("counts"))
def test_gradients_with_tables_are_those_with_rows(name: str) -> None:
    lecture, data, _ = CASES[name]
    with precision_scope():
        bound = bl.bind(lecture.model, data)
        one, other = marginal(bound, ("z",)), marginal(bl.compress(bound), ("z",))
        values = feasible_point(jax.random.PRNGKey(3), one)
        both = jax.jit(lambda v: [jax.value_and_grad(b.log_joint)(v) for b in (one, other)])(values)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), *both)


@pytest.mark.slow
@pytest.mark.parametrize("method", [bl.EM(num_starts=2, num_steps=8), bl.MeanField(num_starts=2, num_steps=8)])
def test_steps_with_tables_are_those_with_rows(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lecture, data, _ = CASES["vectors"]
    histories = []
    for seconds in (0.0, np.inf):
        monkeypatch.setattr(
            import_module("bayeslab.transforms.sufficient_statistics.compress"), "SEARCH_SECONDS", seconds
        )
        histories.append(bl.fit(0, lecture.model, data, method, progress=False)["history"])
    for name, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][name], rtol=1e-7)


def test_columns_of_few_rows_stay_apart() -> None:
    sums = np.outer(np.arange(1.0, 7.0), [1.0, 0.5, 0.0])
    many, few = (ColumnSums(np.array([1.0, 0.5, 0.0]), sums, np.array(rows)) for rows in (100, 2))  # type: ignore[arg-type]
    assert proportional_columns([many, many]) == ((0, 1),)
    assert proportional_columns([many, few]) == ((0,), (1,))
