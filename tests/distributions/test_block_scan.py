"""Chains on accelerators, in blocks of steps side by side, beside the same recursions step by step."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bayeslab.distributions import LinearGaussianChain, MarkovChain, block_scan, kalman
from bayeslab.distributions.block_scan import Effects, num_levels, scan_in_blocks
from bayeslab.distributions.kalman import InformationPair, Moments, Transition
from bayeslab.distributions.markov import inference, paths, sequential
from bayeslab.distributions.processor import as_on_accelerator, on_cpu
from operations import lowered_for_cuda, num_operations

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts sequences from two steps on, and those of seven into blocks of blocks."""
    monkeypatch.setattr(block_scan, "MIN_STEPS_IN_BLOCKS", 2)
    monkeypatch.setattr(block_scan, "MIN_STEPS_IN_MANY_LEVELS", 7)


def on_both(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """What a function returns on a CPU, and from its program for accelerators."""
    with on_cpu(True):
        expected = jax.device_get(jax.jit(function)(*arguments))
    with as_on_accelerator():
        return expected, jax.jit(lambda *x: function(*x))(*arguments)


def assert_same(expected: Any, found: Any) -> None:
    """Relative to 1e-12; `Scaled` numbers as shares of each step."""
    is_scaled = lambda x: isinstance(x, sequential.Scaled)  # noqa: E731
    for pair in zip(*(jax.tree.leaves(tree, is_leaf=is_scaled) for tree in (expected, found)), strict=True):
        one, other = (x.probabilities() if is_scaled(x) else x for x in pair)
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7, 1001, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (3, 100))])
@pytest.mark.usefixtures("short_blocks")
def test_a_scan_in_blocks_is_a_scan(steps: int, reverse: bool) -> None:
    """Rotations and shifts of the plane, whose order matters."""
    angle, shift = jnp.asarray(RNG.normal(size=steps)), jnp.asarray(RNG.normal(size=(steps, 2)))

    def turn(angle: Any) -> Any:
        return jnp.array([[jnp.cos(angle), -jnp.sin(angle)], [jnp.sin(angle), jnp.cos(angle)]])

    def step(x: Any, item: Any) -> Any:
        return turn(item[0]) @ x + item[1], (x, item[0])

    effects = Effects(
        (jnp.eye(2), jnp.zeros(2)),
        lambda block, item: (turn(item[0]) @ block[0], turn(item[0]) @ block[1] + item[1]),
        lambda block, x: block[0] @ x + block[1],
        lambda block, later: (later[0] @ block[0], later[0] @ block[1] + later[1]),
    )
    start = jnp.array([1.0, 2.0])
    with as_on_accelerator():
        found = scan_in_blocks(step, effects, start, (angle, shift), reverse)
    with on_cpu(True):
        assert_same(lax.scan(step, start, (angle, shift), reverse=reverse), found)


def test_sequences_are_cut_where_that_makes_a_program_wider() -> None:
    narrow, wide = np.zeros((2, 5, 5)), np.zeros((20_000, 5, 5))
    with on_cpu(True):
        assert num_levels(50_000, narrow) == 1
    with as_on_accelerator():
        assert [num_levels(steps, narrow) for steps in (10, 100, 50_000)] == [1, 2, 4]
        assert num_levels(50_000, wide) == 1


def markov_case(steps: int, states: int, batch: tuple[int, ...] = (), varying: bool = False, scale: float = 3.0) -> Any:
    """Two in five transitions have probability 0; in a batch sequences end early."""
    kept = RNG.dirichlet(np.ones(states), (*batch, steps - 1 if varying else 1, states))
    transition = np.where(RNG.random(kept.shape) < 0.4, 0.0, kept) + 0.1 * np.eye(states)
    active = np.arange(1, steps) < RNG.integers(1, steps + 1, batch)[..., None] if batch else None
    return (
        jnp.asarray(np.append(0.0, RNG.dirichlet(np.ones(states - 1)))),
        jnp.asarray(transition / transition.sum(-1, keepdims=True)),
        jnp.asarray(scale * RNG.normal(size=(*batch, steps, states))),
        None if active is None else jnp.asarray(active),
    )


MARKOV = {
    "two, a batch with matrices of its own": {"steps": 2, "states": 3, "batch": (2,), "varying": True},
    "seven, a batch": {"steps": 7, "states": 3, "batch": (2, 2)},
    "a thousand of any size": {"steps": 1001, "states": 3, "scale": 1e3},
}


@pytest.mark.parametrize("name", MARKOV)
@pytest.mark.usefixtures("short_blocks")
def test_markov_chains_in_blocks_are_step_by_step(name: str) -> None:
    """Messages, evidence, the best path, and draws with the same uniform numbers."""
    arguments = markov_case(**MARKOV[name])
    uniform = jnp.asarray(RNG.random((arguments[2].shape[-2], 2, *arguments[2].shape[:-2])))

    def every(initial: Any, transition: Any, log_likelihood: Any, active: Any) -> Any:
        given = initial, transition, log_likelihood, active
        return (
            sequential.forward(*given),
            sequential.backward(*given[1:]),
            paths.viterbi_path(*given),
            paths.draw(initial, transition, active, uniform),
        )

    assert_same(*on_both(every, *arguments))


def test_derivatives_in_blocks_are_those_step_by_step() -> None:
    """Expected counts, and derivatives of smoothed probabilities through all three loops, but for impossible moves."""
    initial, transition, log_likelihood, active = markov_case(60, 3, (2,))
    weight = RNG.normal(size=log_likelihood.shape)

    def slopes(transition: Any, log_likelihood: Any) -> Any:
        def total(*changed: Any) -> Any:
            smoothed = inference._stepwise_states(initial, *changed, active)
            return (weight * smoothed).sum() + inference.log_marginal(initial, *changed, active).sum()

        by_transition, by_likelihood = jax.grad(total, (0, 1))(transition, log_likelihood)
        return jnp.where(transition > 0, by_transition, 0.0), by_likelihood

    assert_same(*on_both(slopes, transition, log_likelihood))


def covariances(*shape: int, size: int = 2) -> Any:
    root = RNG.normal(size=(*shape, size, size))
    return jnp.asarray(root @ np.swapaxes(root, -1, -2))


def test_linear_gaussian_chains_in_blocks_are_step_by_step() -> None:
    """Of a batch of three, with moves of their own and steps that nothing is known about."""
    steps = 101
    start = Moments(jnp.asarray(RNG.normal(size=(3, 2))), covariances(3))
    matrix, offset = 0.5 * RNG.normal(size=(steps - 1, 1, 2, 2)), RNG.normal(size=(steps - 1, 1, 2))
    moves = Transition(jnp.asarray(matrix), jnp.asarray(offset), covariances(steps - 1, 1))
    known = (RNG.random(steps) > 0.3)[:, None, None]
    evidence = InformationPair(
        covariances(steps, 3) * known[..., None], jnp.asarray(RNG.normal(size=(steps, 3, 2))) * known
    )
    noise, first = jnp.asarray(RNG.normal(size=(steps - 1, 2, 3, 2))), jnp.asarray(RNG.normal(size=(2, 3, 2)))

    def log_mass(moves: Transition) -> Any:
        symmetric = (moves.covariance + moves.covariance.mT) / 2  # so that there is one derivative with respect to it
        return kalman.log_mass(start, moves._replace(covariance=symmetric), evidence).sum()

    def every(start: Moments, moves: Transition, evidence: InformationPair) -> Any:
        whole = start, moves, evidence
        return (
            kalman.conditioned(*whole),
            kalman.filtered(*whole),
            kalman.moments(start, moves, steps),
            kalman.path(first, moves, noise),
            jax.value_and_grad(log_mass)(moves),
        )

    expected, found = on_both(every, start, moves, evidence)
    assert_same(expected, found)


def markov(log_likelihood: Any, transition: Any) -> MarkovChain:
    return MarkovChain(np.ones(5) / 5, transition, len(log_likelihood), validate_args=False)


def smoother(log_likelihood: Any, transition: Any) -> Any:
    steps = len(log_likelihood)
    chain = LinearGaussianChain(
        np.zeros(2), np.eye(2), transition[:2, :2], np.eye(2), num_steps=steps, validate_args=False
    )
    given = jnp.broadcast_to(jnp.eye(2), (steps, 2, 2)), log_likelihood[:, :2]
    return chain.log_marginal(*given), chain.smoothed(*given)


MAX_OPERATIONS = {
    "counts": (lambda x, a: jax.value_and_grad(lambda x, a: markov(x, a).log_marginal(x), (0, 1))(x, a), 2_700),
    "most probable path": (lambda x, a: markov(x, a).most_probable_path(x), 850),
    "path": (lambda x, a: markov(x, a).condition(x).sample(jax.random.key(0)), 2_150),
    "smoother": (smoother, 2_500),
}


@pytest.mark.parametrize("name", MAX_OPERATIONS)
def test_programs_do_not_grow_with_the_number_of_steps(name: str) -> None:
    function, most = MAX_OPERATIONS[name]
    transition = jax.ShapeDtypeStruct((5, 5), float)
    numbers = [
        num_operations(lowered_for_cuda(function, jax.ShapeDtypeStruct((steps, 5), float), transition))
        for steps in (1_000, 50_000)
    ]
    assert max(numbers) < 1.05 * min(numbers)  # some blocks have a step that is filled up, and others none
    assert max(numbers) < most
