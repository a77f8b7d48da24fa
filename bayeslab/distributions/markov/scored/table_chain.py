"""Paths of discrete chains whose log probability is a sum of tables: of the states of every step, and of neighbours.

Tables of neighbours are brought to rows that are probabilities; what is left of them are log likelihoods of states. So
the recursions of `MarkovChain` do the rest.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

from bayeslab.distributions.markov.chain import MarkovChain
from bayeslab.distributions.markov.scored.as_chain import chain_of_scores
from bayeslab.distributions.markov.scored.chain_layout import ChainLayout


class TableChain(Distribution):
    """Values 0, 1, ... of elements (element,) in chains, with log probability a sum of tables, but for a constant.

    states: of the states of every step (chain, step, state). moves: of neighbours (chain or 1, step - 1 or 1, state,
    state), one for all where they share it.
    """

    pytree_data_fields = ("states", "moves")
    pytree_aux_fields = ("layout",)
    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, states: Array, moves: Array, layout: ChainLayout):
        self.states, self.moves, self.layout = states, moves, layout
        super().__init__((), (layout.elements.size,))

    @property
    def cards(self) -> np.ndarray:
        """How many values every element has (element,)."""
        shape = self.layout.elements.shape
        return np.broadcast_to(self.layout.cards, shape).ravel()[np.argsort(self.layout.elements.ravel())]

    @property
    def log_partition(self) -> Array:
        """The log of the sum of all weights."""
        return _log_partition(self.states, self.moves)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        chain, log_likelihood = _as_markov_chain(self.states, self.moves)
        return self.layout.indices(chain.condition(log_likelihood).sample(key, sample_shape))

    def mode(self) -> Array:
        """The most probable values of all elements together."""
        chain, log_likelihood = _as_markov_chain(self.states, self.moves)
        return self.layout.indices(chain.most_probable_path(log_likelihood))

    def log_prob(self, value: Array) -> Array:
        flat = value.reshape(-1, value.shape[-1])
        return jax.vmap(self._log_weight)(flat).reshape(value.shape[:-1]) - self.log_partition

    def _log_weight(self, value: Array) -> Array:
        path = self.layout.path(value)
        own = jnp.take_along_axis(self.states, path[..., None], -1)[..., 0].sum((-2, -1))
        chains, steps = np.indices((path.shape[-2], path.shape[-1] - 1))
        if self.moves.shape[0] == 1:
            chains = np.zeros_like(chains)
        if self.moves.shape[1] == 1:
            steps = np.zeros_like(steps)
        return own + self.moves[chains, steps, path[..., :-1], path[..., 1:]].sum((-2, -1))

    def table_probs(self) -> tuple[Array, Array]:
        """The expected number of times that the numbers of both tables are added up: derivatives of the log sum."""
        return jax.grad(_log_partition, argnums=(0, 1))(self.states, self.moves)


def _log_partition(states: Array, moves: Array) -> Array:
    chain, log_likelihood = _as_markov_chain(states, moves)
    return chain.log_marginal(log_likelihood).sum()


def _as_markov_chain(states: Array, moves: Array) -> tuple[MarkovChain, Array]:
    """A chain and log likelihoods whose product has these tables."""
    uniform, transition_probs, log_likelihood = chain_of_scores(states, moves)
    if moves.shape[1] == 1:
        chain = MarkovChain(uniform, transition_probs[:, 0], states.shape[-2])
    else:
        chain = MarkovChain(uniform, transition_probs, time_varying=True)
    return chain, log_likelihood
