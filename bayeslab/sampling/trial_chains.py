"""A chain starts where the best of a few short chains has come: many points of discrete sites lead to poor modes.

The short chains run the code that draws afterwards, so that this is compiled once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.sampling.protocols import Draws, Sampler, State, TrialChains


def best_of_trials(
    trials: TrialChains,
    start: Callable[[np.ndarray], State],
    steps: Callable[[State, int], tuple[State, Draws]],
    key: Array | np.ndarray,
) -> State:
    """The last state of the short chain with the largest log joint, for every chain.

    start: from keys to first states. steps: from a state and a number to the state after so many, and the draws of
    these. key: of one chain (2,), or of all that run as one (chain, 2).
    """
    split = np.asarray(_split(jnp.asarray(key), trials.number))
    ends = [steps(start(split[..., trial, :]), trials.steps) for trial in range(trials.number)]
    log_joints = np.stack([np.asarray(draws.stats["lp"])[-1] for _, draws in ends])
    best = np.argmax(np.nan_to_num(log_joints, nan=-np.inf), axis=0)
    states = [state for state, _ in ends]
    return states[int(best)] if best.ndim == 0 else _selected(states, best)


def start_of_chain(sampler: Sampler, key: Array, data: Any) -> State:
    """The same for one chain, as a function that can be compiled and mapped."""
    trials = sampler.trials
    if trials is None:
        return sampler.start(key, data)

    def step(state: State, _: None) -> tuple[State, Array]:
        state, draws = sampler.advance(state, data)
        return state, draws.stats["lp"]

    def trial(key: Array) -> tuple[State, Array]:
        state, log_joint = jax.lax.scan(step, sampler.start(key, data), None, trials.steps)
        return state, jnp.nan_to_num(log_joint[-1], nan=-jnp.inf)

    states, log_joint = jax.lax.map(trial, jax.random.split(key, trials.number))
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(log_joint)], states)


def _split(key: Array, number: int) -> Array:
    """Keys (..., trial, 2), from one (2,) or several (chain, 2)."""
    split = lambda each: jax.random.split(each, number)  # noqa: E731
    return split(key) if key.ndim == 1 else jax.vmap(split)(key)


def _selected(states: list[State], best: np.ndarray) -> State:
    """The state of every chain, axis 0 of all leaves, from the trial that is best for it; on the devices of theirs."""

    def select(*leaves: Array) -> Array:
        return jnp.stack(leaves)[best, np.arange(len(best))]

    placed = jax.tree.map(lambda leaf: leaf.sharding, states[0])
    return jax.jit(lambda each: jax.tree.map(select, *each), out_shardings=placed)(states)
