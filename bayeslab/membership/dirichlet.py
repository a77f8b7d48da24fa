"""Draws from many Dirichlet distributions of categories that may be fewer than there is room for."""

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.distributions.gamma import log_gamma_variates

TINY = 1e-30


def dirichlet(key: Array, concentration: Array, real: Array) -> Array:
    """Probabilities (..., category) in the precision of the concentration, 0 for what is not real."""
    logs = log_gamma_variates(key, jnp.where(real, concentration, 1.0), concentration.shape)
    drawn = jax.nn.softmax(jnp.where(real, logs, -jnp.inf), axis=-1)
    return jax.lax.optimization_barrier(jnp.where(real, jnp.maximum(drawn, TINY), 0.0))  # computed once, used often
