"""The maximum of the density of a program of mixed membership at size, origins summed over."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.mixed_membership.ascent import Climb, climb, climbed, joined, split
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.likelihood import Likeliest
from bayeslab.mixed_membership.packed_data import Counted, counted, log_prior, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.programs.program import Bound, Values, structure
from bayeslab.sampling.protocols import Draws, Sampler

KEPT = 50_000
"""Most components that every draw keeps; of more, means and standard deviations over all draws are kept."""
LAST = 1e-3
"""Gain in nats below which a step is the last; what is left to gain is many times as much, where steps are short."""
WIDE = (("xla_cpu_prefer_vector_width", 512),)
"""Compiler options for loops over loci and tokens: vectors of 512 bits."""


def membership_point(found: Membership, bound: Bound, basis: str) -> "MembershipPoint":
    """The sampler that finds the maximum; raises ValueError where the density has none: with a latent concentration, or
    one below 1, unless the basis is "softmax"."""
    if found.others:
        raise ValueError(f"with {list(found.others)} latent the density has no maximum; give them values")
    sampler = MembershipPoint(found, structure(bound), basis)
    prior = jax.jit(sampler.prior)(Counted(bound, jnp.zeros(0)))
    components = jnp.where(prior.real, prior.components, jnp.inf)
    for name, smallest in ((found.weights, prior.weights.min()), (found.components, components.min())):
        if smallest < 1:
            raise ValueError(
                f"site '{name}' has a concentration of {smallest:.3g}: below 1 its density has no maximum; "
                'MAP(basis="softmax") has one'
            )
    return sampler


def keeps_components(found: Membership) -> bool:
    """Whether components are few enough to be kept in every draw."""
    return found.shape.populations * found.shape.loci * found.shape.alleles <= KEPT


@dataclass(frozen=True)
class MembershipPoint(Sampler):
    """An accelerated ascent to the maximum.

    found: the roles of sites. structure: of the Bound. basis: see `MAP`.
    """

    found: Membership
    structure: Any
    basis: str

    compiler_options = WIDE
    prepares = True

    @property
    def num_devices(self) -> int:
        return self.found.shape.devices.number

    def prepare(self, bound: Bound) -> Counted:
        return counted(self.found, bound)

    def prior(self, data: Counted) -> Priors:
        """The priors; in the softmax basis with what the Jacobian, the product of all probabilities, adds to them."""
        prior, added = priors(self.found, self.structure, data, {}), float(self.basis == "softmax")
        return prior._replace(weights=prior.weights + added, components=prior.components + added)

    def start(self, key: Array, data: Counted) -> Climb:
        return climb(self._density(data).start(key))

    @property
    def start_sites(self) -> tuple[str, ...]:
        return self.found.probabilities

    def start_at(self, key: Array, data: Counted, values: Values) -> Climb:
        return climb(self._density(data).inside(joined(*self.found.values(values))))

    def adapt(self, state: Climb, data: Counted) -> tuple[Climb, Draws]:
        def step(state: Climb) -> Climb:
            density = self._density(data)
            return climbed(state, density.step, density.inside, LAST)

        new = jax.lax.cond(state.converged, lambda state: state, step, state)
        log_joint = jnp.where(state.converged, jnp.nan, new.objective)
        return new, Draws({}, {}, {"log_joint": log_joint, "converged": new.converged})

    def advance(self, state: Climb, data: Counted) -> tuple[Climb, Draws]:
        weights, components = split(state.at, self.found.shape)
        _, log_sums = layout(self.found.shape).expected(weights, components, data.packed, self.found.shape)
        samples = self.found.named(weights, components)
        return state, Draws(samples, {"lp": log_sums + log_prior(self.found, self.structure, data, samples)})

    def _density(self, data: Counted) -> Likeliest:
        return Likeliest(data.packed, self.found.shape, self.prior(data))
