"""Points with equal weights whose averages are expectations.

What a program says of a site is linear in a few statistics of it. So the average over points whose mean statistics are
the expected ones is an expectation, exactly, and two points are enough for most families. Every function takes a
distribution and gives points (point, *batch, *event) inside its support; elements of a batch are moved together.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma, logsumexp

MAX_NEWTON_STEPS = 50
"""Newton steps at most; five are the rule."""


def of_normal(q: Any) -> Array:
    """Two points whose mean statistics x and x^2 are the expected ones."""
    return q.mean + jnp.stack([-q.scale, q.scale])


def of_joint_normal(q: Any) -> Array:
    """Points with the expected x and x x': the corners of a simplex, one more than dimensions."""
    size = q.loc.shape[-1]
    corners = jnp.asarray(simplex(size)).reshape(size + 1, *(1,) * (q.loc.ndim - 1), size)
    noise = jnp.broadcast_to(corners, (size + 1, *q.loc.shape))
    return q.from_noise(noise)


def of_linear_gaussian_chain(q: Any) -> Array:
    """Paths with the expected z_t, z_t z_t' and z_t z_{t+1}' of every step."""
    return q.paths(simplex(2 * q.event_shape[-1]))


def of_step_normal(q: Any) -> Array:
    """The same for the chain of a Normal whose neighbouring steps meet."""
    return q.paths(simplex(2 * q.chain.event_shape[-1]))


def of_gamma(q: Any) -> Array:
    """Two points with the expected log x and x."""
    low, high = _pair_with_mean_one(digamma(q.concentration) - jnp.log(q.concentration))
    return q.concentration / q.rate * jnp.stack([low, high])


def of_inverse_gamma(q: Any) -> Array:
    """Two points with the expected log x and 1 / x."""
    low, high = _pair_with_mean_one(digamma(q.concentration) - jnp.log(q.concentration))
    return q.rate / (q.concentration * jnp.stack([low, high]))


def of_dirichlet(q: Any) -> Array:
    """Two points with the expected logs of all probabilities."""
    is_present, alpha = q.concentration > 0, q.concentration
    mean = digamma(jnp.where(is_present, alpha, 1.0)) - digamma(alpha.sum(-1, keepdims=True))
    return jnp.exp(_log_simplex(jnp.where(is_present, mean, -jnp.inf)))


def of_beta(q: Any) -> Array:
    """Two points with the expected log x and log (1 - x)."""
    alpha = jnp.stack([q.concentration1, q.concentration0], axis=-1)
    return jnp.exp(_log_simplex(digamma(alpha) - digamma(alpha.sum(-1, keepdims=True))))[..., 0]


def of_wishart(q: Any) -> Array:
    """Two points with the expected log |X| and X: multiples of the mean."""
    return _stack_multiples(_wishart_multiples(q)) * q.mean


def of_inverse_wishart(q: Any) -> Array:
    """Two points with the expected log |X| and inverse of X."""
    return q.scale_matrix / (_stack_multiples(_wishart_multiples(q)) * q.concentration[..., None, None])


def of_wishart_cholesky(q: Any) -> Array:
    """Two points with the expected log |L| and L L'."""
    return jnp.sqrt(_stack_multiples(_wishart_multiples(q)) * q.concentration[..., None, None]) * q.scale_tril


def of_truncated_normal(q: Any) -> Array:
    """Two points with the expected x and x^2, inside the support.

    A density that is log-concave on one side of a bound has no larger deviation than distance to it.
    """
    return q.mean + jnp.sqrt(q.variance) * jnp.stack([-jnp.ones(q.batch_shape), jnp.ones(q.batch_shape)])


def of_generalised_inverse_gaussian(q: Any) -> Array:
    """Two points with the expected x and 1 / x; the mean of log x is another.

    Their product is the ratio of both expectations. Three expectations at once would take points without bound.
    """
    mean, product = q.mean, q.mean / q.mean_inverse
    high = mean + jnp.sqrt(jnp.maximum(mean**2 - product, 0.0))
    return jnp.stack([product / high, high])


def _pair_with_mean_one(log_gap: Array) -> tuple[Array, Array]:
    """Two numbers with mean 1 whose logs have a given mean, at most 0."""
    product = jnp.exp(2 * log_gap)
    high = 1 + jnp.sqrt(jnp.maximum(1 - product, 0.0))
    return product / high, high


def _wishart_multiples(q: Any) -> tuple[Array, Array]:
    """Two multiples of the mean of a Wishart that have its expected log determinant and mean."""
    size = q.event_shape[-1]
    halves = (q.concentration[..., None] - jnp.arange(size)) / 2
    return _pair_with_mean_one(digamma(halves).mean(-1) - jnp.log(q.concentration / 2))


def _stack_multiples(pair: tuple[Array, Array]) -> Array:
    """Two factors as a stack (2, *batch, 1, 1) that multiplies matrices."""
    return jnp.stack(pair)[..., None, None]


def _log_simplex(logs: Array) -> Array:
    """Two log probability vectors whose mean is given, (2, *batch, K): along one direction, as far as it takes."""
    size = logs.shape[-1]
    if size == 1:
        return jnp.zeros((2, *logs.shape))
    direction = jnp.asarray(np.where(np.arange(size) % 2, -1.0, 1.0))
    maxima = [jnp.where(direction == sign, logs, -jnp.inf).max(-1, keepdims=True) for sign in (1, -1)]

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """One Newton step: the mean log sum rises convexly with the step, and the first one is too long."""
        step, _, count = state
        up, down = logs + step * direction, logs - step * direction
        total = logsumexp(up, -1, keepdims=True) + logsumexp(down, -1, keepdims=True)
        slope = ((jax.nn.softmax(up) - jax.nn.softmax(down)) * direction).sum(-1, keepdims=True)
        return step - total / jnp.where(slope == 0, 1.0, slope), step, count + 1

    def unsettled(state: tuple[Array, Array, Array]) -> Array:
        step, before, count = state
        return (before - step > 4 * jnp.finfo(step.dtype).eps * (1 + jnp.abs(step))).any() & (count < MAX_NEWTON_STEPS)

    start = -0.5 * (maxima[0] + maxima[1])
    start = jnp.where(jnp.isfinite(start), start, 0.0)  # one probability alone
    step, _, _ = jax.lax.while_loop(unsettled, newton, newton((start, start, jnp.array(0))))
    log_pair = jnp.stack([logs + step * direction, logs - step * direction])
    return jax.nn.log_softmax(log_pair)


def simplex(size: int) -> np.ndarray:
    """Points (size + 1, size) with mean zero and second moments the identity: the columns of the Helmert matrix."""
    helmert = np.zeros((size + 1, size))
    for column in range(size):
        helmert[: column + 1, column] = 1.0
        helmert[column + 1, column] = -(column + 1.0)
        helmert[:, column] *= np.sqrt((size + 1) / ((column + 1.0) * (column + 2.0)))
    return helmert
