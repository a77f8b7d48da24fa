"""A process by the covariance matrix of its values: exact, for a few thousand of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.gaussian_processes.cholesky import factor, log_normal, triangular_inverse
from bayeslab.gaussian_processes.moments import Moments, scaled

NUGGET = 1e-10
"""Of the mean variance, added to all variances where values have a density or are drawn: what is smaller lets rounding
into the gradients that samplers follow. Evidence and posterior moments are without it."""

BLOCK = 1024
"""New inputs that are looked at together."""

HALVED = 700
"""Rows beyond which a covariance matrix is made by halves: more pieces take longer to compile."""


@dataclass(frozen=True)
class Dense:
    """The covariance matrix of all values: memory of n^2, time of n^3."""

    def represent(self, kernel: Any, x: Array) -> "DenseProcess":
        return DenseProcess(kernel, x)


class DenseProcess(NamedTuple):
    """kernel: (x, z) -> matrix (row of x, row of z). x: (row,) or (row, input).

    Posteriors are found from B = I + w K w with w the root of the precision of the evidence (Rasmussen and Williams
    2006, section 3.4.3), whose eigenvalues are at least 1: no kernel matrix is inverted.
    """

    kernel: Any
    x: Array

    def root(self) -> Array:
        """L with L L' the covariance matrix, and the nugget."""
        return factor(self._smoothed())

    def draw(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.normal(key, (*shape, len(self.x)), self.x.dtype) @ self.root().T

    def log_density(self, value: Array) -> Array:
        return log_normal(self._smoothed(), value) - len(self.x) / 2 * jnp.log(2 * jnp.pi)

    def log_mass(self, precision: Array, linear: Array) -> Array:
        root, target = scaled(precision, linear)
        return log_normal(_met(root, self._covariance()), target)

    def moments(self, precision: Array, linear: Array) -> Moments:
        """Variances as K_ii - |v_i|^2, by far the largest error of which is relative to the prior variance."""
        mean, spread = self._met_by(precision, linear, self._covariance())
        return Moments(mean, jnp.maximum(self.kernel(self.x) - (spread**2).sum(0), 0.0))

    def given(self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...] = ()) -> Array:
        """A prior draw, corrected by what it misses of the evidence (Matheron's rule)."""
        return self._corrected(key, precision, linear, shape, self.root(), self._covariance())

    def moments_at(self, precision: Array, linear: Array, new: Array) -> Moments:
        return self.moments_of(self.kernel, precision, linear, new)

    def moments_of(self, part: Any, precision: Array, linear: Array, new: Array) -> Moments:
        """At new inputs, of the part of the process that has a part of its kernel: a term of a sum."""
        root, inverse, weights = self._weights(precision, linear)

        def one(place: Array) -> Moments:
            across = _matrix(part, self.x, place[None])[:, 0]
            lost = inverse @ (root * across)
            return Moments(across @ weights, jnp.maximum(part(place[None])[0] - lost @ lost, 0.0))

        return jax.lax.map(one, new, batch_size=BLOCK)

    def draws_at(self, key: Array, precision: Array, linear: Array, new: Array, shape: tuple[int, ...] = ()) -> Array:
        both = self._replace(x=jnp.concatenate([self.x, new]))
        across = _matrix(both.kernel, self.x, both.x)
        return both._corrected(key, precision, linear, shape, both.root(), across)[..., len(self.x) :]

    def covariance_at(self, precision: Array, linear: Array, new: Array) -> Array:
        _, spread = self._met_by(precision, linear, _matrix(self.kernel, self.x, new))
        return _matrix(self.kernel, new, new) - spread.T @ spread

    def _covariance(self) -> Array:
        return _symmetric(self.kernel, self.x)

    def _smoothed(self) -> Array:
        covariance = self._covariance()
        least = jnp.maximum(NUGGET, 100 * jnp.finfo(covariance.dtype).eps) * jnp.trace(covariance) / len(covariance)
        return covariance + least * jnp.eye(len(covariance), dtype=covariance.dtype)

    def _weights(self, precision: Array, linear: Array) -> tuple[Array, Array, Array]:
        """The root w of the precision, the inverse of the factor of B, and what covariances times it are means."""
        root, target = scaled(precision, linear)
        inverse = triangular_inverse(factor(_met(root, self._covariance())))
        return root, inverse, root * (inverse.T @ (inverse @ target))

    def _met_by(self, precision: Array, linear: Array, across: Array) -> tuple[Array, Array]:
        """For values with covariances `across` (row, new): their mean, and v with v'v what their covariance loses."""
        root, inverse, weights = self._weights(precision, linear)
        return across.T @ weights, inverse @ (root[:, None] * across)

    def _corrected(
        self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...], lower: Array, across: Array
    ) -> Array:
        """Draws at all rows of `lower`, whose first ones have the evidence."""
        size = len(precision)
        first, second = jax.random.split(key)
        prior = jax.random.normal(first, (*shape, len(lower)), lower.dtype) @ lower.T
        root, target = scaled(precision, linear)
        inverse = triangular_inverse(factor(_met(root, across[:, :size])))
        missed = target - root * prior[..., :size] - jax.random.normal(second, (*shape, size), lower.dtype)
        return prior + (missed @ inverse.T @ inverse) @ (root[:, None] * across)


def _met(root: Array, covariance: Array) -> Array:
    """B."""
    return jnp.eye(len(root), dtype=root.dtype) + root[:, None] * covariance * root


def _matrix(kernel: Any, x: Array, z: Array) -> Array:
    """kernel(x, z), as numbers.

    Where XLA fuses a sum of kernels into what uses it, distances of 0 come out as 1 by tinygp's own distance; those of
    `bayeslab.gaussian_processes.kernels` have none of that.
    """
    return jax.lax.optimization_barrier(kernel(x, z))


def _symmetric(kernel: Any, x: Array) -> Array:
    """kernel(x, x), without most of its upper triangle where there are many rows."""
    if len(x) <= HALVED:
        return _matrix(kernel, x, x)
    first, last = x[: len(x) // 2], x[len(x) // 2 :]
    corner = _matrix(kernel, last, first)
    return jnp.block([[_symmetric(kernel, first), corner.T], [corner, _symmetric(kernel, last)]])
