"""Mean-field Dirichlet factors of weights and components, and the evidence lower bound that they reach."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma

from bayeslab.mixed_membership.coordinates import from_coordinates, to_coordinates
from bayeslab.mixed_membership.dirichlet import Priors, log_beta
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.layouts import layout
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape

MIN_EXP_MEAN_LOG = 1e-18
"""Smallest exponential of a mean log: the product of two is still a number of single precision."""


class VariationalBound(NamedTuple):
    """The evidence lower bound, for an ascent in the logs of concentrations; origins have their optimal factor.

    packed: see `packed` and `pack_tokens`.
    """

    packed: Array
    shape: GenotypeShape | TokenShape
    prior: Priors

    def step(self, at: Array) -> tuple[Array, Array]:
        """Coordinates after a step of coordinate ascent, and the bound before it."""
        factors = self.concentrations(at)
        new, bound = self._coordinate_update(
            *(exp_mean_logs(*arguments) for arguments in zip(factors, self._is_category, strict=True))
        )
        for prior, factor, is_category in zip(self.prior[:2], factors, self._is_category, strict=True):
            bound += negative_kl_divergence(prior, factor, is_category)
        return new, bound

    def clip_coordinates(self, at: Array) -> Array:
        """The nearest coordinates whose concentrations lie between the prior's and those with all data added."""
        prior = to_coordinates(
            *(
                jnp.where(is_category, concentration, 1.0)
                for concentration, is_category in zip(self.prior[:2], self._is_category, strict=True)
            )
        )
        return jnp.clip(at, jnp.log(prior), jnp.log(prior + self.shape.max_count))

    def concentrations(self, at: Array) -> tuple[Array, Array]:
        """Concentrations of weights and components; 1 where there is no allele."""
        weights, components = from_coordinates(at, self.shape)
        return jnp.exp(weights), jnp.exp(components)

    def around(self, weights: Array, components: Array) -> Array:
        """Coordinates of the factors that follow from weights and components."""
        return self._coordinate_update(weights, components)[0]

    def _coordinate_update(self, weights: Array, components: Array) -> tuple[Array, Array]:
        """Coordinates of the factors with expected counts added to the priors, and the log of the sums over origins."""
        counts, log_sums = layout(self.shape).expected(weights, components, self.packed, self.shape)
        new = self.prior.weights + counts.individuals, self.prior.components + counts.alleles
        logs = (
            jnp.log(jnp.where(is_category, concentration, 1.0))
            for concentration, is_category in zip(new, self._is_category, strict=True)
        )
        return to_coordinates(*logs), log_sums

    @property
    def _is_category(self) -> tuple[Array, Array]:
        """Which categories weights and components have."""
        return jnp.ones(self.shape.populations, bool), self.prior.is_allele


def exp_mean_logs(concentration: Array, is_category: Array) -> Array:
    """Exponentials of the mean logs of Dirichlet probabilities, 0 for categories that are not real."""
    return jnp.where(
        is_category, jnp.maximum(jnp.exp(_mean_log_probabilities(concentration, is_category)), MIN_EXP_MEAN_LOG), 0.0
    )


def negative_kl_divergence(prior: Array, factor: Array, is_category: Array) -> Array:
    """The sum of minus the Kullback-Leibler divergences of Dirichlet factors from priors, both as concentrations."""
    powers = jnp.where(is_category, (prior - factor) * _mean_log_probabilities(factor, is_category), 0.0).sum(-1)
    return (powers + log_beta(factor, is_category) - log_beta(prior, is_category)).astype(jnp.result_type(float)).sum()


def _mean_log_probabilities(concentration: Array, is_category: Array) -> Array:
    """Means of the logs of Dirichlet probabilities (..., category)."""
    return digamma(concentration) - digamma(jnp.where(is_category, concentration, 0.0).sum(-1, keepdims=True))
