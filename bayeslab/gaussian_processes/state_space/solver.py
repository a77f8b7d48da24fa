"""A process in one dimension by the chain of its states at sorted inputs: exact, in time linear in their number."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.linear_gaussian_chain import LinearGaussianChain
from bayeslab.gaussian_processes.moments import Moments, scaled
from bayeslab.gaussian_processes.state_space.kalman import Motion, log_density
from bayeslab.gaussian_processes.state_space.kernels import found_state_space, state_space_kernel
from bayeslab.gaussian_processes.state_space.small_matrices import dot, filled, full, stacked
from bayeslab.gaussian_processes.state_space.transitions import motion

__all__ = ["StateSpace", "StateSpaceProcess", "state_space_kernel"]

MOST = 6
"""Numbers of a state up to which loops are written out: compiling takes time of their cube."""
JITTER = 1e-10
"""Of the prior variance, added to it by the density of the values alone: of equal inputs there is none without."""
TOGETHER = 32
"""Columns of a covariance found at once."""


@dataclass(frozen=True)
class StateSpace:
    """Exact, time of n, for kernels of one input such as Exp, Matern32, Matern52, their sums and products."""

    def represent(self, kernel: Any, x: Array) -> "StateSpaceProcess":
        """x: (row,) or (row, 1), in any order; may repeat. Raises ValueError where there is no state space."""
        return StateSpaceProcess(jax.tree.map(jnp.asarray, found_state_space(kernel)), _single(jnp.asarray(x)))


class StateSpaceProcess(NamedTuple):
    """kernel: a `tinygp.kernels.quasisep.Quasisep`. x: (row,)."""

    kernel: Any
    x: Array

    def draw(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        found, chain, back = self._states()
        return _seen(found, chain.sample(key, shape))[..., back]

    def log_density(self, value: Array) -> Array:
        """Of the values with noise of JITTER times their variance."""
        x, value = _in_order(self.x, value)
        found = motion(self.kernel, (x, x))
        variance = dot(found.observed, [dot(row, found.observed) for row in full(found.start)])
        root = lax.rsqrt(jnp.maximum(JITTER, jnp.finfo(x.dtype).eps) * jnp.broadcast_to(variance, x.shape))
        return self._log_density(x, root, root * value) + (jnp.log(root) - jnp.log(2 * jnp.pi) / 2).sum()

    def log_mass(self, precision: Array, linear: Array) -> Array:
        x, precision, linear = _in_order(self.x, precision, linear)
        return self._log_density(x, *scaled(precision, linear))

    def moments(self, precision: Array, linear: Array) -> Moments:
        found, chain, back = self._states_given(precision, linear)
        mean, covariance = chain.marginals()
        return Moments(_seen(found, mean)[back], jnp.maximum(_squares(found, covariance), 0.0)[back])

    def given(self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...] = ()) -> Array:
        found, chain, back = self._states_given(precision, linear)
        return _seen(found, chain.sample(key, shape))[..., back]

    def moments_at(self, precision: Array, linear: Array, new: Array) -> Moments:
        mean, variance = self._with(new).moments(*_longer(new, precision, linear))
        return Moments(mean[len(self.x) :], variance[len(self.x) :])

    def draws_at(self, key: Array, precision: Array, linear: Array, new: Array, shape: tuple[int, ...] = ()) -> Array:
        return self._with(new).given(key, *_longer(new, precision, linear), shape)[..., len(self.x) :]

    def covariance_at(self, precision: Array, linear: Array, new: Array) -> Array:
        """Means move by a covariance times what is added to the linear evidence."""
        both, (square, slope) = self._with(new), _longer(new, precision, linear)

        def mean(more: Array) -> Array:
            return both.moments(square, slope.at[len(self.x) :].add(more)).mean[len(self.x) :]

        push = jax.linearize(mean, jnp.zeros(len(new), slope.dtype))[1]
        found = lax.map(push, jnp.eye(len(new), dtype=slope.dtype), batch_size=TOGETHER)
        return (found + found.T) / 2

    def _log_density(self, x: Array, root: Array, target: Array) -> Array:
        """Of target ~ N(root g, 1) at sorted inputs, but for a constant of -log(2 pi) / 2 a row."""
        found = motion(self.kernel, _steps(x))
        if len(found.start) <= MOST:
            return log_density(motion, self.kernel, _steps(x), root, target)
        mean, covariance = _chain(found, x).predicted(*_evidence(found, root**2, root * target))
        spread, miss = 1 + root**2 * _squares(found, covariance), target - root * _seen(found, mean)
        return -(miss**2 / spread + jnp.log(spread)).sum() / 2

    def _states(self) -> tuple[Motion, LinearGaussianChain, Array]:
        """At sorted inputs, and the places there of the given ones."""
        order = jnp.argsort(self.x)
        found = motion(self.kernel, _steps(self.x[order]))
        return found, _chain(found, self.x), jnp.argsort(order)

    def _states_given(self, precision: Array, linear: Array) -> tuple[Motion, LinearGaussianChain, Array]:
        found, chain, back = self._states()
        order = jnp.argsort(back)
        evidence = _evidence(found, jnp.asarray(precision)[order], jnp.asarray(linear)[order])
        return found, chain.condition(*evidence), back

    def _with(self, new: Array) -> "StateSpaceProcess":
        return self._replace(x=jnp.concatenate([self.x, _single(new)]))


def _single(x: Array) -> Array:
    """(row,)."""
    if x.ndim > 2 or (x.ndim == 2 and x.shape[1] != 1):
        raise ValueError(
            f"x has shape {x.shape}; StateSpace() needs one input, (row,) or (row, 1); use Dense() for several"
        )
    return x.reshape(len(x))


def _steps(x: Array) -> tuple[Array, Array]:
    """From every sorted input to the next; the last is followed by itself."""
    return x, jnp.append(x[1:], x[-1:])


def _longer(new: Array, precision: Array, linear: Array) -> tuple[Array, Array]:
    """Nothing is known at new inputs."""
    return jnp.pad(precision, (0, len(new))), jnp.pad(linear, (0, len(new)))


def _in_order(*arrays: Array) -> tuple[Array, ...]:
    """By the first of them, the inputs. Sorting takes longer than a filter, so sorted inputs are left as they are."""

    def ordered(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        order = jnp.argsort(arrays[0])
        return tuple(array[order] for array in arrays)

    dtype = jnp.result_type(*arrays)
    x, *values = (array.astype(dtype) for array in arrays)
    return lax.cond(jnp.all(x[1:] >= x[:-1]), lambda arrays: arrays, ordered, (x, *values))


def _chain(found: Motion, x: Array) -> LinearGaussianChain:
    """The states."""
    start = stacked(full(found.start), (), x.dtype)
    matrix, noise = (stacked(entries, x.shape, x.dtype)[:-1] for entries in (found.matrix, full(found.noise)))
    mean = jnp.zeros(len(start), x.dtype)
    return LinearGaussianChain(mean, start, matrix, noise, time_varying=True, validate_args=False)


def _evidence(found: Motion, precision: Array, linear: Array) -> tuple[Array, Array]:
    """About the states, from that about the values."""
    observed = _observed(found, precision)
    square = precision[:, None, None] * observed[:, :, None] * observed[:, None, :]
    return square, linear[:, None] * observed


def _observed(found: Motion, x: Array) -> Array:
    """(row, d)."""
    return jnp.stack(filled((found.observed,), x.shape, x.dtype)[0], -1)


def _seen(found: Motion, states: Array) -> Array:
    """The values, (..., row), of states (..., row, d)."""
    return (states * _observed(found, states[..., 0])).sum(-1)


def _squares(found: Motion, covariance: Array) -> Array:
    """The variances of the values, (row,), from covariances of states (row, d, d)."""
    observed = _observed(found, covariance[:, 0, 0])
    return jnp.einsum("ti,tij,tj->t", observed, covariance, observed)
