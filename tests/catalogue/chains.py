"""Chains of labels, and sums over all of their paths."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from bayeslab.distributions import MarkovChain
from quick_cases import quick_ones


def random_chain(batch: tuple[int, ...], states: int, steps: int, varying: bool) -> MarkovChain:
    """Random probabilities without zeros."""
    rng = np.random.default_rng([states, steps, varying])
    initial = rng.dirichlet(np.ones(states), batch)
    if varying:
        return MarkovChain(initial, rng.dirichlet(np.ones(states), (*batch, steps - 1, states)), time_varying=True)
    return MarkovChain(initial, rng.dirichlet(np.ones(states), (*batch, states)), steps)


def left_to_right(steps: int) -> MarkovChain:
    """Starts in the first of three states, never goes back, stays in the last."""
    return MarkovChain([1.0, 0.0, 0.0], [[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]], steps)


CHAINS: dict[str, Callable[[], MarkovChain]] = {
    "plain": lambda: random_chain((), 3, 5, False),
    "varying": lambda: random_chain((), 3, 5, True),
    "batch_varying": lambda: random_chain((2, 2), 2, 4, True),
    "shared_start": lambda: MarkovChain(
        [0.2, 0.8], random_chain((3, 1), 2, 4, False).transition_probs[..., 0, :, :], 4
    ),
    "shared_moves": lambda: MarkovChain(random_chain((3,), 2, 4, False).initial_probs, [[0.1, 0.9], [0.5, 0.5]], 4),
    "left_to_right": lambda: left_to_right(5),
    "deterministic": lambda: MarkovChain([1, 0], [[0, 1], [1, 0]], 4),
    "two_steps": lambda: random_chain((), 3, 2, True),
    "one_step": lambda: random_chain((2,), 3, 1, False),
    "one_step_varying": lambda: random_chain((2,), 3, 1, True),
    "one_state": lambda: random_chain((2,), 1, 4, False),
}


every_chain = pytest.mark.parametrize("name", CHAINS)
some_chains = pytest.mark.parametrize("name", quick_ones(CHAINS, "plain", "batch_varying", "left_to_right", "one_step"))


def all_paths(chain: MarkovChain) -> np.ndarray:
    """Every path (path, 1, ..., 1, step), so that batches broadcast."""
    paths = np.array(list(itertools.product(range(chain.num_states), repeat=chain.num_steps)))
    return paths.reshape(len(paths), *(1 for _ in chain.batch_shape), chain.num_steps)


def evidence_for(chain: MarkovChain) -> np.ndarray:
    """A random log likelihood (*batch, step, state), with an impossible state where there are more than two."""
    values = 3.0 * np.random.default_rng(1).normal(size=(*chain.batch_shape, chain.num_steps, chain.num_states))
    if chain.num_states > 2:
        values[..., -1, 1] = -np.inf
    return values
