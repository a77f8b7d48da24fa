"""CS229: control."""

import numpy as np
from scipy.optimize import minimize

from errata.erratum import Erratum, Shown

STEPS = 6
DYNAMICS = np.array([[1.0, 0.4], [0.0, 0.9]])
EFFECT = np.array([[0.0], [0.5]])
NOISE = 0.05 * np.eye(2)
COST = np.diag([1.0, 0.3])
EFFORT = np.array([[0.2]])
START = np.array([1.0, -0.5])


def values() -> tuple[np.ndarray, list[np.ndarray], float]:
    """Phi_0 of the value s' Phi_0 s + Psi_0, the gains to be multiplied by minus one, and the sum of tr(Sigma Phi)."""
    phi, gains, traces = -COST, [], 0.0
    for _ in range(STEPS):
        traces += float(np.trace(NOISE @ phi))
        gains.append(np.linalg.solve(EFFECT.T @ phi @ EFFECT - EFFORT, EFFECT.T @ phi @ DYNAMICS))
        phi = DYNAMICS.T @ phi @ (DYNAMICS - EFFECT @ gains[-1]) - COST
    return phi, gains[::-1], traces


def best_action() -> Shown:
    def loss(actions: np.ndarray) -> float:
        state, total = START, 0.0
        for action in actions:
            total += state @ COST @ state + EFFORT[0, 0] * action**2
            state = DYNAMICS @ state + EFFECT[:, 0] * action
        return total + state @ COST @ state

    first = float((values()[1][0] @ START)[0])
    return Shown(
        "best first action of six, start $(1, -0.5)$",
        printed=first,
        right=-first,
        truth=float(minimize(loss, np.zeros(STEPS), tol=1e-10).x[0]),
        by="maximisation over all actions",
        tolerance=1e-5,
    )


def expected_return() -> Shown:
    phi, gains, traces = values()
    generator = np.random.default_rng(0)
    state, total = np.tile(START, (100_000, 1)), np.zeros(100_000)
    for gain in gains:
        actions = -state @ gain.T
        total -= (state @ COST * state).sum(1) + EFFORT[0, 0] * actions[:, 0] ** 2
        noise = np.sqrt(NOISE[0, 0]) * generator.normal(size=state.shape)
        state = state @ DYNAMICS.T + actions @ EFFECT.T + noise
    total -= (state @ COST * state).sum(1)
    return Shown(
        "expected return of the best control in six noisy steps from $(1, -0.5)$",
        printed=float(START @ phi @ START) - traces,
        right=float(START @ phi @ START) + traces,
        truth=float(total.mean()),
        by="simulation",
        tolerance=0.015,
    )


ERRATA = (
    Erratum(
        "C12",
        "16.1",
        r"The return $\dots + \sum_t R(s_t, a_t)\, \gamma^t$",
        r"$\dots = \sum_t R(s_t, a_t)\, \gamma^t$",
    ),
    Erratum(
        "C13",
        "16.2",
        r"$U_t \in \mathbb{R}^{d \times n}$; $-a^\top V_t a$ in Bellman's equation; $\Phi_t$ depends on $\Phi_t$",
        r"$U_t \in \mathbb{R}^{d \times d}$; $-a^\top W_t a$; on $\Phi_{t+1}$",
    ),
    Erratum(
        "C14",
        "16.2",
        r"$a_t^* = (B^\top \Phi_{t+1} B - W)^{-1} B^\top \Phi_{t+1} A\, s_t$",
        r"$a_t^* = -(B^\top \Phi_{t+1} B - W)^{-1} B^\top \Phi_{t+1} A\, s_t$",
        "The printed action drives the state away.",
        best_action,
    ),
    Erratum(
        "C15",
        "16.2",
        r"$\Psi_t = -\text{tr}(\Sigma_t \Phi_{t+1}) + \Psi_{t+1}$",
        r"$\Psi_t = \text{tr}(\Sigma_t \Phi_{t+1}) + \Psi_{t+1}$",
        r"$\Phi$ is negative, and noise costs.",
        expected_return,
    ),
    Erratum("C16", "16.3", r"$s_{t+1} \approx A s_t + B s_t + \kappa$", r"$s_{t+1} \approx A s_t + B a_t + \kappa$"),
    Erratum(
        "C17",
        "16.4",
        r"$y_t \in \mathbb{R}^n$ with $m < n$; the gain $K_t$; the prediction $A s_{t \mid t}$ under control",
        r"$y_t \in \mathbb{R}^n$ with $n < d$; $K_{t+1}$; $A s_{t \mid t} + B a_t$",
    ),
    Erratum(
        "C18",
        "17",
        r"$\eta = E_{s_0 \sim P}[\dots]$",
        r"$\eta = E_{s_0 \sim \mu}[\dots]$; further, $f(\tau) = 1$ is a constant, and the actions are"
        r" $a_0, \dots, a_{T-1}$",
    ),
)
