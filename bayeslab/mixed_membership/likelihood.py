"""The density of weights and components, origins summed over, as an objective of an ascent to its maximum."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from bayeslab.mixed_membership.ascent import climb, joined, split, top
from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.genotypes.newton import inside
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.tokens.topic_counts import Tokens


class Likeliest(NamedTuple):
    """The posterior density for an ascent, in which concentrations below 1 count as 1, so that it has a maximum.

    packed: see `packed` and `packed_tokens`.
    """

    packed: Array
    shape: Shape | Tokens
    prior: Priors

    def start(self, key: Array) -> Array:
        """Coordinates of a start that is found from the data."""
        return joined(*layout(self.shape).start(key, self.packed, self.shape, self.prior.real))

    def step(self, at: Array) -> tuple[Array, Array]:
        """Coordinates after a step uphill, and the log density before it, up to a constant."""
        pseudo = jnp.maximum(self.prior.weights - 1, 0.0), jnp.maximum(self.prior.components - 1, 0.0)
        weights, components = split(at, self.shape)
        stepped = layout(self.shape).stepped
        *new, log_density = stepped(weights, components, self.packed, self.shape, (*pseudo, self.prior.real))
        for powers, probabilities in zip(pseudo, (weights, components), strict=True):
            log_density += log_powers(powers, probabilities)
        return joined(*new), log_density

    def inside(self, at: Array) -> Array:
        """The nearest coordinates that are probabilities away from zero."""
        weights, components = split(at, self.shape)
        return joined(inside(weights), inside(components, self.prior.real))

    def near_top(self, key: Array) -> tuple[Array, Array]:
        """Weights and components near a mode, for other methods to start from."""
        initial, max_steps = climb(self.start(key)), layout(self.shape).climb
        return split(top(initial, self.step, self.inside, max_steps).at, self.shape)


def log_powers(counts: Array, probabilities: Array) -> Array:
    """The log likelihood of categories with these counts: the sum of counts times log probabilities."""
    log_factors = jnp.where(counts > 0, counts * jnp.log(jnp.where(counts > 0, probabilities, 1.0)), 0.0)
    return log_factors.astype(jnp.result_type(float)).sum()
