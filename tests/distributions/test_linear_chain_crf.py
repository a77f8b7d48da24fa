"""Labels by scores: every number against sums over all labellings."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bayeslab.distributions import LinearChainCRF

Array = NDArray[Any]
STEPS, LABELS = 4, 3
LENGTHS = np.array([4, 2, 1])


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Scores(NamedTuple):
    """Of three sequences. moves: shared, or of every step."""

    states: Array
    moves: Array
    lengths: Array | None = None

    def field(self) -> LinearChainCRF:
        return LinearChainCRF(self.states, self.moves, time_varying=self.moves.ndim == 4, lengths=self.lengths)

    def enumerated(self, sequence: int) -> tuple[Array, Array]:
        """All labellings of a sequence, and the log probability of each: by the definition, one after the other."""
        length = STEPS if self.lengths is None else self.lengths[sequence]
        moves = np.broadcast_to(self.moves, (3, STEPS - 1, LABELS, LABELS))[sequence]
        labellings = np.array(list(itertools.product(range(LABELS), repeat=length)))
        totals = np.array(
            [
                sum(self.states[sequence, t, y[t]] for t in range(length))
                + sum(moves[t, y[t], y[t + 1]] for t in range(length - 1))
                for y in labellings
            ]
        )
        return labellings, totals - np.logaddexp.reduce(totals)


def scores(varying: bool = False, lengths: Array | None = None, size: float = 2.0) -> Scores:
    rng = np.random.default_rng([varying, lengths is not None])
    moves = rng.normal(0, size, (3, STEPS - 1, LABELS, LABELS) if varying else (LABELS, LABELS))
    return Scores(rng.normal(0, size, (3, STEPS, LABELS)), moves, lengths)


def impossible_move() -> Scores:
    """The first label is never followed by itself, nor the last by any other."""
    states, moves, _ = scores()
    moves[0, 0] = moves[2, 0] = moves[2, 1] = -np.inf
    return Scores(states, moves)


CASES = {
    "shared": scores(),
    "varying": scores(varying=True),
    "lengths": scores(lengths=LENGTHS),
    "varying lengths": scores(varying=True, lengths=LENGTHS),
    "far apart": scores(size=60.0),
    "impossible": impossible_move(),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def padded(labellings: Array) -> Array:
    """After its end a sequence keeps its last label."""
    return np.pad(labellings, ((0, 0), (0, STEPS - labellings.shape[1])), "edge")


@every_case
def test_all_numbers_are_those_of_enumeration(case: Scores) -> None:
    field = case.field()
    marginals, modes = np.asarray(field.marginals()), np.asarray(field.mode())
    for sequence in range(3):
        labellings, log_probs = case.enumerated(sequence)
        values = np.broadcast_to(padded(labellings)[:, None], (len(labellings), 3, STEPS))
        np.testing.assert_allclose(field.log_prob(values)[:, sequence], log_probs, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(modes[sequence], padded(labellings)[log_probs.argmax()])
        for step in range(labellings.shape[1]):
            expected = [np.exp(log_probs[labellings[:, step] == label]).sum() for label in range(LABELS)]
            np.testing.assert_allclose(marginals[sequence, step], expected, atol=1e-12)


def test_draws_have_the_probabilities_of_enumeration() -> None:
    case = CASES["varying lengths"]
    draws = np.asarray(case.field().sample(jax.random.PRNGKey(0), (20_000,)))
    for sequence in range(3):
        labellings, log_probs = case.enumerated(sequence)
        share = (draws[:, sequence, None] == padded(labellings)).all(-1).mean(0)
        error = np.sqrt(np.exp(log_probs) / 20_000)
        assert (abs(share - np.exp(log_probs)) < 5 * error + 1e-4).all()


@pytest.mark.parametrize("name", ["shared", "varying lengths"])
def test_gradients_are_observed_minus_expected_features(name: str) -> None:
    """The gradient of the notes, with the expectations enumerated, and finite differences of the log probability."""
    case = CASES[name]
    labels = padded(np.array([[2, 0, 1, 1]]))[[0, 0, 0]]
    if case.lengths is not None:
        labels = np.stack([np.where(np.arange(STEPS) < n, labels[0], labels[0, n - 1]) for n in case.lengths])

    def log_prob(states: Any, moves: Any) -> Any:
        return Scores(states, moves, case.lengths).field().log_prob(labels).sum()

    of_states, of_moves = jax.jit(jax.grad(log_prob, (0, 1)))(case.states, case.moves)
    for sequence, length in enumerate([STEPS] * 3 if case.lengths is None else case.lengths):
        labellings, log_probs = case.enumerated(sequence)
        expected = np.stack([np.exp(log_probs) @ (labellings == label) for label in range(LABELS)], -1)
        observed = np.eye(LABELS)[labels[sequence, :length]]
        np.testing.assert_allclose(of_states[sequence, :length], observed - expected, atol=1e-12)
        np.testing.assert_allclose(of_states[sequence, length:], 0.0, atol=1e-12)
    direction = np.random.default_rng(0).normal(size=case.moves.shape)
    up, down = (log_prob(case.states, case.moves + sign * 1e-5 * direction) for sign in (1, -1))
    np.testing.assert_allclose((of_moves * direction).sum(), (up - down) / 2e-5, rtol=1e-7)


def test_further_log_likelihoods_are_added_to_the_scores() -> None:
    """What is seen of labels beside, and its log evidence: a ratio of two sums over labellings."""
    case = CASES["shared"]
    seen = np.random.default_rng(1).normal(size=case.states.shape)
    both = case._replace(states=case.states + seen).field()
    conditioned = case.field().condition(seen)
    labels = np.array([[0, 2, 1, 1]] * 3)
    np.testing.assert_allclose(conditioned.log_prob(labels), both.log_prob(labels), rtol=1e-12)
    expected = both.log_partition - case.field().log_partition
    np.testing.assert_allclose(case.field().log_marginal(seen), expected, rtol=1e-11)


def test_a_number_added_to_all_scores_changes_nothing() -> None:
    case, labels = CASES["varying"], np.array([[0, 2, 1, 1]] * 3)
    shifted = case._replace(states=case.states + 1e3, moves=case.moves - 500.0).field()
    np.testing.assert_allclose(shifted.log_prob(labels), case.field().log_prob(labels), rtol=1e-11)


def test_one_step_and_one_label() -> None:
    one_step = LinearChainCRF(np.array([[0.3, -0.2]]), np.zeros((2, 2)))
    np.testing.assert_allclose(one_step.log_prob(np.array([1])), jax.nn.log_softmax(jnp.array([0.3, -0.2]))[1])
    one_label = LinearChainCRF(np.ones((3, 1)), np.ones((1, 1)))
    np.testing.assert_allclose(one_label.log_prob(np.zeros(3, int)), 0.0, atol=1e-14)


WRONG = {
    "no steps": ((np.ones(3), np.ones((3, 3))), {}, r"state_scores has shape \(3,\); expected \(\*batch, num_steps, K"),
    "other labels": (
        (np.ones((4, 3)), np.ones((2, 2))),
        {},
        r"move_scores has shape \(2, 2\); expected \(\*batch, 3, 3\), since state_scores has 3 labels at 4 steps",
    ),
    "moves of steps": (
        (np.ones((4, 3)), np.ones((4, 3, 3))),
        {"time_varying": True},
        r"move_scores has shape \(4, 3, 3\); expected \(\*batch, 3, 3, 3\)",
    ),
    "batches": ((np.ones((2, 4, 3)), np.ones((5, 3, 3))), {}, r"batch shapes \(2,\) and \(5,\)"),
    "lengths": ((np.ones((2, 4, 3)), np.ones((3, 3))), {"lengths": [4, 5]}, r"lengths has 5 at \[1\]; expected 1 to 4"),
    "not a number": ((np.full((4, 3), np.nan), np.ones((3, 3))), {"validate_args": True}, "state_scores"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_do_not_fit_are_named(name: str) -> None:
    arguments, settings, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        LinearChainCRF(*arguments, **settings)
