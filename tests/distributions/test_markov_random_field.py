"""Markov random fields against enumeration."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from bayeslab.distributions import MarkovRandomField
from bayeslab.graphical_models import annealed_log_partition
from bayeslab.models.markov_random_field import SPINS, grid
from bayeslab.programs.program import precision_scope

EDGES = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])


def potentials(number: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, number)), rng.normal(size=(len(EDGES), number, number))


def log_weights(node: np.ndarray, edge: np.ndarray) -> dict[tuple[int, ...], float]:
    values = itertools.product(range(node.shape[1]), repeat=len(node))
    return {
        x: node[range(len(node)), x].sum() + sum(edge[e, x[i], x[j]] for e, (i, j) in enumerate(EDGES)) for x in values
    }


def test_log_probabilities_and_partition_function() -> None:
    node, edge = potentials()
    table = log_weights(node, edge)
    log_partition = np.logaddexp.reduce(list(table.values()))
    with precision_scope():
        field = MarkovRandomField(node, edge, EDGES)
        np.testing.assert_allclose(field.log_partition, log_partition, rtol=1e-12)
        found = field.log_prob(jnp.array(list(table)))
    np.testing.assert_allclose(found, np.array(list(table.values())) - log_partition, atol=1e-12)


def test_derivatives_of_the_partition_function_are_marginals() -> None:
    node, edge = potentials()
    table = log_weights(node, edge)
    probs = np.exp(np.array(list(table.values())) - np.logaddexp.reduce(list(table.values())))
    states = np.array(list(table))
    with precision_scope():
        gradient = jax.grad(lambda node: MarkovRandomField(node, edge, EDGES).log_partition)
        found = np.asarray(gradient(jnp.asarray(node)))
    for place, value in np.ndindex(4, 3):
        np.testing.assert_allclose(found[place, value], probs[states[:, place] == value].sum(), atol=1e-12)


def test_draws_and_a_batch() -> None:
    node, edge = potentials(2)
    with precision_scope():
        batch = MarkovRandomField(np.stack([node, 0 * node, -node]), edge, EDGES)
        drawn = np.asarray(batch.sample(jax.random.key(0), (3000,)))
        probs = np.exp(np.asarray(batch.log_prob(jnp.array(list(np.ndindex(2, 2, 2, 2)))[:, None])))
    assert drawn.shape == (3000, 3, 4)
    np.testing.assert_allclose(probs.sum(0), 1.0, rtol=1e-12)
    for place in range(3):
        counts = np.bincount(drawn[:, place] @ [8, 4, 2, 1], minlength=16)
        assert stats.chisquare(counts, 3000 * probs[:, place]).pvalue > 1e-4


def test_conditionals_of_nodes_and_sweeps_of_gibbs() -> None:
    node, edge = potentials(2)
    table = log_weights(node, edge)
    x = (1, 0, 1, 0)
    with precision_scope():
        field = MarkovRandomField(node, edge, EDGES)
        logits = np.asarray(field.conditional_logits(jnp.array(x)))
        for place in range(4):
            other = tuple(1 - v if i == place else v for i, v in enumerate(x))
            np.testing.assert_allclose(
                logits[place, other[place]] - logits[place, x[place]], table[other] - table[x], atol=1e-12
            )
        truth = sum(
            -np.logaddexp(0, table[tuple(1 - v if i == p else v for i, v in enumerate(x))] - table[x]) for p in range(4)
        )
        np.testing.assert_allclose(field.pseudo_log_prob(jnp.array(x)), truth, rtol=1e-12)
        start = field.sample(jax.random.key(1), (4000,))
        after = jax.jit(jax.vmap(field.gibbs_step))(jax.random.split(jax.random.key(2), 4000), start)
        probs = np.exp(np.asarray(field.log_prob(jnp.array(list(np.ndindex(2, 2, 2, 2))))))
    counts = np.bincount(np.asarray(after) @ [8, 4, 2, 1], minlength=16)
    assert stats.chisquare(counts, 4000 * probs).pvalue > 1e-4


def ising(coupling: Any, edges: np.ndarray, size: int) -> MarkovRandomField:
    return MarkovRandomField(
        jnp.zeros((size, 2)), coupling * jnp.ones((len(edges), 1, 1)) * np.outer(SPINS, SPINS), edges
    )


def test_maxima_of_likelihood_and_pseudo_likelihood() -> None:
    """Both find the coupling of a grid that 400 draws came from, and the likelihood's error is the smaller one."""
    edges = grid(3, 3)
    with precision_scope():
        x = ising(0.35, edges, 9).sample(jax.random.key(0), (400,))
        found = []
        for score in (
            lambda c: ising(c, edges, 9).log_prob(x).sum(),
            lambda c: jax.vmap(ising(c, edges, 9).pseudo_log_prob)(x).sum(),
        ):
            loss = jax.jit(lambda c, score=score: -score(c))
            found.append(optimize.minimize_scalar(lambda c, loss=loss: float(loss(c)), bounds=(0, 1)).x)
    assert max(abs(each - 0.35) for each in found) < 0.06
    assert abs(found[0] - found[1]) > 1e-4  # they are two estimates


@pytest.mark.slow
def test_annealing_where_elimination_is_too_wide() -> None:
    edges, wide = grid(4, 4), grid(20, 20)
    with precision_scope():
        exact = float(ising(0.3, edges, 16).log_partition)
        with pytest.raises(ValueError, match="table"):
            _ = ising(0.3, wide, 400).log_partition
        found = annealed_log_partition(0, ising(0.3, edges, 16), 100, 100)
    assert abs(found.log_partition - exact) < 4 * found.standard_error < 0.3


@pytest.mark.parametrize(
    ("node", "edge", "edges", "words"),
    [
        (np.zeros(3), np.zeros((0, 2, 2)), [], "axes"),
        (np.zeros((3, 2)), np.zeros((1, 2, 3)), [(0, 1)], "edge has shape"),
        (np.zeros((3, 2)), np.zeros((1, 2, 2)), [(0, 3)], "does not join"),
        (np.zeros((3, 2)), np.zeros((1, 2, 2)), [(1, 1)], "does not join"),
    ],
)
def test_what_is_refused(node: Any, edge: Any, edges: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MarkovRandomField(node, edge, edges)


def test_a_field_without_edges_is_independent_nodes() -> None:
    node = np.array([[0.3, -0.2, 1.0]])
    with precision_scope():
        field = MarkovRandomField(node, np.zeros((0, 3, 3)), [])
        np.testing.assert_allclose(field.log_prob(jnp.array([2])), 1.0 - np.logaddexp.reduce(node[0]), rtol=1e-12)
