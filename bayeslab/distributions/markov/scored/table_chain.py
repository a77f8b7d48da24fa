"""Paths of discrete chains whose log probability is a sum of tables: of the states of every step, and of neighbours.

The recursions of `bayeslab.distributions.markov.scored.inference` do the rest.
"""

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

import bayeslab.distributions.markov.scored.inference as scored
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
        def drawn(key: Array) -> Array:
            uniform = jax.random.uniform(key, self.states.shape[:-1], self.states.dtype)
            return self.layout.indices(scored.draw(self.states, self.moves, None, uniform))

        if not sample_shape:
            return drawn(key)
        draws = jax.vmap(drawn)(jax.random.split(key, prod(sample_shape)))
        return draws.reshape(*sample_shape, *draws.shape[1:])

    def mode(self) -> Array:
        """The most probable values of all elements together."""
        return self.layout.indices(scored.most_probable_path(self.states, self.moves, None))

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
    return scored.log_partition(states, moves, None).sum()
