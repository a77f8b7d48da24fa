"""Multistart optimisation: from many random starts at once, of which the best is kept."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.programs.program import Bound
from bayeslab.sampling.protocols import Draws, Sampler, SamplerWrapper, State


class MultistartState(NamedTuple):
    """The state of optimisations from several starts.

    inner: the states of all starts. objective: the last finite value of each. converged: whether all have converged.
    """

    inner: State
    objective: Array
    converged: Array


@dataclass(frozen=True)
class BestOfStarts(SamplerWrapper):
    """An optimiser from `number` starts, all compiled as one; draws are made where the objective ended highest.

    The history has an axis of starts.
    objective: the name of the objective in the history.
    """

    number: int
    objective: str

    def moments(self, state: MultistartState, bound: Bound) -> dict[str, Any]:
        """The moments of the best start of every chain."""
        best = np.argmax(state.objective, axis=1)
        return self.inner.moments(jax.tree.map(lambda leaf: leaf[np.arange(len(best)), best], state.inner), bound)

    def convergence_verdict(
        self, state: MultistartState, data: Any, samples: dict[str, Any]
    ) -> tuple[MultistartState | None, str] | None:
        """What the optimiser says of the best start."""
        best = np.argmax(state.objective)
        ending = self.inner.convergence_verdict(jax.tree.map(lambda leaf: leaf[best], state.inner), data, samples)
        if ending is None or ending[0] is None:
            return ending
        inner = jax.tree.map(lambda leaf, new: jnp.asarray(leaf).at[best].set(new), state.inner, ending[0])
        return state._replace(inner=inner, converged=jnp.array(True)), ending[1]

    def start(self, key: Array, data: Any) -> MultistartState:
        states = jax.vmap(self.inner.start, (0, None))(jax.random.split(key, self.number), data)
        return MultistartState(states, jnp.full(self.number, -jnp.inf), jnp.array(False))

    def adapt(self, state: MultistartState, data: Any) -> tuple[MultistartState, Draws]:
        def step(state: MultistartState) -> tuple[MultistartState, Draws]:
            inner, draws = jax.vmap(self.inner.adapt, (0, None))(state.inner, data)
            objectives = draws.history[self.objective]
            last_finite = jnp.where(jnp.isfinite(objectives), objectives, state.objective)
            return MultistartState(inner, last_finite, jnp.all(draws.history.get("converged", jnp.array(False)))), draws

        def idle(state: MultistartState) -> tuple[MultistartState, Draws]:
            shapes = jax.eval_shape(step, state)[1]
            return state, jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.array(jnp.nan).astype(leaf.dtype)), shapes)

        return jax.lax.cond(state.converged, idle, step, state)

    def advance(self, state: MultistartState, data: Any) -> tuple[MultistartState, Draws]:
        best = jnp.argmax(state.objective)
        inner, draws = self.inner.advance(jax.tree.map(lambda leaf: leaf[best], state.inner), data)
        states = jax.tree.map(lambda leaf, new: leaf.at[best].set(new), state.inner, inner)
        return state._replace(inner=states), draws


def best_of_starts(sampler: Sampler, number: int, objective: str) -> Sampler:
    """The sampler that optimises from so many starts and keeps the best; the sampler itself for one start."""
    return sampler if number == 1 else BestOfStarts(sampler, number, objective)
