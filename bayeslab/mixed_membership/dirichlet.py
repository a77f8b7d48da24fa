"""Many Dirichlet distributions of categories that may be fewer than there is room for: draws, and counts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from bayeslab.distributions.gamma import log_gamma_variates

TINY = 1e-30


def dirichlet(key: Array, concentration: Array, real: Array) -> Array:
    """Probabilities (..., category) in the precision of the concentration, 0 for what is not real."""
    logs = log_gamma_variates(key, jnp.where(real, concentration, 1.0), concentration.shape)
    drawn = jax.nn.softmax(jnp.where(real, logs, -jnp.inf), axis=-1)
    return jax.lax.optimization_barrier(jnp.where(real, jnp.maximum(drawn, TINY), 0.0))  # computed once, used often


def powers_gained(concentration: Array, old: Array, new: Array) -> Array:
    """Of the log density, by every probability (..., category) that becomes another one."""
    return jnp.where(concentration == 1, 0.0, (concentration - 1) * (jnp.log(new) - jnp.log(old)))


def log_density_of_counts(concentration: Array, counts: Array, real: Array) -> Array:
    """Of draws with these counts (..., category), added up: their probabilities are integrated out."""
    return (log_beta(concentration + counts, real) - log_beta(concentration, real)).sum()


def log_beta(concentration: Array, real: Array) -> Array:
    """What the density of a Dirichlet distribution (..., category) is divided by, its log."""
    each = jnp.where(real, gammaln(jnp.where(real, concentration, 1.0)), 0.0).sum(-1)
    return each - gammaln(jnp.where(real, concentration, 0.0).sum(-1))


class Priors(NamedTuple):
    """Concentrations of weights (individual, population) and components (population, locus, allele), and which alleles
    a locus has, (locus, allele); in single precision."""

    weights: Array
    components: Array
    real: Array
