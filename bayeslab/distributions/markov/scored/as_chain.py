"""Scores of labels and of neighbours as a Markov chain and log likelihoods, whose recursions do the rest."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.markov.sequential import Active


def chain_of_scores(states: Array, moves: Array, active: Active = None) -> tuple[Array, Array, Array]:
    """Initial probabilities (K,), transition probabilities and log likelihoods whose product has these scores.

    states: (*batch, step, K). moves: (*batch, step - 1 or 1, K, K), -inf for what is impossible; the probabilities have
    their shape. active: (*batch, step - 1), whether a sequence goes on after a step; always, if it is None.
    A row of moves is brought to a sum of one, and what is left of it goes to the state that it leaves.
    """
    num_steps, num_states = states.shape[-2:]
    possible = ~jnp.isneginf(moves).all(-1, keepdims=True)
    finite = jnp.where(possible, moves, 0.0)
    log_totals = jax.nn.logsumexp(finite, axis=-1)
    transition_probs = jnp.exp(finite - log_totals[..., None])
    left = jnp.where(possible[..., 0], log_totals, -jnp.inf)
    left = jnp.broadcast_to(left, (*states.shape[:-2], num_steps - 1, num_states))
    if active is not None:
        left = jnp.where(active[..., None], left, 0.0)
    uniform = jnp.full(num_states, 1.0 / num_states, states.dtype)
    padding = [(0, 0)] * (states.ndim - 2)
    log_likelihood = states + jnp.pad(left, (*padding, (0, 1), (0, 0)))
    return uniform, transition_probs, log_likelihood.at[..., 0, :].add(np.log(num_states))
