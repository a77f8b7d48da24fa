"""Mean-field Dirichlet factors of weights and components, and the evidence lower bound that they reach."""

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
"""Smallest exponential of a mean log: the product of two is still a number of single precision."""


class Closest(NamedTuple):
    """The evidence lower bound, for an ascent in the logs of concentrations; origins have their optimal factor.

    packed: see `packed` and `packed_tokens`.
    """

    packed: Array
    shape: Shape | Tokens
    prior: Priors

    def step(self, at: Array) -> tuple[Array, Array]:
        """Coordinates after a step of coordinate ascent, and the bound before it."""
        factors = self.concentrations(at)
        new, bound = self._counted(*(exp_mean_logs(*arguments) for arguments in zip(factors, self._real, strict=True)))
        for prior, factor, is_category in zip(self.prior[:2], factors, self._real, strict=True):
            bound += minus_divergence(prior, factor, is_category)
        return new, bound

    def inside(self, at: Array) -> Array:
        """The nearest coordinates whose concentrations lie between the prior's and those with all data added."""
        prior = joined(
            *(
                jnp.where(is_category, concentration, 1.0)
                for concentration, is_category in zip(self.prior[:2], self._real, strict=True)
            )
        )
        return jnp.clip(at, jnp.log(prior), jnp.log(prior + self.shape.most))

    def concentrations(self, at: Array) -> tuple[Array, Array]:
        """Concentrations of weights and components; 1 where there is no allele."""
        weights, components = split(at, self.shape)
        return jnp.exp(weights), jnp.exp(components)

    def around(self, weights: Array, components: Array) -> Array:
        """Coordinates of the factors that follow from weights and components."""
        return self._counted(weights, components)[0]

    def _counted(self, weights: Array, components: Array) -> tuple[Array, Array]:
        """Coordinates of the factors with expected counts added to the priors, and the log of the sums over origins."""
        counts, log_sums = layout(self.shape).expected(weights, components, self.packed, self.shape)
        new = self.prior.weights + counts.individuals, self.prior.components + counts.alleles
        logs = (
            jnp.log(jnp.where(is_category, concentration, 1.0))
            for concentration, is_category in zip(new, self._real, strict=True)
        )
        return joined(*logs), log_sums

    @property
    def _real(self) -> tuple[Array, Array]:
        """Which categories weights and components have."""
        return jnp.ones(self.shape.populations, bool), self.prior.real


def exp_mean_logs(concentration: Array, real: Array) -> Array:
    """Exponentials of the mean logs of Dirichlet probabilities, 0 for categories that are not real."""
    return jnp.where(real, jnp.maximum(jnp.exp(_mean_logs(concentration, real)), TINY), 0.0)


def minus_divergence(prior: Array, factor: Array, real: Array) -> Array:
    """The sum of minus the Kullback-Leibler divergences of Dirichlet factors from priors, both as concentrations."""
    powers = jnp.where(real, (prior - factor) * _mean_logs(factor, real), 0.0).sum(-1)
    return (powers + log_beta(factor, real) - log_beta(prior, real)).astype(jnp.result_type(float)).sum()


def _mean_logs(concentration: Array, real: Array) -> Array:
    """Means of the logs of Dirichlet probabilities (..., category)."""
    return digamma(concentration) - digamma(jnp.where(real, concentration, 0.0).sum(-1, keepdims=True))
