"""Paths of which some states are given: the log likelihoods that say so, and the chain of the missing states."""

import jax.numpy as jnp
from jax import Array

from bayeslab.distributions import MarkovChain


def clamped_states(chain: MarkovChain, present: Array, given: Array) -> Array:
    """Log likelihoods (*batch, step, K) of the states of a path: minus infinity for all but a given one.

    present: (*batch, step), which states are given; those after the end of a path do not count.
    """
    if chain.lengths is not None:
        present = present & (jnp.arange(chain.num_steps) < chain.lengths[..., None])
    others = given[..., None] != jnp.arange(chain.num_states)
    return jnp.where(present[..., None] & others, -jnp.inf, 0.0)


def missing_states_given_others(chain: MarkovChain, present: Array, given: Array) -> MarkovChain:
    """The chain of a whole path whose missing states have their distribution given the others, and whose others are
    uniform and independent of all.

    present: (*batch) for whole paths, or (*batch, step). given: (*batch, step).
    """
    present = jnp.broadcast_to(present.reshape(present.shape + (1,) * (given.ndim - present.ndim)), given.shape)
    known = chain.condition(clamped_states(chain, present, given))
    uniform = 1.0 / chain.num_states
    moves = known.transition_probs
    from_given = jnp.take_along_axis(moves, given[..., :-1, None, None], axis=-2)
    moves = jnp.where(present[..., :-1, None, None], from_given, moves)
    moves = jnp.where(present[..., 1:, None, None], uniform, moves)
    initial = jnp.where(present[..., :1], uniform, known.initial_probs)
    return MarkovChain(initial, moves, time_varying=True)
