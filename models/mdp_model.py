"""A Markov decision process that is learnt: where actions lead, and what states are worth.

    P_sa             ~ Dirichlet(concentration, ..., concentration),    state s = 1..S, action a = 1..A
    precision_s      ~ Gamma(alpha, beta)
    R_s | precision  ~ Normal(0, (kappa precision_s)^-1)
    next_i | P       ~ Categorical(P_{s_i a_i}),    move i = 1..n
    gain_i | R       ~ Normal(R_{s_i}, 1 / precision_{s_i})

CS229, 15.1 to 15.3. The posterior of P_sa adds to the concentrations how often the action led where; with
concentration 1 its mean is the lecture's ratio of counts (15.5) but for one more everywhere, and of a state and action
that were never tried it is 1 / S, the lecture's fallback. Sites are transition (P), reward (R), next_state and gain.
`bl.control.posterior_plans` plans for every draw: the mean of the best values is not the best value at the mean of P.
The model knows of no move that is impossible: where most are, a small concentration says that few next states are
likely.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(
    state: Array,
    action: Array,
    num_states: int,
    num_actions: int,
    concentration: float = 1.0,
    kappa: float = 0.01,
    alpha: float = 1.0,
    beta: float = 0.1,
) -> None:
    """Draw transition (state, action, state_), precision, reward (state,), next_state and gain (move,).

    state, action: (move,) integers from 0, where each move was made and how. kappa: the prior of a reward counts as
    much as that many gains.
    """
    with numpyro.plate("state", num_states):
        rows = dist.Dirichlet(jnp.full((num_actions, num_states), concentration)).to_event(1)
        transition = numpyro.sample("transition", rows, infer={"event_dims": ["action", "state_"]})
        precision = numpyro.sample("precision", dist.Gamma(alpha, beta))
        reward = numpyro.sample("reward", dist.Normal(0.0, 1 / jnp.sqrt(kappa * precision)))
    with numpyro.plate("move", len(state)):
        numpyro.sample("next_state", dist.Categorical(transition[state, action]))
        numpyro.sample("gain", dist.Normal(reward[state], 1 / jnp.sqrt(precision[state])))


def example() -> dict[str, Any]:
    """Nine moves in three states with two actions, one of them never tried in the last state."""
    return {
        "num_states": 3,
        "num_actions": 2,
        "concentration": 0.5,
        "kappa": 0.1,
        "state": np.array([0, 1, 1, 2, 0, 0, 1, 2, 2]),
        "action": np.array([0, 1, 0, 1, 1, 0, 1, 1, 1]),
        "next_state": np.array([1, 1, 2, 0, 0, 1, 2, 2, 0]),
        "gain": np.array([0.1, -0.3, 0.2, 1.2, 0.0, -0.2, 0.1, 0.9, 1.1]),
    }


def data() -> dict[str, Any]:
    """1,000 random moves in a grid of twelve cells, two of which are goals (simulated)."""
    from bayeslab.datasets import grid_walk

    return {**grid_walk(1000), "concentration": 0.1}
