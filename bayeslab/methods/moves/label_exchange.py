"""Exchanges of labels between the draws of NUTS, where no order of components is like another but some are similar.

A hidden Markov model that starts in a known state has a mode for either order of two states, of which one explains the
first step better. No trajectory of NUTS passes from one to the other, and chains would disagree on them for ever. An
exchange of all that belongs to two labels is its own inverse and keeps volumes, so that it is a proposal of
Metropolis and Hastings. S. Frühwirth-Schnatter (2001, JASA 96) exchanges labels at random where all orders are equally
likely.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayeslab.programs.program import Bound, Values
from bayeslab.programs.unconstrained import (
    constrain_sites,
    log_jacobian,
    log_posterior,
    number_or_zero_mass,
    unconstrain_sites,
)
from bayeslab.sampling.protocols import Draws, SamplerWrapper
from bayeslab.transforms.exchangeable_labels import Exchange


@dataclass(frozen=True)
class LabelExchangeSampler(SamplerWrapper):
    """NUTS that proposes, before each draw, one of some exchanges of labels.

    inner: a sampler whose states are those of a NumPyro kernel of the HMC family, in the coordinates of the program.
    """

    exchanges: tuple[Exchange, ...]

    def adapt(self, state: Any, bound: Bound) -> tuple[Any, Draws]:
        return self.inner.adapt(self._exchanged(state, bound), bound)

    def advance(self, state: Any, bound: Bound) -> tuple[Any, Draws]:
        return self.inner.advance(self._exchanged(state, bound), bound)

    def _exchanged(self, state: Any, bound: Bound) -> Any:
        """The state of the kernel after one proposal, accepted or not."""
        key, choice_key, accept_key = jax.random.split(state.rng_key, 3)
        choice = jax.random.randint(choice_key, (), 0, len(self.exchanges))
        values = constrain_sites(bound, state.z)
        moved_values = jax.lax.switch(choice, self.exchanges, values)
        moved = unconstrain_sites(bound, moved_values)
        potential, gradient = jax.value_and_grad(lambda position: -log_posterior(bound, position))(moved)
        density = -state.potential_energy - log_jacobian(bound, state.z)
        moved_density = number_or_zero_mass(-potential - log_jacobian(bound, moved))
        is_accepted = jnp.log(jax.random.uniform(accept_key)) < moved_density - density

        def chosen(new: Values, old: Values) -> Values:
            return jax.tree.map(partial(jnp.where, is_accepted), new, old)

        return state._replace(
            z=chosen(moved, state.z),
            z_grad=chosen(gradient, state.z_grad),
            potential_energy=jnp.where(is_accepted, potential, state.potential_energy),
            rng_key=key,
        )
