"""Sums over discrete variables that meet, compared with all their values."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from bayeslab.distributions.factor_graphs import factor_graph
from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution, log_partition
from bayeslab.programs.program import precision_scope

CARDS = (2, 3, 4, 2, 3)
SCOPES = ((0,), (1,), (2,), (3,), (4,), (0, 1), (2, 1), (3, 1, 4))


def test_variables_of_different_numbers_of_values_are_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum, its slope, log probabilities, the mode and draws, with padding; one weight is zero."""
    monkeypatch.setattr(factor_graph, "COST_OF_OPERATION", -(10**9))
    apart = factor_graph.elimination_plan.__wrapped__(CARDS, SCOPES)
    monkeypatch.undo()
    plan = factor_graph.elimination_plan(CARDS, SCOPES)
    assert [batch.exact for batch in apart.batches] == [True] * 5
    assert [batch.exact for batch in plan.batches] == [False, True, True, True]
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=[CARDS[each] for each in scope]) for scope in SCOPES]
    parts[5][1, 2] = -np.inf
    every = np.array(list(product(*map(range, CARDS))))
    log_joint = sum(part[tuple(every[:, each] for each in scope)] for part, scope in zip(parts, SCOPES, strict=True))
    probs = np.exp(log_joint - logsumexp(log_joint))
    with precision_scope():
        tables = jnp.asarray(np.concatenate([part.ravel() for part in parts]))

        @jax.jit
        def answers(tables: jax.Array) -> tuple[jax.Array, ...]:
            joint = FactorDistribution(tables, plan)
            draws = joint.sample(jax.random.PRNGKey(0), (20_000,))
            value, slope = jax.value_and_grad(lambda t: log_partition(plan, t))(tables)
            return value, slope, joint.log_prob(jnp.asarray(every)), joint.mode(), draws

        value, slope, log_probs, mode, draws = map(np.asarray, answers(tables))
    assert value == pytest.approx(logsumexp(log_joint), abs=1e-12)
    np.testing.assert_allclose(np.exp(log_probs), probs, atol=1e-12)
    assert (mode == every[np.argmax(log_joint)]).all()
    for start, size, scope in zip(plan.table_starts - 1, plan.table_sizes, SCOPES, strict=False):
        codes = np.ravel_multi_index(every[:, scope].T, [CARDS[each] for each in scope])
        marginals = np.bincount(codes, probs, minlength=size)
        np.testing.assert_allclose(slope[start : start + size], marginals, atol=1e-12)
    counts = np.bincount(np.ravel_multi_index(draws.T, CARDS), minlength=len(every)) / len(draws)
    assert (abs(counts - probs) <= 5.5 * np.sqrt(probs * (1 - probs) / len(draws)) + 1e-12).all()
