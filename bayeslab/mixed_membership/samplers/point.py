"""The maximum of the density of a program of mixed membership at size, origins summed over."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import Ascent, initial_lagged_ascent, lagged_ascent_step
from bayeslab.mixed_membership.coordinates import from_coordinates, to_coordinates
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.likelihood import Likelihood
from bayeslab.mixed_membership.packed_data import PackedData, log_prior, pack_data, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.sampling.protocols import Draws, Sampler

MAX_COMPONENTS_KEPT = 50_000
"""Most components that every draw keeps; of more, means and standard deviations over all draws are kept."""
GAIN_TOLERANCE_NATS = 1e-3
"""Gain in nats below which a step is the last; what is left to gain is many times as much, where steps are short."""
WIDE_VECTOR_OPTIONS = (("xla_cpu_prefer_vector_width", 512),)
"""Compiler options for loops over loci and tokens: vectors of 512 bits."""


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


def keeps_components(roles: Membership) -> bool:
    """Whether components are few enough to be kept in every draw."""
    return roles.shape.populations * roles.shape.loci * roles.shape.alleles <= MAX_COMPONENTS_KEPT


@dataclass(frozen=True)
class MembershipPoint(Sampler):
    """An accelerated ascent to the maximum.

    found: the roles of sites. structure: of the Bound. basis: see `MAP`.
    """

    roles: Membership
    structure: Any
    basis: str

    compiler_options = WIDE_VECTOR_OPTIONS
    prepares = True

    @property
    def num_devices(self) -> int:
        return self.roles.shape.devices.number

    def prepare(self, bound: Bound) -> PackedData:
        return pack_data(self.roles, bound)

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
