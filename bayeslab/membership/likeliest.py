"""Weights and components of the largest density, origins summed over."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from bayeslab.membership.alleles import Shape
from bayeslab.membership.ascent import joined, split
from bayeslab.membership.data import Priors
from bayeslab.membership.newton import inside, stepped


class Likeliest(NamedTuple):
    """The density, for an ascent; concentrations below 1 count as 1, so that it has a maximum."""

    alleles: Array
    shape: Shape
    prior: Priors

    def step(self, at: Array) -> tuple[Array, Array]:
        """Newton's; and the log density before it, up to a constant."""
        pseudo = jnp.maximum(self.prior.weights - 1, 0.0), jnp.maximum(self.prior.components - 1, 0.0)
        weights, components = split(at, self.shape)
        *new, log_density = stepped(weights, components, self.alleles, self.shape, (*pseudo, self.prior.real))
        for powers, probabilities in zip(pseudo, (weights, components), strict=True):
            logs = jnp.where(powers > 0, jnp.log(jnp.where(powers > 0, probabilities, 1.0)), 0.0)
            log_density += (powers * logs).astype(log_density.dtype).sum()
        return joined(*new), log_density

    def inside(self, at: Array) -> Array:
        """The nearest probabilities."""
        weights, components = split(at, self.shape)
        return joined(inside(weights), inside(components, self.prior.real))
