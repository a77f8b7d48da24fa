"""Dirichlet distributions of weights and components that are closest to the posterior, and the bound they reach."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma

from bayeslab.mixed_membership.ascent import joined, split
from bayeslab.mixed_membership.dirichlet import Priors, log_beta
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.tokens.topic_counts import Tokens

TINY = 1e-18
"""Of the exponential of a mean log: the product of two is still a number of single precision."""


class Closest(NamedTuple):
    """The evidence lower bound, for an ascent in the logs of concentrations; origins have their best factor."""

    packed: Array
    shape: Shape | Tokens
    prior: Priors

    def step(self, at: Array) -> tuple[Array, Array]:
        """One of coordinate ascent; and the bound before it."""
        factors = self.concentrations(at)
        new, bound = self._counted(*(exp_mean_logs(*one) for one in zip(factors, self._real, strict=True)))
        for prior, factor, real in zip(self.prior[:2], factors, self._real, strict=True):
            bound += minus_divergence(prior, factor, real)
        return new, bound

    def inside(self, at: Array) -> Array:
        """Between the prior and all the data."""
        prior = joined(*(jnp.where(real, one, 1.0) for one, real in zip(self.prior[:2], self._real, strict=True)))
        return jnp.clip(at, jnp.log(prior), jnp.log(prior + self.shape.most))

    def concentrations(self, at: Array) -> tuple[Array, Array]:
        """Of weights and components; 1 where there is no allele."""
        weights, components = split(at, self.shape)
        return jnp.exp(weights), jnp.exp(components)

    def around(self, weights: Array, components: Array) -> Array:
        """Coordinates of the factors that follow from probabilities."""
        return self._counted(weights, components)[0]

    def _counted(self, weights: Array, components: Array) -> tuple[Array, Array]:
        """Coordinates of the factors, and the log of the sums over origins."""
        counts, log_sums = layout(self.shape).expected(weights, components, self.packed, self.shape)
        new = self.prior.weights + counts.individuals, self.prior.components + counts.alleles
        logs = (jnp.log(jnp.where(real, one, 1.0)) for one, real in zip(new, self._real, strict=True))
        return joined(*logs), log_sums

    @property
    def _real(self) -> tuple[Array, Array]:
        return jnp.ones(self.shape.populations, bool), self.prior.real


def exp_mean_logs(concentration: Array, real: Array) -> Array:
    """The exponential of the mean log of Dirichlet probabilities, 0 for what is not real."""
    return jnp.where(real, jnp.maximum(jnp.exp(_mean_logs(concentration, real)), TINY), 0.0)


def minus_divergence(prior: Array, factor: Array, real: Array) -> Array:
    """Of Dirichlet factors from their priors, both by their concentrations, all added up."""
    powers = jnp.where(real, (prior - factor) * _mean_logs(factor, real), 0.0).sum(-1)
    return (powers + log_beta(factor, real) - log_beta(prior, real)).astype(jnp.result_type(float)).sum()


def _mean_logs(concentration: Array, real: Array) -> Array:
    return digamma(concentration) - digamma(jnp.where(real, concentration, 0.0).sum(-1, keepdims=True))
