"""Weights and components of the largest density, origins summed over."""

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
    """The density, for an ascent; concentrations below 1 count as 1, so that it has a maximum."""

    packed: Array
    shape: Shape | Tokens
    prior: Priors

    def start(self, key: Array) -> Array:
        return joined(*layout(self.shape).start(key, self.packed, self.shape, self.prior.real))

    def step(self, at: Array) -> tuple[Array, Array]:
        """One uphill; and the log density before it, up to a constant."""
        pseudo = jnp.maximum(self.prior.weights - 1, 0.0), jnp.maximum(self.prior.components - 1, 0.0)
        weights, components = split(at, self.shape)
        stepped = layout(self.shape).stepped
        *new, log_density = stepped(weights, components, self.packed, self.shape, (*pseudo, self.prior.real))
        for powers, probabilities in zip(pseudo, (weights, components), strict=True):
            log_density += log_powers(powers, probabilities)
        return joined(*new), log_density

    def inside(self, at: Array) -> Array:
        """The nearest probabilities."""
        weights, components = split(at, self.shape)
        return joined(inside(weights), inside(components, self.prior.real))

    def near_top(self, key: Array) -> tuple[Array, Array]:
        """Weights and components close to a maximum, for other methods to start from."""
        first, most = climb(self.start(key)), layout(self.shape).climb
        return split(top(first, self.step, self.inside, most).at, self.shape)


def log_powers(counts: Array, probabilities: Array) -> Array:
    """The log of probabilities to the power of counts, added up."""
    each = jnp.where(counts > 0, counts * jnp.log(jnp.where(counts > 0, probabilities, 1.0)), 0.0)
    return each.astype(jnp.result_type(float)).sum()
