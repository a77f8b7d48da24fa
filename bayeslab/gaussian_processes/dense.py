"""A process through the covariance matrix of its values: exact, for a few thousand of them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.gaussian_processes.cholesky import factor, normal_log_density, triangular_inverse
from bayeslab.gaussian_processes.moments import Moments, whitened_observations

NUGGET_PER_VARIANCE = 1e-10
"""The share of the mean variance that is added to all variances where values have a density or are drawn: what is
smaller lets rounding into the gradients that samplers follow. Marginal likelihoods and posterior moments are without
it."""

NEW_INPUTS_PER_BATCH = 1024
"""The number of new inputs whose moments are computed together."""

MAX_ROWS_IN_ONE_PIECE = 700
"""The most rows for which a covariance matrix is made in one piece: more pieces take longer to compile."""


@dataclass(frozen=True)
class Dense:
    """The exact solver through the covariance matrix of all values: memory of n^2, time of n^3."""

    def represent(self, kernel: Any, x: Array) -> "DenseProcess":
        return DenseProcess(kernel, x)


class DenseProcess(NamedTuple):
    """A process through the covariance matrix K of its values.

    kernel: (x, z) -> matrix (row of x, row of z). x: (row,) or (row, input).
    Posteriors are found from B = I + w K w with w the root of the precisions of the information pairs (Rasmussen and
    Williams 2006, section 3.4.3), whose eigenvalues are at least 1: no kernel matrix is inverted.
    """

    kernel: Any
    x: Array

    def root(self) -> Array:
        """The lower triangular L with L L' the covariance matrix and the nugget."""
        return factor(self._covariance_with_nugget())

    def draw(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.normal(key, (*shape, len(self.x)), self.x.dtype) @ self.root().T

    def log_density(self, value: Array) -> Array:
        return normal_log_density(self._covariance_with_nugget(), value) - len(self.x) / 2 * jnp.log(2 * jnp.pi)

    def log_mass(self, precision: Array, linear: Array) -> Array:
        root, target = whitened_observations(precision, linear)
        return normal_log_density(_target_covariance(root, self._covariance()), target)

    def moments(self, precision: Array, linear: Array) -> Moments:
        """The posterior mean and variance of every value.

        Variances are K_ii - |v_i|^2, by far the largest error of which is relative to the prior variance.
        """
        mean, spread = self._conditional(precision, linear, self._covariance())
        return Moments(mean, jnp.maximum(self.kernel(self.x) - (spread**2).sum(0), 0.0))

    def given(self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...] = ()) -> Array:
        """Posterior draws of the values: prior draws, corrected by what they miss of the targets (Matheron's rule)."""
        return self._matheron_draws(key, precision, linear, shape, self.root(), self._covariance())

    def moments_at(self, precision: Array, linear: Array, new: Array) -> Moments:
        return self.moments_of(self.kernel, precision, linear, new)

    def moments_of(self, part: Any, precision: Array, linear: Array, new: Array) -> Moments:
        """The moments at new inputs of a part of the process, whose kernel is a term of the sum that its kernel is."""
        root, inverse, weights = self._weights(precision, linear)

        def point_moments(point: Array) -> Moments:
            cross_covariance = _matrix(part, self.x, point[None])[:, 0]
            lost = inverse @ (root * cross_covariance)
            return Moments(cross_covariance @ weights, jnp.maximum(part(point[None])[0] - lost @ lost, 0.0))

        return jax.lax.map(point_moments, new, batch_size=NEW_INPUTS_PER_BATCH)

    def draws_at(self, key: Array, precision: Array, linear: Array, new: Array, shape: tuple[int, ...] = ()) -> Array:
        joint = self._replace(x=jnp.concatenate([self.x, new]))
        cross_covariance = _matrix(joint.kernel, self.x, joint.x)
        return joint._matheron_draws(key, precision, linear, shape, joint.root(), cross_covariance)[..., len(self.x) :]

    def covariance_at(self, precision: Array, linear: Array, new: Array) -> Array:
        _, spread = self._conditional(precision, linear, _matrix(self.kernel, self.x, new))
        return _matrix(self.kernel, new, new) - spread.T @ spread

    def _covariance(self) -> Array:
        return _symmetric_matrix(self.kernel, self.x)

    def _covariance_with_nugget(self) -> Array:
        covariance = self._covariance()
        nugget = (
            jnp.maximum(NUGGET_PER_VARIANCE, 100 * jnp.finfo(covariance.dtype).eps)
            * jnp.trace(covariance)
            / len(covariance)
        )
        return covariance + nugget * jnp.eye(len(covariance), dtype=covariance.dtype)

    def _weights(self, precision: Array, linear: Array) -> tuple[Array, Array, Array]:
        """The root w of the precision, the inverse factor of B, and weights: covariances times them are means."""
        root, target = whitened_observations(precision, linear)
        inverse = triangular_inverse(factor(_target_covariance(root, self._covariance())))
        return root, inverse, root * (inverse.T @ (inverse @ target))

    def _conditional(self, precision: Array, linear: Array, cross_covariance: Array) -> tuple[Array, Array]:
        """The mean of other values, and v: their covariance loses v'v.

        cross_covariance: of the observed values and the others, (row, new).
        """
        root, inverse, weights = self._weights(precision, linear)
        return cross_covariance.T @ weights, inverse @ (root[:, None] * cross_covariance)

    def _matheron_draws(
        self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...], lower: Array, cross_covariance: Array
    ) -> Array:
        """Posterior draws at all rows of `lower`, by Matheron's rule; the first ones are observed.

        lower: the factor of the covariance of all rows. cross_covariance: of the observed rows and all rows.
        """
        size = len(precision)
        prior_key, noise_key = jax.random.split(key)
        prior = jax.random.normal(prior_key, (*shape, len(lower)), lower.dtype) @ lower.T
        root, target = whitened_observations(precision, linear)
        inverse = triangular_inverse(factor(_target_covariance(root, cross_covariance[:, :size])))
        missed = target - root * prior[..., :size] - jax.random.normal(noise_key, (*shape, size), lower.dtype)
        return prior + (missed @ inverse.T @ inverse) @ (root[:, None] * cross_covariance)


def _target_covariance(root: Array, covariance: Array) -> Array:
    """The covariance matrix B = I + w K w of the targets."""
    return jnp.eye(len(root), dtype=root.dtype) + root[:, None] * covariance * root


def _matrix(kernel: Any, x: Array, z: Array) -> Array:
    """The matrix kernel(x, z), computed before it is used.

    Where XLA fuses a sum of kernels into what uses it, distances of 0 come out as 1 by tinygp's own distance; those of
    `bayeslab.gaussian_processes.kernels` have none of that.
    """
    return jax.lax.optimization_barrier(kernel(x, z))


def _symmetric_matrix(kernel: Any, x: Array) -> Array:
    """The matrix kernel(x, x), where there are many rows without computing most of its upper triangle."""
    if len(x) <= MAX_ROWS_IN_ONE_PIECE:
        return _matrix(kernel, x, x)
    first, last = x[: len(x) // 2], x[len(x) // 2 :]
    corner = _matrix(kernel, last, first)
    return jnp.block([[_symmetric_matrix(kernel, first), corner.T], [corner, _symmetric_matrix(kernel, last)]])
