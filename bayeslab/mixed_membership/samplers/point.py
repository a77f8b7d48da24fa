"""The maximum of the density of a program of mixed membership at size, origins summed over."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import Ascent, initial_lagged_ascent, lagged_ascent_step
from bayeslab.mixed_membership.coordinates import from_coordinates, to_coordinates
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.likelihood import Likelihood
from bayeslab.mixed_membership.packed_data import PackedData, log_prior, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.base import MembershipSampler
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.sampling.protocols import Draws

GAIN_TOLERANCE_NATS = 1e-3
"""Gain in nats below which a step is the last; what is left to gain is many times as much, where steps are short."""


def membership_point(roles: Membership, bound: Bound, basis: str) -> "MembershipPoint":
    """The sampler that finds the maximum; raises ValueError where the density has none: with a latent concentration, or
    one below 1, unless the basis is "softmax"."""
    if roles.others:
        raise ValueError(f"with {list(roles.others)} latent the density has no maximum; give them values")
    sampler = MembershipPoint(roles, compilation_signature(bound), basis)
    prior = jax.jit(sampler.prior)(PackedData(bound, jnp.zeros(0)))
    components = jnp.where(prior.is_allele, prior.components, jnp.inf)
    for name, smallest in ((roles.weights, prior.weights.min()), (roles.components, components.min())):
        if smallest < 1:
            raise ValueError(
                f"site '{name}' has a concentration of {smallest:.3g}: below 1 its density has no maximum; "
                'MAP(basis="softmax") has one'
            )
    return sampler


@dataclass(frozen=True)
class MembershipPoint(MembershipSampler):
    """An accelerated ascent to the maximum.

    basis: see `MAP`.
    """

    basis: str

    def prior(self, data: PackedData) -> Priors:
        """The priors; in the softmax basis with what the Jacobian, the product of all probabilities, adds to them."""
        prior, added = priors(self.roles, self.structure, data, {}), float(self.basis == "softmax")
        return prior._replace(weights=prior.weights + added, components=prior.components + added)

    def start(self, key: Array, data: PackedData) -> Ascent:
        return initial_lagged_ascent(self._density(data).start(key))

    @property
    def start_sites(self) -> tuple[str, ...]:
        return self.roles.probabilities

    def start_at(self, key: Array, data: PackedData, values: Values) -> Ascent:
        return initial_lagged_ascent(self._density(data).clip_coordinates(to_coordinates(*self.roles.values(values))))

    def adapt(self, state: Ascent, data: PackedData) -> tuple[Ascent, Draws]:
        def step(state: Ascent) -> Ascent:
            density = self._density(data)
            return lagged_ascent_step(state, density.step, density.clip_coordinates, GAIN_TOLERANCE_NATS)

        new = jax.lax.cond(state.converged, lambda state: state, step, state)
        log_joint = jnp.where(state.converged, jnp.nan, new.objective)
        return new, Draws({}, {}, {"log_joint": log_joint, "converged": new.converged})

    def advance(self, state: Ascent, data: PackedData) -> tuple[Ascent, Draws]:
        weights, components = from_coordinates(state.at, self.roles.shape)
        _, log_sums = layout(self.roles.shape).expected(weights, components, data.packed, self.roles.shape)
        samples = self.roles.named(weights, components)
        return state, Draws(samples, {"lp": log_sums + log_prior(self.roles, self.structure, data, samples)})

    def _density(self, data: PackedData) -> Likelihood:
        return Likelihood(data.packed, self.roles.shape, self.prior(data))
