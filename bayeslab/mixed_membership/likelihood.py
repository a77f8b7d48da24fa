"""The density of weights and components, origins summed over, as an objective of an ascent to its maximum."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import initial_lagged_ascent, maximize
from bayeslab.mixed_membership.coordinates import from_coordinates, to_coordinates
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.genotypes.newton import clip_to_simplex
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape


class Likelihood(NamedTuple):
    """The posterior density for an ascent, in which concentrations below 1 count as 1, so that it has a maximum.

    packed: see `packed` and `pack_tokens`.
    """

    packed: Array
    shape: GenotypeShape | TokenShape
    prior: Priors

    def start(self, key: Array) -> Array:
        """Coordinates of a start that is found from the data."""
        return to_coordinates(*layout(self.shape).start(key, self.packed, self.shape, self.prior.is_allele))

    def step(self, at: Array) -> tuple[Array, Array]:
        """Coordinates after a step uphill, and the log density before it, up to a constant."""
        pseudo = jnp.maximum(self.prior.weights - 1, 0.0), jnp.maximum(self.prior.components - 1, 0.0)
        weights, components = from_coordinates(at, self.shape)
        stepped = layout(self.shape).ascent_step
        *new, log_density = stepped(weights, components, self.packed, self.shape, (*pseudo, self.prior.is_allele))
        for powers, probabilities in zip(pseudo, (weights, components), strict=True):
            log_density += counts_log_likelihood(powers, probabilities)
        return to_coordinates(*new), log_density

    def clip_coordinates(self, at: Array) -> Array:
        """The nearest coordinates that are probabilities away from zero."""
        weights, components = from_coordinates(at, self.shape)
        return to_coordinates(clip_to_simplex(weights), clip_to_simplex(components, self.prior.is_allele))

    def near_mode(self, key: Array) -> tuple[Array, Array]:
        """Weights and components near a mode, for other methods to start from."""
        initial, max_steps = initial_lagged_ascent(self.start(key)), layout(self.shape).climb
        return from_coordinates(maximize(initial, self.step, self.clip_coordinates, max_steps).at, self.shape)


def counts_log_likelihood(counts: Array, probabilities: Array) -> Array:
    """The log likelihood of categories with these counts: the sum of counts times log probabilities."""
    log_factors = jnp.where(counts > 0, counts * jnp.log(jnp.where(counts > 0, probabilities, 1.0)), 0.0)
    return log_factors.astype(jnp.result_type(float)).sum()
