"""A hidden Markov chain so small that every path can be listed: two states, three symbols, six steps."""

import itertools

import numpy as np

INITIAL = np.array([0.7, 0.3])
TRANSITION = np.array([[0.8, 0.2], [0.35, 0.65]])
EMISSION = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
SYMBOLS = np.array([0, 2, 1, 2, 0, 0])


def forward(symbols: np.ndarray) -> np.ndarray:
    """Probabilities (step, state) of the symbols so far and the state."""
    alphas = [INITIAL * EMISSION[:, symbols[0]]]
    for symbol in symbols[1:]:
        alphas.append(alphas[-1] @ TRANSITION * EMISSION[:, symbol])
    return np.array(alphas)


def backward(symbols: np.ndarray) -> np.ndarray:
    """Probabilities (step, state) of the symbols still to come, given the state."""
    betas = [np.ones(2)]
    for symbol in symbols[:0:-1]:
        betas.append(TRANSITION @ (EMISSION[:, symbol] * betas[-1]))
    return np.array(betas[::-1])


def pairs(symbols: np.ndarray) -> np.ndarray:
    """Probabilities (step - 1, state, next state) of two states in a row, given all symbols."""
    alphas, ahead = forward(symbols), EMISSION[:, symbols[1:]].T * backward(symbols)[1:]
    return alphas[:-1, :, None] * TRANSITION * ahead[:, None, :] / alphas[-1].sum()


def paths(steps: int) -> np.ndarray:
    """All sequences of states (path, step)."""
    return np.array(list(itertools.product(range(2), repeat=steps)))


def joint(states: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """Probability (path,) of every path together with the symbols."""
    moves = TRANSITION[states[:, :-1], states[:, 1:]].prod(1)
    return INITIAL[states[:, 0]] * moves * EMISSION[states, symbols].prod(1)


def simulated_states(steps: int, number: int) -> np.ndarray:
    """Paths (path, step) drawn from the chain."""
    generator = np.random.default_rng(1)
    states = [(generator.random(number) > INITIAL[0]).astype(int)]
    for _ in range(steps - 1):
        states.append((generator.random(number) > TRANSITION[states[-1], 0]).astype(int))
    return np.array(states).T
