"""A process as a combination of finitely many functions: g = Phi u + sqrt(d) e, with u and e standard Normal.

Everything takes time of n r^2 for n rows and r functions: the posterior of u has the precision matrix
A = I + Phi' (W / E) Phi, where W are the precisions of the information pairs and E = 1 + W d, all but Phi diagonal.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from bayeslab.gaussian_processes.cholesky import whitener
from bayeslab.gaussian_processes.moments import Moments


class BasisFunctions(Protocol):
    """The functions that a process is a random combination of; a pytree."""

    def at(self, x: Array) -> tuple[Array, Array]:
        """The values (row, r) of the functions at x, and the variance d (row,) that they leave out, positive."""
        ...


class LowRank(NamedTuple):
    """A process through the values of finitely many functions at its inputs.

    basis: Phi (row, r). remainder: d (row,), positive. functions: give both at new inputs.
    What the basis leaves out is independent from row to row, and at new inputs, whatever they are.
    """

    basis: Array
    remainder: Array
    functions: BasisFunctions

    def draw(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        weights = Weights(jnp.zeros_like(self.basis[0]), jnp.eye(self.basis.shape[1], dtype=self.basis.dtype))
        return _draws(key, weights, self.basis, self.remainder, shape)

    def log_density(self, value: Array) -> Array:
        weights = self._weights(1 / self.remainder, value / self.remainder)
        missed = value - self.basis @ weights.mean
        distance = (missed**2 / self.remainder).sum() + weights.mean @ weights.mean
        return weights.log_scale() - (distance + jnp.log(2 * jnp.pi * self.remainder).sum()) / 2

    def log_mass(self, precision: Array, linear: Array) -> Array:
        """The log marginal likelihood -(z' B^-1 z + log|B|) / 2, without its constant.

        Here w is the root of the precision, z = linear / w and B = I + w (Phi Phi' + d) w.
        The first term is the least over u of |E^-1/2 (z - w Phi u)|^2 + |u|^2, where rounding of u hardly matters.
        """
        inflation = self._inflation(precision)
        weights = self._posterior_weights(precision, linear)
        missed = linear - precision * (self.basis @ weights.mean)
        known = precision > 0
        distance = jnp.where(known, missed**2 / (inflation * jnp.where(known, precision, 1.0)), 0.0).sum()
        return weights.log_scale() - (distance + weights.mean @ weights.mean + jnp.log(inflation).sum()) / 2

    def moments(self, precision: Array, linear: Array) -> Moments:
        inflation = self._inflation(precision)
        mean, variance = self._posterior_weights(precision, linear).moments(self.basis)
        return Moments(
            (mean + self.remainder * linear) / inflation, variance / inflation**2 + self.remainder / inflation
        )

    def given(self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...] = ()) -> Array:
        inflation = self._inflation(precision)
        weights = self._posterior_weights(precision, linear)
        basis, remainder = self.basis / inflation[:, None], self.remainder / inflation
        return _draws(key, weights, basis, remainder, shape) + remainder * linear

    def moments_at(self, precision: Array, linear: Array, new: Array) -> Moments:
        basis, remainder = self.functions.at(new)
        mean, variance = self._posterior_weights(precision, linear).moments(basis)
        return Moments(mean, variance + remainder)

    def draws_at(self, key: Array, precision: Array, linear: Array, new: Array, shape: tuple[int, ...] = ()) -> Array:
        return _draws(key, self._posterior_weights(precision, linear), *self.functions.at(new), shape)

    def covariance_at(self, precision: Array, linear: Array, new: Array) -> Array:
        basis, remainder = self.functions.at(new)
        spread = basis @ self._posterior_weights(precision, linear).whitener.T
        return spread @ spread.T + jnp.diag(remainder)

    def _inflation(self, precision: Array) -> Array:
        """The diagonal E = 1 + W d."""
        return 1 + precision * self.remainder

    def _posterior_weights(self, precision: Array, linear: Array) -> "Weights":
        """The posterior of u given the information pairs about the values."""
        inflation = self._inflation(precision)
        return self._weights(precision / inflation, linear / inflation)

    def _weights(self, precision: Array, linear: Array) -> "Weights":
        """The distribution of u given the likelihood exp(linear' Phi u - (Phi u)' precision (Phi u) / 2)."""
        information = (
            jnp.eye(self.basis.shape[1], dtype=self.basis.dtype) + (self.basis * precision[:, None]).T @ self.basis
        )
        inverse = whitener(information)
        return Weights(inverse.T @ (inverse @ (self.basis.T @ linear)), inverse)


class Weights(NamedTuple):
    """The distribution u ~ N(mean, whitener' whitener). mean: (r,). whitener: (r, r), lower triangular."""

    mean: Array
    whitener: Array

    def log_scale(self) -> Array:
        """Half of the log determinant of the covariance matrix."""
        return jnp.log(jnp.diagonal(self.whitener)).sum()

    def moments(self, basis: Array) -> Moments:
        """The mean and variance of every entry of Phi u."""
        return Moments(basis @ self.mean, ((basis @ self.whitener.T) ** 2).sum(1))


def _draws(key: Array, weights: Weights, basis: Array, remainder: Array, shape: tuple[int, ...]) -> Array:
    """Draws of Phi u + sqrt(d) e."""
    weights_key, noise_key = jax.random.split(key)
    draws = weights.mean + jax.random.normal(weights_key, (*shape, basis.shape[1]), basis.dtype) @ weights.whitener
    noise = jax.random.normal(noise_key, (*shape, len(basis)), basis.dtype)
    return draws @ basis.T + jnp.sqrt(remainder) * noise


def min_remainder(variance: Array) -> Array:
    """The smallest d that is allowed: relative to the prior variance 1.5e-8, the root of eps (3.5e-4 in float32)."""
    return float(jnp.finfo(variance.dtype).eps) ** 0.5 * variance


def as_floats(x: ArrayLike) -> Array:
    """The inputs as floats, of their own precision where they have one."""
    return jnp.asarray(x, jnp.result_type(x, float))
