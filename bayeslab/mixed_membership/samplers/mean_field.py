"""Mean field of a program of mixed membership at size: Dirichlet factors, and origins with their best factor."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import Ascent, initial_lagged_ascent, lagged_ascent_step
from bayeslab.mixed_membership.coordinates import from_coordinates, to_coordinates
from bayeslab.mixed_membership.dirichlet import Priors, draw_dirichlet
from bayeslab.mixed_membership.likelihood import Likelihood
from bayeslab.mixed_membership.packed_data import PackedData, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.base import MembershipSampler, keeps_components
from bayeslab.mixed_membership.variational_bound import VariationalBound
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.sampling.protocols import Draws


class MeanFieldState(NamedTuple):
    """The ascent to the factors, and the key of draws."""

    climb: Ascent
    key: Array


def membership_mean_field(roles: Membership, bound: Bound, tolerance: float) -> "MembershipMeanField":
    """The sampler of mean field; raises ValueError where other sites are latent: they have no factor in closed form."""
    require_no_others(roles)
    return MembershipMeanField(roles, compilation_signature(bound), tolerance, keeps_components(roles))


def require_no_others(roles: Membership) -> None:
    """Raises ValueError where other sites are latent."""
    if roles.others:
        raise ValueError(f"sites {list(roles.others)} have no factor in closed form; give them values, or use Gibbs()")


def dirichlet_moments(concentration: Array, is_category: Array, table: tuple[int, ...]) -> tuple[Array, Array]:
    """Means and standard deviations (chain, *table) of Dirichlet probabilities (chain, population, locus, allele)."""
    concentration = jnp.where(is_category, concentration, 0.0)
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    sd = jnp.sqrt(mean * (1 - mean) / (total + 1))
    return mean.reshape(-1, *table), sd.reshape(-1, *table)


@dataclass(frozen=True)
class MembershipMeanField(MembershipSampler):
    """Mean field by coordinate ascent in all factors, then independent draws from them.

    tolerance: see `MeanField`. keeps: whether every draw has the components.
    """

    tolerance: float
    keeps: bool

    def start(self, key: Array, data: PackedData) -> MeanFieldState:
        """The state with the factors that follow from a mode of the likelihood."""
        key, now = jax.random.split(key)
        near_mode = Likelihood(data.packed, self.roles.shape, self._prior(data)).near_mode(now)
        return self._around(*near_mode, key, data)

    @property
    def start_sites(self) -> tuple[str, ...]:
        return self.roles.probabilities

    def start_at(self, key: Array, data: PackedData, values: Values) -> MeanFieldState:
        """The state with the factors that follow from these values."""
        likelihood = Likelihood(data.packed, self.roles.shape, self._prior(data))
        coordinates = likelihood.clip_coordinates(to_coordinates(*self.roles.values(values)))
        return self._around(*from_coordinates(coordinates, self.roles.shape), key, data)

    def adapt(self, state: MeanFieldState, data: PackedData) -> tuple[MeanFieldState, Draws]:
        objective = VariationalBound(data.packed, self.roles.shape, self._prior(data))

        def step(state: Ascent) -> Ascent:
            return lagged_ascent_step(state, objective.step, objective.clip_coordinates, self.tolerance)

        new = jax.lax.cond(state.climb.converged, lambda state: state, step, state.climb)
        elbo = jnp.where(state.climb.converged, jnp.nan, new.objective)
        return MeanFieldState(new, state.key), Draws({}, {}, {"elbo": elbo, "converged": new.converged})

    def advance(self, state: MeanFieldState, data: PackedData) -> tuple[MeanFieldState, Draws]:
        key, *now = jax.random.split(state.key, 3)
        prior = self._prior(data)
        weights, components = VariationalBound(data.packed, self.roles.shape, prior).concentrations(state.climb.at)
        samples = self.roles.named(
            draw_dirichlet(now[0], weights, jnp.array(True)), draw_dirichlet(now[1], components, prior.is_allele)
        )
        if not self.keeps:
            del samples[self.roles.components]
        return state._replace(key=key), Draws(samples, {"evidence_bound": state.climb.objective})

    def moments(self, state: MeanFieldState, bound: Bound) -> dict[str, tuple[Array, Array]]:
        """Means and standard deviations (chain, *site) of components where their draws are not kept."""
        if self.keeps:
            return {}

        components = jax.vmap(lambda at: from_coordinates(at, self.roles.shape)[1])(state.climb.at)
        is_allele = self._prior(PackedData(bound, jnp.zeros(0))).is_allele
        return {self.roles.components: dirichlet_moments(jnp.exp(components), is_allele, self.roles.shape.table)}

    def _around(self, weights: Array, components: Array, key: Array, data: PackedData) -> MeanFieldState:
        closest = VariationalBound(data.packed, self.roles.shape, self._prior(data))
        return MeanFieldState(initial_lagged_ascent(closest.around(weights, components)), key)

    def _prior(self, data: PackedData) -> Priors:
        return priors(self.roles, self.structure, data, {})
