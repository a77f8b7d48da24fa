"""Gamma variates on whole arrays, and the distributions that are made of them.

`jax.random.gamma` runs a loop for every element on a CPU, a microsecond each. Here all elements are proposed together,
by the method of Marsaglia and Tsang (2000), until every one is accepted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions.set_bits import first_set_indices
from bayeslab.distributions.threefry import uniforms

MIN_ELEMENTS_COLLECTED = 1024
"""Number of elements from which on those not accepted are collected before they are proposed again."""


def log_gamma_variates(key: Array, concentration: Array, shape: tuple[int, ...]) -> Array:
    """Logs of Gamma(concentration, 1) variates of a shape, exact where a variate itself would underflow to 0.

    They are NaN where the concentration is not positive and finite.
    """
    concentration = jnp.broadcast_to(concentration, shape).ravel()
    size = concentration.size
    invalid = ~(concentration > 0) | ~jnp.isfinite(concentration)
    d = jnp.where(invalid, 1.0, jnp.where(concentration < 1, concentration + 1, concentration)) - 1 / 3
    if size < MIN_ELEMENTS_COLLECTED:
        key, key_boost = jax.random.split(key)
        log_v = _propose_until_accepted(key, jnp.full(size, jnp.nan, d.dtype), d, _noise_from_two_keys)
    else:
        key_noise, key_loop, key_boost = jax.random.split(key, 3)
        state = key_loop, _log_proposals(_noise(key_noise, size, d.dtype), d)
        log_v = jax.lax.while_loop(_any_missing, partial(_propose_missing, d), state)[1]

    def boosted(log_v: Array) -> Array:
        if size < MIN_ELEMENTS_COLLECTED:
            log_boost = jnp.log1p(-jax.random.uniform(key_boost, (size,), d.dtype)) / concentration
        else:
            log_boost = _noise(key_boost, size, d.dtype)[1] / concentration
        return log_v + jnp.where(concentration < 1, log_boost, 0.0)

    log_v = jax.lax.cond((concentration < 1).any(), boosted, lambda log_v: log_v, log_v)
    return jnp.where(invalid, jnp.nan, jnp.log(d) + log_v).reshape(shape)


State = tuple[Array, Array]
"""A key, and the logs of the elements, which are NaN where nothing was accepted so far."""
Noise = tuple[Array, Array]
"""Standard Normal numbers, and logs of uniform numbers."""


def _any_missing(state: State) -> Array:
    """Whether any element was not accepted so far."""
    return jnp.isnan(state[1]).any()


def _propose_until_accepted(
    key: Array, log_v: Array, d: Array, next_noise: Callable[..., tuple[Array, Noise]]
) -> Array:
    """The logs of all elements, after those that are NaN were proposed until each was accepted.

    next_noise: (key, size, type) -> the next key, and noise.
    """

    def step(state: State) -> State:
        key, log_v = state
        key, noise = next_noise(key, d.size, d.dtype)
        return key, jnp.where(jnp.isnan(log_v), _log_proposals(noise, d), log_v)

    return jax.lax.while_loop(_any_missing, step, (key, log_v))[1]


def _propose_missing(d: Array, state: State) -> State:
    """The state after up to a sixteenth of the elements, of those that are missing, were proposed until accepted."""
    key, log_v = state
    key, key_now = jax.random.split(key)
    indices = first_set_indices(jnp.isnan(log_v), log_v.size // 16)
    log_accepted = _propose_until_accepted(
        key_now, jnp.where(indices < log_v.size, jnp.nan, 0.0).astype(d.dtype), d[indices], _noise_from_one_key
    )
    return key, log_v.at[indices].set(log_accepted)


def _log_proposals(noise: Noise, d: Array) -> Array:
    """Logs of proposals over d, by the method of Marsaglia and Tsang; NaN where a proposal is rejected.

    The result is one array, not two: the noise would be computed again for each.
    """
    x, log_u = noise
    root = 1 + x / jnp.sqrt(9 * d)
    positive = jnp.where(root > 0, root, 1.0)
    log_new = 3 * jnp.log(positive)
    accepted = (root > 0) & (log_u < 0.5 * x**2 + d * (1 - positive**3 + log_new))
    return jnp.where(accepted, log_new, jnp.nan)


def _noise_from_two_keys(key: Array, size: int, dtype: Any) -> tuple[Array, Noise]:
    """The next key, and noise of JAX from two keys that were split off beside it."""
    key, *keys = jax.random.split(key, 3)
    return key, _jax_noise(keys, size, dtype)


def _noise_from_one_key(key: Array, size: int, dtype: Any) -> tuple[Array, Noise]:
    """The next key, and noise from one key that was split off beside it."""
    key, key_now = jax.random.split(key)
    return key, _noise(key_now, size, dtype)


def _noise(key: Array, size: int, dtype: Any) -> Noise:
    """Noise of a size, from counters where it is large and in single precision."""
    if dtype == jnp.float32 and size >= MIN_ELEMENTS_COLLECTED:
        counter = jnp.arange(size, dtype=jnp.uint32)
        first, second = uniforms(jax.random.key_data(key), counter, jnp.zeros_like(counter))
        return np.float32(np.sqrt(2)) * jax.lax.erf_inv(2 * first - 1), jnp.log(second)
    return _jax_noise(jax.random.split(key), size, dtype)


def _jax_noise(keys: Any, size: int, dtype: Any) -> Noise:
    """Noise as JAX draws it. keys: two of them."""
    log_u = jnp.log1p(-jax.random.uniform(keys[1], (size,), dtype))
    return jax.random.normal(keys[0], (size,), dtype), log_u


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
        key_first, key_second = jax.random.split(key)
        logits = log_gamma_variates(key_first, self.concentration1, shape)
        logits -= log_gamma_variates(key_second, self.concentration0, shape)
        value = jax.nn.sigmoid(logits)
        info = jnp.finfo(value.dtype)
        return jnp.clip(value, info.tiny, 1 - info.eps)


class Dirichlet(dist.Dirichlet):
    """NumPyro's Dirichlet, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        value = jax.nn.softmax(log_gamma_variates(key, self.concentration, shape), axis=-1)
        return jnp.maximum(value, jnp.finfo(value.dtype).tiny)


def _bartlett_factors(key: Array, wishart: dist.WishartCholesky, sample_shape: tuple[int, ...]) -> Array:
    """Cholesky factors of Wishart variates, by the Bartlett decomposition."""
    size = wishart.event_shape[-1]
    key_chi, key_normal = jax.random.split(key)
    shape = (*sample_shape, *wishart.batch_shape)
    half_shape = (wishart.concentration[..., None] - jnp.arange(size)) / 2
    chi = jnp.sqrt(2.0) * jnp.exp(0.5 * log_gamma_variates(key_chi, half_shape, (*shape, size)))
    off_diagonal = jax.random.normal(key_normal, (*shape, size * (size - 1) // 2), chi.dtype)
    entries = jnp.concatenate([chi, off_diagonal, jnp.zeros((*shape, 1), chi.dtype)], axis=-1)
    return wishart.scale_tril @ entries[..., _triangle_indices(size)]


def _triangle_indices(size: int) -> np.ndarray:
    """For every entry of a lower triangular matrix its index among the diagonal, the rows below it, and a last zero."""
    indices = np.full((size, size), -1)
    indices[np.diag_indices(size)] = np.arange(size)
    indices[np.tril_indices(size, -1)] = np.arange(size, size + size * (size - 1) // 2)
    return indices


class WishartCholesky(dist.WishartCholesky):
    """NumPyro's WishartCholesky, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return _bartlett_factors(key, self, sample_shape)


class Wishart(dist.Wishart):
    """NumPyro's Wishart, drawn on whole arrays."""

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        factor = _bartlett_factors(key, self.base_dist, sample_shape)
        return factor @ factor.mT
