"""Chains with scores of states and of moves, of any size, against sums over all paths."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import bayeslab.distributions.markov.inference as chains
import bayeslab.distributions.markov.scored.inference as scored
from bayeslab.distributions.markov.scored.as_chain import chain_of_scores
from bayeslab.distributions.markov.scored.chain_layout import ChainLayout
from bayeslab.distributions.markov.scored.table_chain import TableChain

Array = NDArray[Any]
SHAPES = [(1, 1, 2), (1, 5, 1), (2, 5, 3), (1, 3, 17)]
"""Sequences, steps and states: for 17 states probabilities are faster than logarithms, where these lose no score."""


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def scores(shape: tuple[int, int, int], size: float, shared: bool) -> tuple[Array, Array]:
    rng = np.random.default_rng([*shape, shared])
    number, steps, states = shape
    moves = rng.normal(0, size, (1 if shared else number, 1 if shared else max(steps - 1, 1), states, states))
    moves[rng.random(moves.shape) < 0.1] = -np.inf
    return rng.normal(0, size, shape), moves


def enumerated(states: Array, moves: Array) -> tuple[Array, Array]:
    """All paths of one sequence, and the score of each."""
    steps, number = states.shape
    paths = np.array(list(itertools.product(range(number), repeat=steps)))
    every = np.broadcast_to(moves, (max(steps - 1, 1), number, number))
    of_moves = sum((every[t, paths[:, t], paths[:, t + 1]] for t in range(steps - 1)), np.zeros(len(paths)))
    return paths, states[np.arange(steps), paths].sum(1) + of_moves


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_over_all_paths(shape: tuple[int, int, int], size: float, shared: bool) -> None:
    states, moves = scores(shape, size, shared)
    given = jnp.asarray(states), jnp.asarray(moves)
    value = jax.jit(scored.log_partition)(*given, None)
    _, visits, _ = jax.jit(scored.expected_counts)(*given, None)
    slopes = jax.jit(jax.grad(lambda *x: scored.log_partition(*x, None).sum(), argnums=(0, 1)))(*given)
    best = scored.most_probable_path(*given, None)
    np.testing.assert_allclose(visits, slopes[0], atol=1e-9)
    for place in range(shape[0]):
        paths, totals = enumerated(states[place], moves[place if len(moves) > 1 else 0])
        right = np.logaddexp.reduce(totals)
        np.testing.assert_allclose(value[place], right, rtol=1e-12)
        probs = np.exp(totals - right)
        expected = (probs[:, None, None] * (paths[..., None] == np.arange(shape[2]))).sum(0)
        np.testing.assert_allclose(visits[place], expected, atol=1e-8)
        assert totals[(paths == best[place]).all(1)] == pytest.approx(totals.max(), rel=1e-12)


def detour(number: int = 2, steps: int = 4) -> tuple[Array, Array]:
    """From state 0 the move to 1 is 2,000 nats below that to itself, but all that follows 0 is 5,000 below."""
    states = np.zeros((1, steps, number))
    states[0, -1, 0] = -5_000.0
    states[0, :-1, 1:] = -np.inf
    moves = np.zeros((1, 1, number, number))
    moves[0, 0, 0, 1:] = -2_000.0
    return states, moves


@pytest.mark.parametrize(("number", "steps"), [(2, 4), (17, 4), (2, 700)])
def test_a_move_that_is_far_below_the_others_counts_where_they_lead_nowhere(number: int, steps: int) -> None:
    """In logarithms alone, among many states, and in lanes, where rows of probabilities lose the move."""
    given = tuple(map(jnp.asarray, detour(number, steps)))
    right = -2_000 + np.log(number - 1)
    by_probabilities = chains.log_marginal(*chain_of_scores(*given), None)
    assert abs(by_probabilities[0] - right) > 1_000  # what this test is for
    np.testing.assert_allclose(scored.log_partition(*given, None), right, rtol=1e-12)
    uniform = jax.random.uniform(jax.random.key(0), (1, steps))
    path = scored.draw(*given, None, uniform)
    assert path[0, -1] > 0
    assert (path[0, :-1] == 0).all()


def test_each_of_a_batch_is_what_it_is_alone() -> None:
    """One sequence that loses a score, and one that does not, under `jax.vmap`."""
    usual = scores((1, 4, 2), 1.0, True)
    both = [jnp.asarray(np.stack(pair)) for pair in zip(usual, detour(2, 4), strict=True)]
    together = jax.vmap(lambda *x: scored.log_partition(*x, None)[0])(*both)
    alone = [scored.log_partition(*(one[place] for one in both), None)[0] for place in range(2)]
    np.testing.assert_allclose(together, alone, rtol=1e-13)


def test_draws_of_a_table_chain_are_as_frequent_as_probable() -> None:
    states, moves = scores((1, 3, 2), 1.0, False)
    layout = ChainLayout(np.arange(3)[None, :, None], (2,), ((0, 0),))
    chain = TableChain(jnp.asarray(states), jnp.asarray(moves), layout)
    number = 20_000
    draws = np.asarray(chain.sample(jax.random.key(1), (number,)))
    paths, totals = enumerated(states[0], moves[0])
    probs = np.exp(totals - np.logaddexp.reduce(totals))
    np.testing.assert_allclose(np.exp(chain.log_prob(jnp.asarray(paths))), probs, atol=1e-12)
    seen = np.array([(draws == path).all(1).mean() for path in paths])
    assert (np.abs(seen - probs) <= 4.5 * np.sqrt(probs * (1 - probs) / number)).all()
