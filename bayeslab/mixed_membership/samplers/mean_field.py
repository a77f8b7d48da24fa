"""Mean field of a program of mixed membership at size: Dirichlet factors, and origins with their best factor."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.mixed_membership.ascent import Climb, climb, climbed, joined, split
from bayeslab.mixed_membership.dirichlet import Priors, dirichlet
from bayeslab.mixed_membership.likelihood import Likeliest
from bayeslab.mixed_membership.packed_data import Counted, counted, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.point import WIDE, keeps_components
from bayeslab.mixed_membership.variational_bound import Closest
from bayeslab.programs.program import Bound, Values, structure
from bayeslab.sampling.protocols import Draws, Sampler


class Settled(NamedTuple):
    """The ascent to the factors, and the key of draws."""

    climb: Climb
    key: Array


def membership_mean_field(found: Membership, bound: Bound, tolerance: float) -> "MembershipMeanField":
    """The sampler of mean field; raises ValueError where other sites are latent: they have no factor in closed form."""
    require_no_others(found)
    return MembershipMeanField(found, structure(bound), tolerance, keeps_components(found))


def require_no_others(found: Membership) -> None:
    """Raises ValueError where other sites are latent."""
    if found.others:
        raise ValueError(f"sites {list(found.others)} have no factor in closed form; give them values, or use Gibbs()")


def dirichlet_moments(concentration: Array, real: Array, table: tuple[int, ...]) -> tuple[Array, Array]:
    """Means and standard deviations (chain, *table) of Dirichlet probabilities (chain, population, locus, allele)."""
    concentration = jnp.where(real, concentration, 0.0)
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    sd = jnp.sqrt(mean * (1 - mean) / (total + 1))
    return mean.reshape(-1, *table), sd.reshape(-1, *table)


@dataclass(frozen=True)
class MembershipMeanField(Sampler):
    """Mean field by coordinate ascent in all factors, then independent draws from them.

    found: the roles of sites. structure: of the Bound. keeps: whether every draw has the components.
    """

    found: Membership
    structure: Any
    tolerance: float
    keeps: bool

    compiler_options = WIDE
    prepares = True

    @property
    def num_devices(self) -> int:
        return self.found.shape.devices.number

    def prepare(self, bound: Bound) -> Counted:
        return counted(self.found, bound)

    def start(self, key: Array, data: Counted) -> Settled:
        """The state with the factors that follow from a mode of the likelihood."""
        key, now = jax.random.split(key)
        near_mode = Likeliest(data.packed, self.found.shape, self._prior(data)).near_top(now)
        return self._around(*near_mode, key, data)

    @property
    def start_sites(self) -> tuple[str, ...]:
        return self.found.probabilities

    def start_at(self, key: Array, data: Counted, values: Values) -> Settled:
        """The state with the factors that follow from these values."""
        likelihood = Likeliest(data.packed, self.found.shape, self._prior(data))
        coordinates = likelihood.inside(joined(*self.found.values(values)))
        return self._around(*split(coordinates, self.found.shape), key, data)

    def adapt(self, state: Settled, data: Counted) -> tuple[Settled, Draws]:
        objective = Closest(data.packed, self.found.shape, self._prior(data))

        def step(state: Climb) -> Climb:
            return climbed(state, objective.step, objective.inside, self.tolerance)

        new = jax.lax.cond(state.climb.converged, lambda state: state, step, state.climb)
        elbo = jnp.where(state.climb.converged, jnp.nan, new.objective)
        return Settled(new, state.key), Draws({}, {}, {"elbo": elbo, "converged": new.converged})

    def advance(self, state: Settled, data: Counted) -> tuple[Settled, Draws]:
        key, *now = jax.random.split(state.key, 3)
        prior = self._prior(data)
        weights, components = Closest(data.packed, self.found.shape, prior).concentrations(state.climb.at)
        samples = self.found.named(
            dirichlet(now[0], weights, jnp.array(True)), dirichlet(now[1], components, prior.real)
        )
        if not self.keeps:
            del samples[self.found.components]
        return state._replace(key=key), Draws(samples, {"evidence_bound": state.climb.objective})

    def moments(self, state: Settled, bound: Bound) -> dict[str, tuple[Array, Array]]:
        """Means and standard deviations (chain, *site) of components where their draws are not kept."""
        if self.keeps:
            return {}

        components = jax.vmap(lambda at: split(at, self.found.shape)[1])(state.climb.at)
        is_allele = self._prior(Counted(bound, jnp.zeros(0))).real
        return {self.found.components: dirichlet_moments(jnp.exp(components), is_allele, self.found.shape.table)}

    def _around(self, weights: Array, components: Array, key: Array, data: Counted) -> Settled:
        closest = Closest(data.packed, self.found.shape, self._prior(data))
        return Settled(climb(closest.around(weights, components)), key)

    def _prior(self, data: Counted) -> Priors:
        return priors(self.found, self.structure, data, {})
