"""Multistart optimisation: from many random starts at once, of which the best is kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from bayeslab.programs.program import Bound
from bayeslab.sampling.placement import CHAIN_AXIS
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

    @property
    def num_starts(self) -> int:
        return self.number

    def start(self, key: Array, data: Any) -> MultistartState:
        states = over_starts(self.inner.start, self.number)(jax.random.split(key, self.number), data)
        return MultistartState(states, jnp.full(self.number, -jnp.inf), jnp.array(False))

    def adapt(self, state: MultistartState, data: Any) -> tuple[MultistartState, Draws]:
        def step(state: MultistartState) -> tuple[MultistartState, Draws]:
            inner, draws = over_starts(self.inner.adapt, self.number)(state.inner, data)
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


def over_starts(step: Callable, number: int) -> Callable:
    """A step of one start, for all of them at once; each device has some where a mesh with chains is in scope."""
    at_once, mesh = jax.vmap(step, (0, None)), jax.sharding.get_abstract_mesh()
    devices = mesh.shape.get(CHAIN_AXIS, 1)
    if devices == 1 or number % devices:
        return at_once
    starts = PartitionSpec(CHAIN_AXIS)
    return jax.shard_map(
        at_once,
        in_specs=(starts, PartitionSpec()),
        out_specs=starts,
        axis_names={CHAIN_AXIS},
        check_vma=False,
    )


def best_of_starts(sampler: Sampler, number: int, objective: str) -> Sampler:
    """The sampler that optimises from so many starts and keeps the best; the sampler itself for one start."""
    return sampler if number == 1 else BestOfStarts(sampler, number, objective)
