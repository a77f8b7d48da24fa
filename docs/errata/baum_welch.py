"""Baum-Welch: EM for hidden Markov models."""

import math
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from errata.erratum import Erratum, Shown
from errata.small_chain import EMISSION, INITIAL, SYMBOLS, TRANSITION, backward, forward, joint, pairs, paths


def transition_update() -> Shown:
    states, weights = paths(6), joint(paths(6), SYMBOLS)
    moves = pairs(SYMBOLS).sum(0)
    left = (states[:, :-1] == 0).sum(1)
    changed = ((states[:, :-1] == 0) & (states[:, 1:] == 1)).sum(1)

    def loss(a: float) -> float:
        return -float(weights @ (changed * np.log(a) + (left - changed) * np.log(1 - a)))

    return Shown(
        "$a_{12}$ after one M-step from six symbols",
        printed=0.0,  # a step has one state, so the sum of Z_t^1 Z_t^2 is 0
        right=float(moves[0, 1] / moves[0].sum()),
        truth=float(minimize_scalar(loss, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-9}).x),
        by="maximisation over all paths",
        tolerance=1e-6,
    )


def emission_update() -> Shown:
    states, weights = paths(6), joint(paths(6), SYMBOLS)
    smoothed = (forward(SYMBOLS) * backward(SYMBOLS)).T / weights.sum()
    counts = smoothed @ (SYMBOLS[:, None] == np.arange(3))

    def loss(free: np.ndarray) -> float:
        row = np.exp([*free, 0.0])
        return -float(weights @ ((states == 0) * np.log(row / row.sum())[SYMBOLS]).sum(1) / weights.sum())

    best = np.exp([*minimize(loss, np.zeros(2), tol=1e-10).x, 0.0])
    return Shown(
        "$\\eta_{12}$ after one M-step from six symbols",
        printed=float(counts[0, 1] / counts[:, 1].sum()),
        right=float(counts[0, 1] / counts[0].sum()),
        truth=float(best[1] / best.sum()),
        by="maximisation over all paths",
        tolerance=1e-5,
    )


def underflow() -> Shown:
    symbols = np.random.default_rng(0).integers(3, size=800)
    initial, transition, emission = (
        [[Fraction(round(100 * entry), 100) for entry in row] for row in np.atleast_2d(table)]
        for table in (INITIAL, TRANSITION, EMISSION)
    )
    exact = [initial[0][i] * emission[i][symbols[0]] for i in range(2)]
    for symbol in symbols[1:]:
        exact = [sum(exact[i] * transition[i][j] for i in range(2)) * emission[j][symbol] for j in range(2)]
    state, total = INITIAL, 0.0
    for step, symbol in enumerate(symbols):
        state = (state @ TRANSITION if step else state) * EMISSION[:, symbol]
        total += math.log(state.sum())
        state = state / state.sum()
    raw = float(forward(symbols)[-1].sum())
    return Shown(
        "log likelihood of 800 symbols in double precision",
        printed=math.log(raw) if raw else -math.inf,
        right=total,
        truth=math.log(sum(exact).numerator) - math.log(sum(exact).denominator),
        by="exact fractions",
        tolerance=1e-8,
    )


ERRATA = (
    Erratum(
        "M69",
        "16.1",
        r"$E[Z_t^i Z_t^j] \log a_{ij}$, $m_{ij} = \sum_{t=1}^T E[Z_t^i Z_t^j]$",
        r"$E[Z_t^i Z_{t+1}^j] \log a_{ij}$, $m_{ij} = \sum_{t=1}^{T-1} E[Z_t^i Z_{t+1}^j]$",
        "A move takes two steps; at one step there is one state.",
        transition_update,
    ),
    Erratum(
        "M70",
        "16.1",
        r"Minimise under the constraint $\sum_{i=1}^O \eta_{ij} = 1$",
        r"Maximise under the constraint $\sum_{j=1}^O \eta_{ij} = 1$",
        "The $O$ symbols of a state share its probability.",
        emission_update,
    ),
    Erratum(
        "M72",
        "16",
        r"$\alpha(z_{t+1}) = p(x_{t+1} \mid z_{t+1}) \sum_{z_t} \alpha(z_t)\, p(z_{t+1} \mid z_t)$, as it stands",
        r"the same with $\alpha$ divided by its sum $c_t$ at every step; $\log p(x) = \sum_t \log c_t$",
        "Not wrong but of no use for long sequences, where the product falls below the smallest number.",
        underflow,
    ),
)
