"""Gamma variates on whole arrays, and the distributions that are made of them.

`jax.random.gamma` runs a loop for every element on a CPU, a microsecond each. Here all elements are proposed together,
by the method of Marsaglia and Tsang (2000), until every one is accepted.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

MANY = 1024
"""Elements from which on those that were not accepted are collected before they are proposed again."""


def log_gamma_variates(key: Array, concentration: Array, shape: tuple[int, ...]) -> Array:
    """Logs of Gamma(concentration, 1) variates, exact where the variate itself would underflow to 0."""
    concentration = jnp.broadcast_to(concentration, shape).ravel()
    size = concentration.size
    key, boost = jax.random.split(key)
    raised = jnp.where(concentration < 1, concentration + 1, concentration)
    d = raised - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def missing(state: tuple[Array, Array, Array]) -> Array:
        return ~state[1].all()

    def propose(state: tuple[Array, Array, Array], at: Any = slice(None)) -> tuple[Array, Array, Array]:
        key, done, log_v = state
        key, first, second = jax.random.split(key, 3)
        here = d[at]
        x = jax.random.normal(first, here.shape, c.dtype)
        root = 1 + c[at] * x
        positive = jnp.where(root > 0, root, 1.0)
        log_new = 3 * jnp.log(positive)
        log_u = jnp.log1p(-jax.random.uniform(second, here.shape, c.dtype))
        accepted = (root > 0) & (log_u < 0.5 * x**2 + here * (1 - positive**3 + log_new))
        # what is not a number is never accepted, and given back as it is
        log_v = log_v.at[at].set(jnp.where(accepted & ~done[at], log_new, log_v[at]))
        return key, done.at[at].set(done[at] | accepted), log_v

    def propose_missing(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        return propose(state, jnp.nonzero(~state[1], size=size // 16, fill_value=size)[0])

    invalid = ~(concentration > 0) | ~jnp.isfinite(concentration)
    state = (key, invalid, jnp.where(invalid, jnp.nan, jnp.zeros(size, c.dtype)))
    if size < MANY:
        log_v = jax.lax.while_loop(missing, propose, state)[2]
    else:
        log_v = jax.lax.while_loop(missing, propose_missing, propose(state))[2]

    def lowered(log_v: Array) -> Array:
        lower = jnp.log1p(-jax.random.uniform(boost, (size,), c.dtype)) / concentration
        return log_v + jnp.where(concentration < 1, lower, 0.0)

    log_v = jax.lax.cond((concentration < 1).any(), lowered, lambda log_v: log_v, log_v)
    return (jnp.log(d) + log_v).reshape(shape)


class Gamma(dist.Gamma):
    """NumPyro's Gamma, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        value = jnp.exp(log_gamma_variates(key, self.concentration, shape)) / self.rate
        return jnp.maximum(value, jnp.finfo(value.dtype).tiny)


class InverseGamma(dist.InverseGamma):
    """NumPyro's InverseGamma, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        return self.rate * jnp.exp(-log_gamma_variates(key, self.concentration, shape))


class Beta(dist.Beta):
    """NumPyro's Beta, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape)
        first, second = jax.random.split(key)
        logits = log_gamma_variates(first, self.concentration1, shape)
        logits -= log_gamma_variates(second, self.concentration0, shape)
        value = jax.nn.sigmoid(logits)
        info = jnp.finfo(value.dtype)
        return jnp.clip(value, info.tiny, 1 - info.eps)


class Dirichlet(dist.Dirichlet):
    """NumPyro's Dirichlet, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        value = jax.nn.softmax(log_gamma_variates(key, self.concentration, shape), axis=-1)
        return jnp.maximum(value, jnp.finfo(value.dtype).tiny)


def _bartlett(key: Array, wishart: dist.WishartCholesky, sample_shape: tuple[int, ...]) -> Array:
    """Cholesky factors of Wishart variates."""
    size = wishart.event_shape[-1]
    first, second = jax.random.split(key)
    shape = (*sample_shape, *wishart.batch_shape)
    half = (wishart.concentration[..., None] - jnp.arange(size)) / 2
    chi = jnp.sqrt(2.0) * jnp.exp(0.5 * log_gamma_variates(first, half, (*shape, size)))
    below = jax.random.normal(second, (*shape, size * (size - 1) // 2), chi.dtype)
    entries = jnp.concatenate([chi, below, jnp.zeros((*shape, 1), chi.dtype)], axis=-1)
    return wishart.scale_tril @ entries[..., _places(size)]


def _places(size: int) -> np.ndarray:
    """Where a lower triangular matrix has its entries: the diagonal, the rows below it, a zero."""
    places = np.full((size, size), -1)
    places[np.diag_indices(size)] = np.arange(size)
    places[np.tril_indices(size, -1)] = np.arange(size, size + size * (size - 1) // 2)
    return places


class WishartCholesky(dist.WishartCholesky):
    """NumPyro's WishartCholesky, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return _bartlett(key, self, sample_shape)


class Wishart(dist.Wishart):
    """NumPyro's Wishart, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        factor = _bartlett(key, self.base_dist, sample_shape)
        return factor @ factor.mT
