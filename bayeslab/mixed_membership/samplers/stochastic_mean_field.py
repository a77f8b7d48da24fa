"""Stochastic mean field of a program of mixed membership, from batches of its individuals."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.methods.minibatches.stochastic_mean_field import robbins_monro_rate
from bayeslab.mixed_membership.batches import (
    join_batches,
    largest_batch_shape,
    pack_batches,
    split_into_batches,
    start_from_batches,
)
from bayeslab.mixed_membership.dirichlet import Priors, draw_dirichlet
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.packed_data import PackedData, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.base import MembershipSampler, keeps_components
from bayeslab.mixed_membership.samplers.mean_field import dirichlet_moments, require_no_others
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape
from bayeslab.mixed_membership.variational_bound import exp_mean_logs, negative_kl_divergence
from bayeslab.programs.program import Bound, compilation_signature
from bayeslab.sampling.protocols import Draws

NUM_BATCH_STEPS = 10
"""Steps of coordinate ascent for the individuals of a batch, which begin where those before have ended."""
NUM_FINAL_STEPS = 30
"""Steps of coordinate ascent for all individuals after the last batch."""


class StochasticState(NamedTuple):
    """The factors after a step.

    weights: concentrations of the factors of weights, (batch, individual, population).
    components: concentrations of the factors of components, (population, locus, allele).
    elbo: an average over batches; once finished that of all data, with weights that follow from the last components.
    """

    weights: Array
    components: Array
    elbo: Array
    step: Array
    key: Array
    finished: Array


def membership_batches(roles: Membership, bound: Bound, batches: int, num_steps: int) -> "MembershipBatches":
    """The sampler of stochastic mean field; raises ValueError where other sites are latent, with several devices, and
    for more batches than individuals."""
    require_no_others(roles)
    if roles.shape.devices.number > 1:
        raise ValueError("MeanField takes batches on one device; leave out the mesh, or the batches")
    if batches > roles.shape.individuals:
        raise ValueError(f"batches is {batches}, more than the {roles.shape.individuals} individuals")
    batch_shape = largest_batch_shape(roles, bound, batches)
    return MembershipBatches(
        roles, compilation_signature(bound), batch_shape, batches, num_steps, keeps_components(roles)
    )


@dataclass(frozen=True)
class MembershipBatches(MembershipSampler):
    """Stochastic variational inference (Hoffman, Blei, Wang and Paisley 2013, arXiv:1206.7055).

    part: the shape of a batch. keeps: whether every draw has the components.
    """

    part: GenotypeShape | TokenShape
    batches: int
    num_steps: int
    keeps: bool

    def prepare(self, bound: Bound) -> PackedData:
        return pack_batches(self.roles, bound, self.part, self.batches)

    def start(self, key: Array, data: PackedData) -> StochasticState:
        """Factors of components near a mode of the likelihood, with the counts of all data."""
        key, now = jax.random.split(key)
        prior, shape = self._prior(data), self.roles.shape
        prior = prior._replace(weights=split_into_batches(prior.weights, self.batches))
        copies = shape.tokens if isinstance(shape, TokenShape) else shape.individuals * shape.loci * shape.copies
        num_copies = jnp.float32(copies)
        components = start_from_batches(now, data.packed, self.part, prior)
        components = prior.components + num_copies / shape.loci / shape.populations * components
        weights = prior.weights + num_copies / shape.individuals / shape.populations
        zero, no = jnp.zeros((), jnp.result_type(float)), jnp.array(False)
        return StochasticState(weights, jnp.where(prior.is_allele, components, 1.0), zero, jnp.array(0), key, no)

    def adapt(self, state: StochasticState, data: PackedData) -> tuple[StochasticState, Draws]:
        key, now = jax.random.split(state.key)
        prior, number = self._prior(data), jax.random.randint(now, (), 0, self.batches)
        weights, counted, bound = self._settled(state, data, prior, number, NUM_BATCH_STEPS)
        noisy = self.batches * bound + negative_kl_divergence(prior.components, state.components, prior.is_allele)
        rate = robbins_monro_rate(
            state.step + self.batches, self.num_steps + self.batches
        )  # the start is worth some steps
        elbo = state.elbo + jnp.where(state.step == 0, 1.0, rate) * (noisy - state.elbo)
        rate = rate.astype(jnp.float32)
        whole = prior.components + self.batches * counted
        components = jnp.where(prior.is_allele, (1 - rate) * state.components + rate * whole, 1.0)
        new = StochasticState(
            state.weights.at[number].set(weights), components, elbo, state.step + 1, key, jnp.array(False)
        )
        return new, Draws({}, {}, {"elbo": elbo})

    def advance(self, state: StochasticState, data: PackedData) -> tuple[StochasticState, Draws]:
        key, *now = jax.random.split(state.key, 3)
        state = lax.cond(state.finished, lambda state: state, lambda state: self._finished(state, data), state)
        weights = join_batches(state.weights, self.roles.shape.individuals)
        samples = self.roles.named(
            draw_dirichlet(now[0], weights, jnp.array(True)),
            draw_dirichlet(now[1], state.components, self._prior(data).is_allele),
        )
        if not self.keeps:
            del samples[self.roles.components]
        return state._replace(key=key), Draws(samples, {"evidence_bound": state.elbo})

    def moments(self, state: StochasticState, bound: Bound) -> dict[str, tuple[Array, Array]]:
        """Means and standard deviations (chain, *site) of components where their draws are not kept."""
        if self.keeps:
            return {}
        is_allele = self._prior(PackedData(bound, jnp.zeros(0))).is_allele
        return {self.roles.components: dirichlet_moments(state.components, is_allele, self.roles.shape.table)}

    def _settled(
        self, state: StochasticState, data: PackedData, prior: Priors, number: Array, steps: int
    ) -> tuple[Array, Array, Array]:
        """Concentrations of the individuals of a batch, its counts of components, and what it adds to the bound."""
        batch_prior, every = split_into_batches(prior.weights, self.batches)[number], jnp.array(True)
        components = exp_mean_logs(state.components, prior.is_allele)

        def step(_: Any, weights: Array) -> Array:
            means = exp_mean_logs(weights, every)
            counts, _ = layout(self.part).expected(means, components, data.packed[number], self.part)
            return batch_prior + counts.individuals

        weights = lax.fori_loop(0, steps, step, state.weights[number])
        means = exp_mean_logs(weights, every)
        counts, log_sums = layout(self.part).expected(means, components, data.packed[number], self.part)
        is_individual = (jnp.arange(len(weights)) * self.batches + number < self.roles.shape.individuals)[:, None]
        return (
            weights,
            counts.alleles,
            log_sums + negative_kl_divergence(batch_prior, jnp.where(is_individual, weights, batch_prior), every),
        )

    def _finished(self, state: StochasticState, data: PackedData) -> StochasticState:
        """Factors of all individuals given the last of components, and the bound of all data."""
        prior = self._prior(data)

        def settle_batch(number: Array) -> tuple[Array, Array]:
            weights, _, bound = self._settled(state, data, prior, number, NUM_FINAL_STEPS)
            return weights, bound

        weights, bounds = lax.map(settle_batch, jnp.arange(self.batches))
        elbo = bounds.sum() + negative_kl_divergence(prior.components, state.components, prior.is_allele)
        return state._replace(weights=weights, elbo=elbo, finished=jnp.array(True))

    def _prior(self, data: PackedData) -> Priors:
        return priors(self.roles, self.structure, data, {})
