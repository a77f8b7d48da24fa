"""Draws and log densities of many Dirichlet distributions, whose categories may be fewer than there is room for."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from bayeslab.distributions.gamma import log_gamma_variates

MIN_DRAWN_PROBABILITY = 1e-30
"""Smallest probability that is drawn of a category that there is."""


MIN_STIRLING_BASE = 100.0
"""Smallest argument for which Stirling's series has all digits."""


def draw_dirichlet(key: Array, concentration: Array, is_category: Array) -> Array:
    """Dirichlet draws (..., category) in the precision of the concentration, 0 for categories that are not real."""
    logs = log_gamma_variates(key, jnp.where(is_category, concentration, 1.0), concentration.shape)
    probabilities = jax.nn.softmax(jnp.where(is_category, logs, -jnp.inf), axis=-1)
    return jax.lax.optimization_barrier(
        jnp.where(is_category, jnp.maximum(probabilities, MIN_DRAWN_PROBABILITY), 0.0)
    )  # computed once, used often


def log_prior_ratio(concentration: Array, old: Array, new: Array) -> Array:
    """What every probability (..., category) adds to the log ratio of Dirichlet densities, new over old."""
    return jnp.where(concentration == 1, 0.0, (concentration - 1) * (jnp.log(new) - jnp.log(old)))


def dirichlet_multinomial_log_density(concentration: Array, counts: Array, is_category: Array) -> Array:
    """The log density of draws with these counts (..., category), their probabilities integrated out, added up.

    It is that of Dirichlet-multinomial distributions, without the multinomial coefficients.
    """
    categories = log_rising_factorial(jnp.where(is_category, concentration, 1.0), jnp.where(is_category, counts, 0.0))
    totals = (jnp.where(is_category, each, 0.0).sum(-1) for each in (concentration, counts))
    return categories.sum() - log_rising_factorial(*totals).sum()


def log_rising_factorial(base: Array, count: Array) -> Array:
    """log Gamma(base + count) - log Gamma(base), for any base.

    The difference of two values of `gammaln` loses its digits where the base is far above the count: at 1e30 it is 1e16
    in place of 70 for a count of one, and steps of NUTS go there and stay. Beyond `MIN_STIRLING_BASE` the difference of
    Stirling's series is taken.
    """
    is_large = base > MIN_STIRLING_BASE
    small, large = jnp.where(is_large, 1.0, base), jnp.where(is_large, base, MIN_STIRLING_BASE)
    series = (large + count - 0.5) * jnp.log1p(count / large) - count + count * jnp.log(large)
    series += _stirling_remainder(large + count) - _stirling_remainder(large)
    return jnp.where(is_large, series, gammaln(small + count) - gammaln(small))


def _stirling_remainder(x: Array) -> Array:
    """What Stirling's formula for log Gamma(x) leaves, up to x^-7 / 1680."""
    return (1 / 12 - (1 / 360 - 1 / 1260 / x**2) / x**2) / x


def log_beta(concentration: Array, is_category: Array) -> Array:
    """The log normaliser of Dirichlet distributions (..., category): the log of the multivariate beta function."""
    log_gammas = jnp.where(is_category, gammaln(jnp.where(is_category, concentration, 1.0)), 0.0).sum(-1)
    return log_gammas - gammaln(jnp.where(is_category, concentration, 0.0).sum(-1))


class Priors(NamedTuple):
    """Dirichlet priors, in single precision.

    weights: concentrations (individual, population). components: concentrations (population, locus, allele).
    is_allele: which alleles a locus has, (locus, allele).
    """

    weights: Array
    components: Array
    is_allele: Array
