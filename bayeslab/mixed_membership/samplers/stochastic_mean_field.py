"""Stochastic mean field of a program of mixed membership, from batches of its individuals."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.methods.stochastic_mean_field import rate_of
from bayeslab.mixed_membership.batches import counted_parts, in_parts, of_individuals, shape_of_part, start_of_parts
from bayeslab.mixed_membership.dirichlet import Priors, dirichlet
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.packed_data import Counted, priors
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.mixed_membership.samplers.mean_field import dirichlet_moments, require_no_others
from bayeslab.mixed_membership.samplers.point import WIDE, keeps_components
from bayeslab.mixed_membership.tokens.topic_counts import Tokens
from bayeslab.mixed_membership.variational_bound import exp_mean_logs, minus_divergence
from bayeslab.programs.program import Bound, structure
from bayeslab.sampling.protocols import Draws, Sampler

INNER = 10
"""Steps of coordinate ascent for the individuals of a batch, which begin where those before have ended."""
LAST = 30
"""Steps of coordinate ascent for all individuals after the last batch."""


class Parts(NamedTuple):
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


def membership_batches(found: Membership, bound: Bound, batches: int, num_steps: int) -> "MembershipBatches":
    """The sampler of stochastic mean field; raises ValueError where other sites are latent, with several devices, and
    for more batches than individuals."""
    require_no_others(found)
    if found.shape.devices.number > 1:
        raise ValueError("MeanField takes batches on one device; leave out the mesh, or the batches")
    if batches > found.shape.individuals:
        raise ValueError(f"batches is {batches}, more than the {found.shape.individuals} individuals")
    batch_shape = shape_of_part(found, bound, batches)
    return MembershipBatches(found, structure(bound), batch_shape, batches, num_steps, keeps_components(found))


@dataclass(frozen=True)
class MembershipBatches(Sampler):
    """Stochastic variational inference (Hoffman, Blei, Wang and Paisley 2013, arXiv:1206.7055).

    found: the sites. structure: of the Bound. part: the shape of a batch. keeps: components in every draw.
    """

    found: Membership
    structure: Any
    part: Shape | Tokens
    batches: int
    num_steps: int
    keeps: bool

    compiler_options = WIDE
    prepares = True

    def prepare(self, bound: Bound) -> Counted:
        return counted_parts(self.found, bound, self.part, self.batches)

    def start(self, key: Array, data: Counted) -> Parts:
        """Factors of components near a mode of the likelihood, with the counts of all data."""
        key, now = jax.random.split(key)
        prior, shape = self._prior(data), self.found.shape
        prior = prior._replace(weights=in_parts(prior.weights, self.batches))
        copies = shape.tokens if isinstance(shape, Tokens) else shape.individuals * shape.loci * shape.copies
        num_copies = jnp.float32(copies)
        components = start_of_parts(now, data.packed, self.part, prior)
        components = prior.components + num_copies / shape.loci / shape.populations * components
        weights = prior.weights + num_copies / shape.individuals / shape.populations
        zero, no = jnp.zeros((), jnp.result_type(float)), jnp.array(False)
        return Parts(weights, jnp.where(prior.real, components, 1.0), zero, jnp.array(0), key, no)

    def adapt(self, state: Parts, data: Counted) -> tuple[Parts, Draws]:
        key, now = jax.random.split(state.key)
        prior, number = self._prior(data), jax.random.randint(now, (), 0, self.batches)
        weights, counted, bound = self._settled(state, data, prior, number, INNER)
        noisy = self.batches * bound + minus_divergence(prior.components, state.components, prior.real)
        rate = rate_of(state.step + self.batches, self.num_steps + self.batches)  # the start is worth some steps
        elbo = state.elbo + jnp.where(state.step == 0, 1.0, rate) * (noisy - state.elbo)
        rate = rate.astype(jnp.float32)
        whole = prior.components + self.batches * counted
        components = jnp.where(prior.real, (1 - rate) * state.components + rate * whole, 1.0)
        new = Parts(state.weights.at[number].set(weights), components, elbo, state.step + 1, key, jnp.array(False))
        return new, Draws({}, {}, {"elbo": elbo})

    def advance(self, state: Parts, data: Counted) -> tuple[Parts, Draws]:
        key, *now = jax.random.split(state.key, 3)
        state = lax.cond(state.finished, lambda state: state, lambda state: self._finished(state, data), state)
        weights = of_individuals(state.weights, self.found.shape.individuals)
        samples = self.found.named(
            dirichlet(now[0], weights, jnp.array(True)), dirichlet(now[1], state.components, self._prior(data).real)
        )
        if not self.keeps:
            del samples[self.found.components]
        return state._replace(key=key), Draws(samples, {"evidence_bound": state.elbo})

    def moments(self, state: Parts, bound: Bound) -> dict[str, tuple[Array, Array]]:
        """Means and standard deviations (chain, *site) of components where their draws are not kept."""
        if self.keeps:
            return {}
        is_allele = self._prior(Counted(bound, jnp.zeros(0))).real
        return {self.found.components: dirichlet_moments(state.components, is_allele, self.found.shape.table)}

    def _settled(
        self, state: Parts, data: Counted, prior: Priors, number: Array, steps: int
    ) -> tuple[Array, Array, Array]:
        """Concentrations of the individuals of a batch, its counts of components, and what it adds to the bound."""
        batch_prior, every = in_parts(prior.weights, self.batches)[number], jnp.array(True)
        components = exp_mean_logs(state.components, prior.real)

        def step(_: Any, weights: Array) -> Array:
            means = exp_mean_logs(weights, every)
            counts, _ = layout(self.part).expected(means, components, data.packed[number], self.part)
            return batch_prior + counts.individuals

        weights = lax.fori_loop(0, steps, step, state.weights[number])
        means = exp_mean_logs(weights, every)
        counts, log_sums = layout(self.part).expected(means, components, data.packed[number], self.part)
        is_individual = (jnp.arange(len(weights)) * self.batches + number < self.found.shape.individuals)[:, None]
        return (
            weights,
            counts.alleles,
            log_sums + minus_divergence(batch_prior, jnp.where(is_individual, weights, batch_prior), every),
        )

    def _finished(self, state: Parts, data: Counted) -> Parts:
        """Factors of all individuals given the last of components, and the bound of all data."""
        prior = self._prior(data)

        def settle_batch(number: Array) -> tuple[Array, Array]:
            weights, _, bound = self._settled(state, data, prior, number, LAST)
            return weights, bound

        weights, bounds = lax.map(settle_batch, jnp.arange(self.batches))
        elbo = bounds.sum() + minus_divergence(prior.components, state.components, prior.real)
        return state._replace(weights=weights, elbo=elbo, finished=jnp.array(True))

    def _prior(self, data: Counted) -> Priors:
        return priors(self.found, self.structure, data, {})
