"""Learning a Markov decision process by acting in it, an episode after the other.

Before every episode a plan is made from what was seen so far. Thompson sampling plans for a draw of the posterior
(Strens 2000; Osband, Russo and Van Roy 2013, "(More) efficient reinforcement learning via posterior sampling"), so that
it tries what could be best; certainty equivalence plans for the posterior mean, and may never try it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayeslab.control.plans import checked_process, iterate_values, policy_value
from bayeslab.distributions import Dirichlet
from bayeslab.programs.program import precision_scope, raw_key

if TYPE_CHECKING:
    from xarray import Dataset

Belief = Callable[[Array, Array], Array]
"""From a key and the concentrations of the posterior (state, action, state) to the probabilities that a plan is for."""

TOLERANCE = 1e-6
"""Of the values of the plans of episodes."""


class Lengths(NamedTuple):
    """The number of episodes of a run, and of actions of an episode."""

    num_episodes: int
    num_steps: int


def thompson_sampling(
    key: Array | int,
    transition_probs: ArrayLike,
    reward: ArrayLike,
    discount: float,
    num_episodes: int,
    *,
    num_steps: int = 20,
    num_runs: int = 100,
    concentration: float = 1.0,
    start: int = 0,
) -> "Dataset":
    """Episodes in a simulated process whose transition probabilities are unknown, planned on posterior draws.

    transition_probs, reward, discount: the true process, as for `value_iteration`; rewards of states are known.
    num_steps: actions of an episode, each of which begins in state `start`. num_runs: independent repetitions.
    concentration: of the Dirichlet prior of every row of probabilities, as in `bayeslab.models.mdp_model`.
    Returns a Dataset with regret (run, episode): how much less the policy of the episode is worth in `start` than the
    best one, exactly; cumulative_regret; and visits (run, state, action), how often each action was taken.
    Raises ValueError as `value_iteration` does, and for numbers below one and a start that is no state.
    """
    settings = num_episodes, num_steps, num_runs, concentration, start
    return _episodes(key, _draw, (transition_probs, reward, discount), settings)


def certainty_equivalence(
    key: Array | int,
    transition_probs: ArrayLike,
    reward: ArrayLike,
    discount: float,
    num_episodes: int,
    *,
    num_steps: int = 20,
    num_runs: int = 100,
    concentration: float = 1.0,
    start: int = 0,
) -> "Dataset":
    """The same episodes, planned for the posterior mean; arguments and results are those of `thompson_sampling`."""
    settings = num_episodes, num_steps, num_runs, concentration, start
    return _episodes(key, _mean, (transition_probs, reward, discount), settings)


def _draw(key: Array, concentration: Array) -> Array:
    return Dirichlet(concentration).sample(key)


def _mean(key: Array, concentration: Array) -> Array:
    return concentration / concentration.sum(-1, keepdims=True)


def _episodes(
    key: Array | int,
    belief: Belief,
    given: tuple[ArrayLike, ArrayLike, float],
    settings: tuple[int, int, int, float, int],
) -> "Dataset":
    from xarray import Dataset

    num_episodes, num_steps, num_runs, concentration, start = settings
    for name, number in (("num_episodes", num_episodes), ("num_steps", num_steps), ("num_runs", num_runs)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")
    if not concentration > 0:
        raise ValueError(f"concentration must be positive, but is {concentration}")
    with precision_scope():
        process = checked_process(*given)
        probs, reward, _ = process
        if probs.ndim != 3 or reward.ndim != 1:
            raise ValueError(f"episodes are in one process, but transition_probs has shape {probs.shape}")
        if not 0 <= start < len(reward):
            raise ValueError(f"start must be a state from 0 to {len(reward) - 1}, but is {start}")
        keys = jax.random.split(raw_key(key), num_runs)
        outcome = _runs(keys, process, concentration, start, belief, Lengths(num_episodes, num_steps))
        regret, counts = jax.device_get(outcome)
    dims = ("run", "episode")
    return Dataset(
        {
            "regret": (dims, regret),
            "cumulative_regret": (dims, np.cumsum(regret, 1)),
            "visits": (("run", "state", "action"), counts.sum(-1)),
        }
    )


@partial(jax.jit, static_argnames=("belief", "lengths"))
def _runs(
    keys: Array,
    process: tuple[Array, Array, Array],
    concentration: float,
    start: int,
    belief: Belief,
    lengths: Lengths,
) -> tuple[Array, Array]:
    """The regret of every episode and the counts of moves (state, action, state) at the end, of every run."""
    probs, reward, discount = process
    best = iterate_values(probs, reward, discount, TOLERANCE).policy
    best_value = policy_value(probs, reward, discount, best)[start]
    below = probs.cumsum(-1)

    def episode(counts: Array, key: Array) -> tuple[Array, Array]:
        belief_key, move_key = jax.random.split(key)
        plan = iterate_values(belief(belief_key, concentration + counts), reward, discount, TOLERANCE)
        uniform = jax.random.uniform(move_key, (lengths.num_steps,), probs.dtype)

        def move(carry: tuple[Array, Array], uniform: Array) -> tuple[tuple[Array, Array], None]:
            state, counts = carry
            action = plan.policy[state]
            after = (uniform * below[state, action, -1] >= below[state, action]).sum()
            return (after, counts.at[state, action, after].add(1)), None

        (_, counts), _ = jax.lax.scan(move, (jnp.asarray(start), counts), uniform)
        return counts, best_value - policy_value(probs, reward, discount, plan.policy)[start]

    def run(key: Array) -> tuple[Array, Array]:
        counts, regret = jax.lax.scan(episode, jnp.zeros_like(probs), jax.random.split(key, lengths.num_episodes))
        return regret, counts

    return jax.vmap(run)(keys)
