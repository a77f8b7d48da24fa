"""Dirichlet distributions of weights and components that are closest to the posterior, and the bound they reach."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln

from bayeslab.membership.alleles import Shape, expected_counts
from bayeslab.membership.ascent import joined, split
from bayeslab.membership.data import Priors


class Closest(NamedTuple):
    """The evidence lower bound, for an ascent in the logs of concentrations; origins have their best factor."""

    alleles: Array
    shape: Shape
    prior: Priors

    def step(self, at: Array) -> tuple[Array, Array]:
        """One of coordinate ascent; and the bound before it."""
        factors = self.concentrations(at)
        means = [_mean_logs(factor, real) for factor, real in zip(factors, self._real, strict=True)]
        weights, components = (
            jnp.where(real, jnp.exp(mean), 0.0) for mean, real in zip(means, self._real, strict=True)
        )
        counts, bound = expected_counts(weights, components, self.alleles, self.shape)
        for parts in zip(self.prior[:2], factors, means, self._real, strict=True):
            bound += _minus_divergence(*parts)
        new = self.prior.weights + counts.individuals, self.prior.components + counts.alleles
        return joined(*(jnp.log(jnp.where(real, one, 1.0)) for one, real in zip(new, self._real, strict=True))), bound

    def inside(self, at: Array) -> Array:
        """Between the prior and all the data."""
        prior = joined(*(jnp.where(real, one, 1.0) for one, real in zip(self.prior[:2], self._real, strict=True)))
        most = prior + 2 * self.shape.pairs * max(self.shape.loci, self.shape.individuals)
        return jnp.clip(at, jnp.log(prior), jnp.log(most))

    def concentrations(self, at: Array) -> tuple[Array, Array]:
        """Of weights and components; 1 where there is no allele."""
        weights, components = split(at, self.shape)
        return jnp.exp(weights), jnp.exp(components)

    def around(self, weights: Array, components: Array) -> Array:
        """Coordinates of the factors that follow from probabilities."""
        counts, _ = expected_counts(weights, components, self.alleles, self.shape)
        new = self.prior.weights + counts.individuals, self.prior.components + counts.alleles
        return joined(*(jnp.log(jnp.where(real, one, 1.0)) for one, real in zip(new, self._real, strict=True)))

    @property
    def _real(self) -> tuple[Array, Array]:
        return jnp.ones(self.shape.populations, bool), self.prior.real


def _mean_logs(concentration: Array, real: Array) -> Array:
    return digamma(concentration) - digamma(jnp.where(real, concentration, 0.0).sum(-1, keepdims=True))


def _minus_divergence(prior: Array, factor: Array, mean_logs: Array, real: Array) -> Array:
    """Of Dirichlet factors from their priors, all added up."""

    def normaliser(concentration: Array) -> Array:
        each = jnp.where(real, gammaln(jnp.where(real, concentration, 1.0)), 0.0).sum(-1)
        return each - gammaln(jnp.where(real, concentration, 0.0).sum(-1))

    powers = jnp.where(real, (prior - factor) * mean_logs, 0.0).sum(-1)
    return (powers + normaliser(factor) - normaliser(prior)).astype(jnp.result_type(float)).sum()
