"""The recursions of a Markov chain in lanes, beside those step by step; sequences of any length."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import kl_divergence
from scipy.stats import norm

from bayeslab.distributions import MarkovChain
from bayeslab.distributions.markov import (
    backward_sampling as markov_draws,
)
from bayeslab.distributions.markov import (
    blocked as markov_lanes,
)
from bayeslab.distributions.markov import (
    inference as markov_inference,
)
from bayeslab.distributions.markov import paths as stepwise_paths
from bayeslab.distributions.markov import sequential as steps
from bayeslab.distributions.markov.lanes import make_lanes
from chains import CHAINS, all_paths, every_chain, evidence_for
from quick_cases import quick_ones

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Case(NamedTuple):
    initial: Any
    transition: Any
    evidence: Any
    moving: Any


def case(number: int, length: int, states: int, own: bool = False, ragged: bool = False) -> Case:
    """own: every sequence has a matrix of its own. ragged: sequences of different length."""
    transition = RNG.dirichlet(np.ones(states), (number, 1, states) if own else (1, states))
    evidence = 3.0 * RNG.normal(size=(number, length, states))
    lengths = RNG.integers(1, length + 1, number)
    moving = jnp.arange(1, length) < lengths[:, None] if ragged else None
    return Case(RNG.dirichlet(np.ones(states)), transition, evidence, moving)


CASES = {
    "one long": case(1, 1000, 3),
    "many": case(20, 101, 4, ragged=True),
    "a few, each with its own matrix": case(3, 2050, 2, own=True, ragged=True),
}
IN_TILES = {
    "one in two tiles": case(1, 12_001, 2),
    "many in three tiles": case(72, 71, 2, ragged=True),
    "one whose last blocks are beyond its end": case(1, 4096, 2),
}


@pytest.mark.parametrize(
    "name", quick_ones([*CASES, *IN_TILES], "many", "a few, each with its own matrix", "one in two tiles")
)
def test_lanes_are_steps(name: str) -> None:
    one = (CASES | IN_TILES)[name]
    expected, (first, moves, states) = markov_inference.stepwise_counts(*one)
    found = jax.jit(lambda *one: markov_lanes.expected_counts(make_lanes(*one), markov_lanes.STATE_PROBABILITIES))(*one)
    value, kept = jax.jit(lambda *one: markov_lanes.log_marginal(make_lanes(*one)))(*one)
    assert bool(kept)
    assert bool(found.in_range)
    for log_marginal in (value, found.log_marginal):
        np.testing.assert_allclose(log_marginal, expected, rtol=1e-12)
    np.testing.assert_allclose(found.visits, states, atol=1e-11)
    np.testing.assert_allclose(found.moves, moves, rtol=1e-10)
    np.testing.assert_allclose(found.first, first, rtol=1e-10)
    np.testing.assert_array_equal(jax.jit(markov_inference.viterbi_path)(*one), stepwise_paths.viterbi_path(*one))


@pytest.mark.parametrize(("number", "ragged"), [(2, True), pytest.param(20, False, marks=pytest.mark.slow)])
def test_paths_in_lanes_have_the_law_of_the_posterior(number: int, ragged: bool) -> None:
    """States at every step and moves after it, over ten thousand draws; in blocks of time, and whole sequences."""
    one, draws = case(number, 70, 3, ragged=ragged), 10_000
    uniform = RNG.random((draws, number, 70))
    paths, kept = jax.jit(jax.vmap(partial(markov_draws.sample_path, make_lanes(*one))))(uniform)
    posterior = MarkovChain(*markov_inference.conditioned(*one), time_varying=True)
    states = markov_inference.smoothed(*one)
    moves = states[:, :-1, :, None] * steps.identity_where_inactive(posterior.transition_probs, one.moving)
    assert bool(kept.all())
    is_state = jax.nn.one_hot(paths, 3)
    both = jnp.einsum("dnti,dntj->ntij", is_state[:, :, :-1], is_state[:, :, 1:]) / draws
    for p, share in ((states, is_state.mean(0)), (moves, both)):
        at = np.asarray(draws * p * (1 - p) > 5)  # else a share is far from Normal
        z = ((share - p) / jnp.sqrt(p * (1 - p) / draws))[at]
        assert np.abs(z).max() < norm.isf(1e-5 / at.sum())
        assert float(jnp.where(p == 0, share, 0.0).max()) == 0


def test_a_path_is_drawn_step_by_step_where_numbers_leave_their_range() -> None:
    chain = MarkovChain([1.0, 0.0, 0.0], [[1.0, 0.0, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]], 100)
    unlikely = np.tile([-300.0, -200.0, 0.0], (100, 1))
    np.testing.assert_array_equal(chain.condition(unlikely).sample(jax.random.PRNGKey(0)), 0)


def test_numbers_out_of_range_are_found_step_by_step() -> None:
    """The evidence is for states that cannot be reached, by any factor."""
    chain = MarkovChain([1.0, 0.0, 0.0], [[1.0, 0.0, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]], 100)
    unlikely = np.tile([-300.0, -200.0, 0.0], (100, 1))
    one = chain.initial_probs, chain.transition_probs, jnp.asarray(unlikely), None
    assert not bool(markov_lanes.expected_counts(make_lanes(*one), markov_lanes.STATE_PROBABILITIES).in_range)
    np.testing.assert_allclose(chain.log_marginal(unlikely), -300.0 * 100, rtol=1e-12)
    np.testing.assert_allclose(chain.smoothed(unlikely)[:, 0], 1.0)
    np.testing.assert_array_equal(chain.most_probable_path(unlikely), 0)


@pytest.mark.parametrize("number", [1, 20])
@pytest.mark.parametrize("each", [-4e7, -1e12, 1e7])
def test_evidence_beyond_the_range_of_integers_is_found_step_by_step(number: int, each: float) -> None:
    chain = MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], 300)
    found = chain.log_marginal(np.full((number, 300, 2), each))
    np.testing.assert_allclose(found, 300 * each, rtol=1e-12)


def test_a_million_steps() -> None:
    """Ten digits in double precision, a hundredth of a nat in single."""
    x = RNG.normal(size=1_000_000)
    mean, initial, matrix = np.array([-1.0, 0.0, 2.0]), RNG.dirichlet(np.ones(3)), RNG.dirichlet(np.ones(3), 3)

    def log_marginal(dtype: Any) -> Any:
        wide = [jnp.asarray(one, dtype) for one in (initial, matrix, -((x[:, None] - mean) ** 2) / 2)]
        return MarkovChain(wide[0], wide[1], len(x)).log_marginal(wide[2])

    exact = log_marginal(np.float64)
    by_steps = steps.forward(initial, matrix[None], jnp.asarray(-((x[:, None] - mean) ** 2) / 2), None)[2]
    np.testing.assert_allclose(exact, by_steps, rtol=1e-10)
    wide = -((np.float32(x)[:, None] - np.float32(mean)) ** 2) / 2
    narrow = MarkovChain(jnp.float32(initial), jnp.float32(matrix), len(x)).log_marginal(wide)
    same = MarkovChain(*(np.float64(np.float32(p)) for p in (initial, matrix)), len(x), validate_args=False)
    assert abs(float(narrow) - float(same.log_marginal(np.float64(wide)))) < 0.06


def test_what_is_mapped_is_a_batch() -> None:
    """Matrices alone, evidence alone, and both with lengths; derivatives too."""
    matrices = RNG.dirichlet(np.ones(3), (4, 3))
    initial, evidence = RNG.dirichlet(np.ones(3)), RNG.normal(size=(4, 2, 80, 3))
    lengths = np.array([80, 33])

    def value(matrix: Any, evidence: Any) -> Any:
        return MarkovChain(initial, matrix, 80, lengths=lengths, validate_args=False).log_marginal(evidence).sum()

    run = jax.value_and_grad(value, argnums=(0, 1))
    one_by_one = [run(m, e) for m, e in zip(matrices, evidence, strict=True)]
    mapped = jax.jit(jax.vmap(run))(matrices, evidence)
    for expected, found in zip(
        jax.tree.leaves(jax.tree.map(lambda *x: np.stack(x), *one_by_one)), jax.tree.leaves(mapped), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    shared = [value(m, evidence[0]) for m in matrices]
    np.testing.assert_allclose(jax.vmap(lambda m: value(m, evidence[0]))(matrices), shared, rtol=1e-12)
    shared = [value(matrices[0], e) for e in evidence]
    np.testing.assert_allclose(jax.vmap(lambda e: value(matrices[0], e))(evidence), shared, rtol=1e-12)


@pytest.mark.slow
def test_padding_adds_nothing() -> None:
    """A padded batch is the sequences one by one; evidence after the end would be about the last state."""
    lengths, initial, matrix = np.array([2, 5, 1, 2]), RNG.dirichlet(np.ones(3)), RNG.dirichlet(np.ones(3), 3)
    evidence = RNG.normal(size=(4, 5, 3)) * (np.arange(5) < lengths[:, None])[..., None]
    chain = MarkovChain(initial, matrix, 5, lengths=lengths)
    posterior = chain.condition(evidence)
    gradient = jax.grad(
        lambda m: MarkovChain(initial, m, 5, lengths=lengths, validate_args=False).log_marginal(evidence).sum()
    )(matrix)
    alone = np.zeros((3, 3))
    for n, length in enumerate(lengths):
        one, mine = MarkovChain(initial, matrix, length), evidence[n, :length]
        alone += jax.grad(lambda m, e=mine: MarkovChain(initial, m, len(e), validate_args=False).log_marginal(e))(
            matrix
        )
        np.testing.assert_allclose(chain.log_marginal(evidence)[n], one.log_marginal(mine), rtol=1e-12)
        for states in (chain.filtered, chain.smoothed, chain.predicted):
            np.testing.assert_allclose(states(evidence)[n, :length], getattr(one, states.__name__)(mine), rtol=1e-12)
        path = one.most_probable_path(mine)
        np.testing.assert_array_equal(chain.most_probable_path(evidence)[n], [*path, *[path[-1]] * (5 - length)])
        np.testing.assert_allclose(posterior.entropy()[n], one.condition(mine).entropy(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(gradient, alone, rtol=1e-12)
    paths = posterior.sample(jax.random.key(0), (20,))
    assert all(
        np.all(paths[:, n, length - 1 :] == paths[:, n, length - 1 : length]) for n, length in enumerate(lengths)
    )
    assert bool(jnp.isfinite(posterior.log_prob(paths)).all())
    assert bool(jnp.isneginf(chain.log_prob(np.array([0, 1, 2, 0, 0]))[2]))


@every_chain
def test_what_evidence_says_is_a_sum_over_paths(name: str) -> None:
    chain = CHAINS[name]()
    paths, evidence = all_paths(chain), evidence_for(chain)
    posterior = chain.condition(evidence)
    weights = np.exp(posterior.log_prob(paths))
    visits = np.eye(chain.num_states)[paths]
    np.testing.assert_allclose(chain.smoothed(evidence), (weights[..., None, None] * visits).sum(0), atol=1e-12)
    for t in range(chain.num_steps):
        for states, given in ((chain.predicted, t), (chain.filtered, t + 1)):
            part = np.where((np.arange(chain.num_steps) < given)[:, None], evidence, 0.0)
            np.testing.assert_allclose(states(evidence)[..., t, :], chain.smoothed(part)[..., t, :], atol=1e-12)
    best = np.asarray(posterior.log_prob(chain.most_probable_path(evidence)))
    np.testing.assert_allclose(best, np.asarray(posterior.log_prob(paths)).max(0), rtol=1e-10)
    logs = np.where(weights > 0, np.log(np.where(weights > 0, weights, 1.0)), 0.0)
    np.testing.assert_allclose(posterior.entropy(), -(weights * logs).sum(0), rtol=1e-10, atol=1e-13)
    if name != "left_to_right":
        apart = (weights * np.where(weights > 0, logs - np.asarray(chain.log_prob(paths)), 0.0)).sum(0)
        np.testing.assert_allclose(kl_divergence(posterior, chain), apart, rtol=1e-9, atol=1e-12)


WRONG = {
    "fractions": (np.array([1.5]), "lengths are integers, not float64"),
    "nothing": (np.array([3, 0]), r"lengths has 0 at \[1\]; expected 1 to 4 steps"),
    "too long": (np.array([5]), r"lengths has 5 at \[0\]; expected 1 to 4 steps"),
}


@pytest.mark.parametrize("name", WRONG)
def test_lengths_that_are_none(name: str) -> None:
    lengths, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        MarkovChain(np.ones(2) / 2, np.ones((2, 2)) / 2, 4, lengths=lengths)


@pytest.mark.parametrize("name", quick_ones(CASES, "many"))
def test_averages_over_a_conditioned_chain_are_those_of_its_matrices(name: str) -> None:
    """Lanes count states and moves from the evidence; the chain with the same matrices looks at every step."""
    one = CASES[name]
    lengths = None if one.moving is None else 1 + one.moving.sum(-1)
    size = one.evidence.shape[-2]
    chain = MarkovChain(one.initial, one.transition[..., 0, :, :], size, lengths=lengths)

    def averages(evidence: Any, plain: bool) -> tuple[Any, ...]:
        q = chain.condition(evidence)
        if plain:
            q = MarkovChain(q.initial_probs, q.transition_probs, time_varying=True, lengths=lengths)
        return (
            q.marginals(),
            chain.expected_log_prob(q),
            chain.expected_log_prob(q.with_cached_expectations()),
            q.entropy(),
        )

    found, expected = (averages(one.evidence, plain) for plain in (False, True))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    slopes = [jax.grad(lambda e, plain=plain: averages(e, plain)[1].sum())(one.evidence) for plain in (False, True)]
    np.testing.assert_allclose(*slopes, rtol=1e-7, atol=1e-10)
