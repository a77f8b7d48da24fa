"""Linear quadratic control: by minimisation over all actions, by SciPy, by simulation; beliefs in place of states."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are
from scipy.optimize import minimize

import bayeslab as bl
from bayeslab.control import LinearSystem
from bayeslab.models import lqg

Array = NDArray[Any]
A, B = np.array([[1.0, 0.4], [0.0, 0.9]]), np.array([[0.0], [0.5]])
DYNAMICS = A, B
COSTS = np.diag([1.0, 0.3]), np.array([[0.2]])
NOISE = np.array([[0.05, 0.01], [0.01, 0.08]])
START = np.array([1.0, -0.5])
SYSTEM = LinearSystem(**{name: lqg.example()[name] for name in LinearSystem._fields})
STEPS = 6


def cost_of(actions: Array, start: Array = START) -> float:
    state, total = start, 0.0
    for action in actions.reshape(STEPS, 1):
        total += state @ COSTS[0] @ state + action @ COSTS[1] @ action
        state = A @ state + B @ action
    return total + state @ COSTS[0] @ state


def test_the_law_has_the_best_actions_of_all() -> None:
    control = bl.control.finite_control(DYNAMICS, COSTS, STEPS)
    best = minimize(cost_of, np.zeros(STEPS), tol=1e-12)
    np.testing.assert_allclose(control.gain[0] @ START, best.x[:1], atol=1e-5)
    np.testing.assert_allclose(START @ control.value[0] @ START, best.fun, rtol=1e-9)
    np.testing.assert_allclose(control.value[-1], COSTS[0])


def test_the_law_of_many_steps_solves_the_algebraic_riccati_equation() -> None:
    value = solve_discrete_are(A, B, *COSTS)
    gain = -np.linalg.solve(COSTS[1] + B.T @ value @ B, B.T @ value @ A)
    control = bl.control.finite_control(DYNAMICS, COSTS, 200)
    np.testing.assert_allclose(control.value[0], value, rtol=1e-10)
    np.testing.assert_allclose(control.gain[0], gain, rtol=1e-10)
    for found, expected in zip(bl.control.stationary_control(DYNAMICS, COSTS), (gain, value), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_noise_costs() -> None:
    """The expected cost against simulation: the lecture's signs of the action (C14) and of the noise (C15) are off by
    more than ten of its errors."""
    rng, runs = np.random.default_rng(0), 20_000
    control = bl.control.finite_control(DYNAMICS, COSTS, STEPS, NOISE)

    def simulated(sign: float) -> Array:
        state, total = np.tile(START, (runs, 1)), np.zeros(runs)
        for gain in control.gain:
            action = sign * state @ gain.T
            total += ((state @ COSTS[0]) * state).sum(1) + ((action @ COSTS[1]) * action).sum(1)
            state = state @ A.T + action @ B.T + rng.multivariate_normal(np.zeros(2), NOISE, runs)
        return total + ((state @ COSTS[0]) * state).sum(1)

    costs = simulated(1.0)
    error = costs.std() / np.sqrt(runs)
    known = START @ control.value[0] @ START
    assert abs(costs.mean() - known - control.noise_cost[0]) < 4 * error
    assert abs(costs.mean() - known + control.noise_cost[0]) > 10 * error
    assert simulated(-1.0).mean() > costs.mean() + 10 * error


def test_many_systems_at_once() -> None:
    several = np.stack([A, 0.5 * A, A.T])
    together = bl.control.finite_control((several, B), COSTS, 4, NOISE)
    for each, matrix in enumerate(several):
        alone = bl.control.finite_control((matrix, B), COSTS, 4, NOISE)
        np.testing.assert_allclose(together.gain[each], alone.gain, rtol=1e-12)
        np.testing.assert_allclose(together.noise_cost[each], alone.noise_cost, rtol=1e-12)


def test_the_separation_principle() -> None:
    """The law of the known state, applied to the belief: its cost is that of control and that of not knowing, no other
    gain is cheaper, and the belief is as sharp whatever is done."""
    control = bl.control.finite_control((SYSTEM.a, SYSTEM.b), COSTS, STEPS, SYSTEM.q)
    best = bl.control.expected_cost(SYSTEM, COSTS, control.gain)
    runs = bl.control.closed_loop(0, SYSTEM, COSTS, control.gain, 4000)
    cost = runs["cost"].values
    assert abs(cost.mean() - best) < 4 * cost.std() / np.sqrt(len(cost))

    covariance = runs["belief_covariance"].values
    known = SYSTEM.mu1 @ control.value[0] @ SYSTEM.mu1 + np.trace(control.value[0] @ SYSTEM.sigma1)
    unknown = sum(
        np.trace(gain.T @ (COSTS[1] + SYSTEM.b.T @ later @ SYSTEM.b) @ gain @ belief)
        for gain, later, belief in zip(control.gain, control.value[1:], covariance, strict=False)
    )
    np.testing.assert_allclose(best, known + control.noise_cost[0] + unknown, rtol=1e-10)
    assert unknown > 0.01 * best

    rng = np.random.default_rng(1)
    for _ in range(5):
        change = 0.05 * rng.normal(size=control.gain.shape)
        one, other = (bl.control.expected_cost(SYSTEM, COSTS, control.gain + sign * change) for sign in (1, -1))
        assert min(one, other) > best
        np.testing.assert_allclose(one, other, rtol=0.02)  # a minimum: no change of first order
    weak = bl.control.closed_loop(1, SYSTEM, COSTS, 0.2 * control.gain, 2)
    np.testing.assert_allclose(weak["belief_covariance"], covariance, rtol=1e-12)


def test_the_belief_is_the_posterior_of_the_program() -> None:
    """The filter of the closed loop against the elimination of the states from `lqg`."""
    gain = bl.control.finite_control((SYSTEM.a, SYSTEM.b), COSTS, 4).gain
    run = bl.control.closed_loop(3, SYSTEM, COSTS, gain).isel(run=0)
    data = {**SYSTEM._asdict(), "action": run["action"].values, "y": run["y"].values}
    tree = bl.fit(0, lqg.model, data, bl.Exact(10), progress=False)
    states = bl.states.filtered_states(lqg.model, data, tree)
    np.testing.assert_allclose(states["mean"], run["belief"], atol=1e-10)
    deviation = np.sqrt(np.diagonal(run["belief_covariance"].values, axis1=1, axis2=2))
    np.testing.assert_allclose(states["sd"], deviation, atol=1e-10)


def test_measurements_without_error_leave_nothing_to_believe() -> None:
    """The whole state without error costs what a known state costs; a part of it, the limit of small errors."""
    control = bl.control.finite_control((SYSTEM.a, SYSTEM.b), COSTS, STEPS, SYSTEM.q)
    whole = SYSTEM._replace(c=np.eye(2), r=np.zeros((2, 2)))
    known = np.outer(SYSTEM.mu1, SYSTEM.mu1) + SYSTEM.sigma1
    cost = np.trace(control.value[0] @ known) + control.noise_cost[0]
    np.testing.assert_allclose(bl.control.expected_cost(whole, COSTS, control.gain), cost, rtol=1e-12)
    run = bl.control.closed_loop(0, whole, COSTS, control.gain)
    np.testing.assert_allclose(run["belief"], run["s"], atol=1e-12)
    exact, near = (bl.control.expected_cost(SYSTEM._replace(r=r), COSTS, control.gain) for r in ([[0.0]], [[1e-9]]))
    np.testing.assert_allclose(exact, near, rtol=1e-6)


def test_a_state_that_is_known_and_moves_without_noise() -> None:
    fixed = SYSTEM._replace(sigma1=np.zeros((2, 2)), q=np.zeros((2, 2)), r=np.zeros((1, 1)))
    control = bl.control.finite_control((SYSTEM.a, SYSTEM.b), COSTS, STEPS)
    cost = SYSTEM.mu1 @ control.value[0] @ SYSTEM.mu1
    np.testing.assert_allclose(bl.control.expected_cost(fixed, COSTS, control.gain), cost, rtol=1e-12)
    np.testing.assert_allclose(bl.control.closed_loop(0, fixed, COSTS, control.gain)["cost"], cost, rtol=1e-12)


NO_COVARIANCE = np.array([[1.0, 2.0], [2.0, 1.0]])
WRONG: dict[str, tuple[Any, str]] = {
    "square": (lambda: bl.control.finite_control((A[:1], B), COSTS, 3), r"A has shape \(1, 2\)"),
    "rows": (lambda: bl.control.finite_control((A, B.T), COSTS, 3), r"B has shape \(1, 2\); expected \(\*batch, 2"),
    "costs": (lambda: bl.control.finite_control(DYNAMICS, COSTS[::-1], 3), r"U has shape \(1, 1\)"),
    "free": (lambda: bl.control.finite_control(DYNAMICS, (COSTS[0], 0 * COSTS[1]), 3), "every action has a cost"),
    "steps": (lambda: bl.control.finite_control(DYNAMICS, COSTS, 0), "num_steps must be at least 1"),
    "nan": (lambda: bl.control.finite_control((A * np.nan, B), COSTS, 3), "A must have finite numbers"),
    "out of reach": (lambda: bl.control.stationary_control((2 * np.eye(2), B), COSTS), "no control keeps the cost"),
    "gain": (lambda: bl.control.closed_loop(0, SYSTEM, COSTS, np.ones((3, 2))), r"gain has shape \(3, 2\)"),
    "noise": (lambda: bl.control.finite_control(DYNAMICS, COSTS, 3, NO_COVARIANCE), "noise must be a covariance"),
    "skew": (lambda: bl.control.finite_control(DYNAMICS, COSTS, 3, [[1, 0.5], [0, 1]]), "noise must be a covariance"),
    "moves": (
        lambda: bl.control.expected_cost(SYSTEM._replace(q=NO_COVARIANCE), COSTS, np.ones((3, 1, 2))),
        "q must be a covariance: symmetric, without negative eigenvalues",
    ),
    "errors": (
        lambda: bl.control.closed_loop(0, SYSTEM._replace(r=[[-0.1]]), COSTS, np.ones((3, 1, 2))),
        "r must be a covariance",
    ),
    "runs": (lambda: bl.control.closed_loop(0, SYSTEM, COSTS, np.ones((3, 1, 2)), 0), "num_runs must be at least 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        call()
