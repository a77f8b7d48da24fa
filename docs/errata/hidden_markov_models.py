"""Hidden Markov models: what they say, and what is asked of them."""

import numpy as np

from errata.erratum import Erratum, Shown
from errata.small_chain import (
    EMISSION,
    INITIAL,
    SYMBOLS,
    TRANSITION,
    backward,
    forward,
    joint,
    pairs,
    paths,
    simulated_states,
)


def who_follows_whom() -> Shown:
    seen = np.array([0, 0])
    filtered = forward(seen)[-1] / forward(seen)[-1].sum()
    return Shown(
        "probability that symbol 1 follows two symbols 1",
        printed=float(TRANSITION[0, 0]),
        right=float(filtered @ TRANSITION @ EMISSION[:, 0]),
        truth=float(joint(paths(3), np.zeros(3, int)).sum() / joint(paths(2), seen).sum()),
        by="enumeration of all paths",
    )


def smoothing() -> Shown:
    states, weights = paths(6), joint(paths(6), SYMBOLS)
    smoothed = forward(SYMBOLS)[1] * backward(SYMBOLS)[1]
    return Shown(
        "probability of the first state at step 2 when all six symbols are known",
        printed=float((INITIAL @ TRANSITION)[0]),
        right=float(smoothed[0] / smoothed.sum()),
        truth=float(weights[states[:, 1] == 0].sum() / weights.sum()),
        by="enumeration of all paths",
    )


def moves_of_the_path() -> Shown:
    path = simulated_states(3, 400_000)
    return Shown(
        "probability that the first three states are 1, 2, 2",
        printed=float(INITIAL[0] * TRANSITION[1, 1]),
        right=float(INITIAL[0] * TRANSITION[0, 1] * TRANSITION[1, 1]),
        truth=float((path == [0, 1, 1]).all(1).mean()),
        by="simulation",
        tolerance=0.003,
    )


def first_factor() -> Shown:
    states = paths(3)
    right = INITIAL[states[:, 0]] * TRANSITION[states[:, :-1], states[:, 1:]].prod(1)
    return Shown(
        "sum of $p(z_1, z_2, z_3)$ over all paths, $p(z_1 \\mid z_0)$ read as $p(z_1)$",
        printed=float((INITIAL[states[:, 0]] * right).sum()),
        right=float(right.sum()),
        truth=1.0,
        by="what probabilities add up to",
    )


def expected_log_likelihood() -> Shown:
    states, weights = paths(6), joint(paths(6), SYMBOLS)
    smoothed = forward(SYMBOLS) * backward(SYMBOLS) / weights.sum()
    first = float(smoothed[0] @ np.log(INITIAL))
    right = first + float((pairs(SYMBOLS) * np.log(TRANSITION)).sum())
    right += float((smoothed * np.log(EMISSION[:, SYMBOLS]).T).sum())
    return Shown(
        "expected complete log likelihood of six symbols",
        printed=right + first,
        right=right,
        truth=float(weights @ np.log(joint(states, SYMBOLS)) / weights.sum()),
        by="enumeration of all paths",
    )


def one_pair() -> Shown:
    states, weights = paths(6), joint(paths(6), SYMBOLS)
    moved = (states[:, 1] == 0) & (states[:, 2] == 1)
    return Shown(
        "expectation of $Z_2^1 Z_3^2$, a move from state 1 to state 2 at step 2, given six symbols",
        printed=float(pairs(SYMBOLS)[:, 0, 1].sum()),
        right=float(pairs(SYMBOLS)[1, 0, 1]),
        truth=float(weights[moved].sum() / weights.sum()),
        by="enumeration of all paths",
    )


def all_pairs() -> Shown:
    future = (INITIAL @ TRANSITION @ TRANSITION)[:, None] * TRANSITION
    future = future * EMISSION[:, SYMBOLS[3]] * backward(SYMBOLS)[3]
    return Shown(
        "sum over $j$ and $k$ of the probabilities of $z_3^j z_4^k$ given six symbols",
        printed=float(future.sum() / forward(SYMBOLS)[-1].sum()),
        right=float(pairs(SYMBOLS)[2].sum()),
        truth=1.0,
        by="what probabilities add up to",
    )


def from_rows() -> Shown:
    return Shown(
        "probability of the first state at step 2, $\\pi = (0.7, 0.3)$, rows of $a$ $(0.8, 0.2)$ and $(0.35, 0.65)$",
        printed=float((TRANSITION @ INITIAL)[0]),
        right=float((INITIAL @ TRANSITION)[0]),
        truth=float((simulated_states(2, 400_000)[:, 1] == 0).mean()),
        by="simulation",
        tolerance=0.003,
    )


ERRATA = (
    Erratum(
        "M60",
        "16",
        r"$x_{t+1} = f(x_t; \theta_1)$, $z_{t+1} = g(x_{t+1}; \theta_2)$, and the parameters of $g$ are the transition"
        r" probabilities",
        r"$z_{t+1} \sim f(\cdot \mid z_t; \theta_1)$, $x_{t+1} \sim g(\cdot \mid z_{t+1}; \theta_2)$; the transition"
        r" probabilities are those of $f$",
        "The hidden chain moves, and the observations hang on it.",
        who_follows_whom,
    ),
    Erratum(
        "M61",
        "16",
        r"Filtering is $p(z_{1:t} \mid x_{1:t})$, smoothing is $p(z_{1:t})$",
        r"Filtering is $p(z_t \mid x_{1:t})$, smoothing is $p(z_t \mid x_{1:T})$ with $t < T$",
        "Smoothing too is given data.",
        smoothing,
    ),
    Erratum(
        "M62",
        "16",
        r"$\prod_{t=2}^T f(z_{t+1} \mid z_t)$",
        r"$\prod_{t=2}^T f(z_t \mid z_{t-1})$",
        "The printed product lacks the first move and has one after the end.",
        moves_of_the_path,
    ),
    Erratum(
        "M63",
        "16.1",
        r"$p(z_1) \prod_{t=1}^T p(z_t \mid z_{t-1})$",
        r"$p(z_1) \prod_{t=2}^T p(z_t \mid z_{t-1})$",
        "There is no $z_0$.",
        first_factor,
    ),
    Erratum(
        "M64",
        "16.1",
        r"$\sum_k E[z_1^k] \log \pi_k + \log \pi(z_1) + \dots$; both $N$ and $K$ count states",
        r"$\sum_k E[z_1^k] \log \pi_k + \dots$",
        "The first state counts once.",
        expected_log_likelihood,
    ),
    Erratum(
        "M65",
        "16.1",
        r"$E[Z_t^j Z_{t+1}^k] = \sum_{t=1}^{T-1} p(Z_t^j Z_{t+1}^k \mid x)$",
        r"$E[Z_t^j Z_{t+1}^k] = p(Z_t^j Z_{t+1}^k \mid x)$, and $m_{jk}$ is the sum over $t$",
        shown=one_pair,
    ),
    Erratum(
        "M66",
        "16.1",
        r"$p(y_{1:T})$; $p(x_{t+1} \mid y_{t+1})$; $p(z_t \mid x) = p(z_1 \mid x) / p(x)$",
        r"$p(x_{1:T})$; $p(x_{t+1} \mid z_{t+1})$; $p(z_t \mid x) = p(z_t, x) / p(x)$",
    ),
    Erratum(
        "M67",
        "16.1",
        r"$p(z_t^j z_{t+1}^k, x_{t+1:T})$",
        r"$p(z_t^j z_{t+1}^k, x_{1:T})$",
        "Divided by $p(x)$ it is to be the probability of the pair.",
        all_pairs,
    ),
    Erratum(
        "M68",
        "16.1",
        r"$a_{jk} = p(z_t^j \mid z_{t-1}^k)$, $\eta_{jk} = p(x_t^j \mid z_t^k)$",
        r"$a_{ij} = p(z_{t+1} = j \mid z_t = i)$, $\eta_{ij} = p(x_t = j \mid z_t = i)$",
        r"Rows are states to move from, as in $\log a_{z_t, z_{t+1}}$ and $\sum_j a_{ij} = 1$.",
        from_rows,
    ),
)
