"""A process of one input through the Markov chain of its states at sorted inputs: exact, in time of their number.

Densities and their gradients come from the Kalman filter, posteriors from the linear Gaussian chain of the states.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.linear_gaussian_chain import LinearGaussianChain
from bayeslab.gaussian_processes.moments import Moments, whitened_observations
from bayeslab.gaussian_processes.state_space.kalman import StateTransition, log_density
from bayeslab.gaussian_processes.state_space.kernels import require_state_space, state_space_kernel
from bayeslab.gaussian_processes.state_space.small_matrices import as_array, broadcast_entries, dot, full
from bayeslab.gaussian_processes.state_space.transitions import state_transition

__all__ = ["StateSpace", "StateSpaceProcess", "state_space_kernel"]

MAX_STATE_SIZE_UNROLLED = 6
"""The largest size of a state for which loops over its entries are written out: compiling takes time of its cube."""
JITTER_PER_VARIANCE = 1e-10
"""The share of the prior variance that `log_density` adds to it: without it values at equal inputs have no density."""
COLUMNS_PER_BATCH = 32
"""The number of columns of a covariance matrix that are computed together."""


@dataclass(frozen=True)
class StateSpace:
    """The exact solver in time of n, for kernels of one input: Exp, Matern32, Matern52, their sums and products."""

    def represent(self, kernel: Any, x: Array) -> "StateSpaceProcess":
        """The process at inputs x: (row,) or (row, 1), in any order; they may repeat.

        Raises ValueError where the kernel has no state space.
        """
        return StateSpaceProcess(jax.tree.map(jnp.asarray, require_state_space(kernel)), _single_input(jnp.asarray(x)))


class StateSpaceProcess(NamedTuple):
    """A process through the states of its kernel, which are a Markov chain along the inputs.

    kernel: a `tinygp.kernels.quasisep.Quasisep`. x: (row,).
    """

    kernel: Any
    x: Array

    def draw(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        transition, chain, ranks = self._states()
        return _values_of_states(transition, chain.sample(key, shape))[..., ranks]

    def log_density(self, value: Array) -> Array:
        """The log density of the values with noise of 1e-10 times their variance."""
        x, value = _sort_by_inputs(self.x, value)
        transition = state_transition(self.kernel, (x, x))
        variance = dot(transition.observed, [dot(row, transition.observed) for row in full(transition.start)])
        root = lax.rsqrt(jnp.maximum(JITTER_PER_VARIANCE, jnp.finfo(x.dtype).eps) * jnp.broadcast_to(variance, x.shape))
        return self._log_density(x, root, root * value) + (jnp.log(root) - jnp.log(2 * jnp.pi) / 2).sum()

    def log_mass(self, precision: Array, linear: Array) -> Array:
        x, precision, linear = _sort_by_inputs(self.x, precision, linear)
        return self._log_density(x, *whitened_observations(precision, linear))

    def moments(self, precision: Array, linear: Array) -> Moments:
        transition, chain, ranks = self._states_given(precision, linear)
        mean, covariance = chain.marginals()
        return Moments(
            _values_of_states(transition, mean)[ranks],
            jnp.maximum(_value_variances(transition, covariance), 0.0)[ranks],
        )

    def given(self, key: Array, precision: Array, linear: Array, shape: tuple[int, ...] = ()) -> Array:
        transition, chain, ranks = self._states_given(precision, linear)
        return _values_of_states(transition, chain.sample(key, shape))[..., ranks]

    def moments_at(self, precision: Array, linear: Array, new: Array) -> Moments:
        mean, variance = self._extended_by(new).moments(*_pad_with_zeros(new, precision, linear))
        return Moments(mean[len(self.x) :], variance[len(self.x) :])

    def draws_at(self, key: Array, precision: Array, linear: Array, new: Array, shape: tuple[int, ...] = ()) -> Array:
        return self._extended_by(new).given(key, *_pad_with_zeros(new, precision, linear), shape)[..., len(self.x) :]

    def covariance_at(self, precision: Array, linear: Array, new: Array) -> Array:
        """The posterior covariance at new inputs: the derivative of means by the linear parts of information pairs."""
        joint, (all_precision, all_linear) = self._extended_by(new), _pad_with_zeros(new, precision, linear)

        def mean(change: Array) -> Array:
            return joint.moments(all_precision, all_linear.at[len(self.x) :].add(change)).mean[len(self.x) :]

        derivative = jax.linearize(mean, jnp.zeros(len(new), all_linear.dtype))[1]
        columns = lax.map(derivative, jnp.eye(len(new), dtype=all_linear.dtype), batch_size=COLUMNS_PER_BATCH)
        return (columns + columns.T) / 2

    def _log_density(self, x: Array, root: Array, target: Array) -> Array:
        """The log density of target ~ N(root g, 1) at sorted inputs, but for a constant of -log(2 pi) / 2 a row."""
        transition = state_transition(self.kernel, _steps(x))
        if len(transition.start) <= MAX_STATE_SIZE_UNROLLED:
            return log_density(state_transition, self.kernel, _steps(x), root, target)
        mean, covariance = _state_chain(transition, x).predicted(
            *_state_information(transition, root**2, root * target)
        )
        variance, innovation = (
            1 + root**2 * _value_variances(transition, covariance),
            target - root * _values_of_states(transition, mean),
        )
        return -(innovation**2 / variance + jnp.log(variance)).sum() / 2

    def _states(self) -> tuple[StateTransition, LinearGaussianChain, Array]:
        """The transitions and the chain of states at sorted inputs, and the rank of each input of x among them."""
        order = jnp.argsort(self.x)
        transition = state_transition(self.kernel, _steps(self.x[order]))
        return transition, _state_chain(transition, self.x), jnp.argsort(order)

    def _states_given(self, precision: Array, linear: Array) -> tuple[StateTransition, LinearGaussianChain, Array]:
        transition, chain, ranks = self._states()
        order = jnp.argsort(ranks)
        pair = _state_information(transition, jnp.asarray(precision)[order], jnp.asarray(linear)[order])
        return transition, chain.condition(*pair), ranks

    def _extended_by(self, new: Array) -> "StateSpaceProcess":
        return self._replace(x=jnp.concatenate([self.x, _single_input(new)]))


def _single_input(x: Array) -> Array:
    """The inputs as (row,); raises ValueError where there are several columns."""
    if x.ndim > 2 or (x.ndim == 2 and x.shape[1] != 1):
        raise ValueError(
            f"x has shape {x.shape}; StateSpace() needs one input, (row,) or (row, 1); use Dense() for several"
        )
    return x.reshape(len(x))


def _steps(x: Array) -> tuple[Array, Array]:
    """Every sorted input, and the one that follows it; the last is followed by itself."""
    return x, jnp.append(x[1:], x[-1:])


def _pad_with_zeros(new: Array, precision: Array, linear: Array) -> tuple[Array, Array]:
    """The information pairs, extended by zeros for the new inputs, of which nothing is known."""
    return jnp.pad(precision, (0, len(new))), jnp.pad(linear, (0, len(new)))


def _sort_by_inputs(*arrays: Array) -> tuple[Array, ...]:
    """The arrays in ascending order of the first of them, the inputs.

    Sorting takes longer than a filter, so sorted inputs are left as they are.
    """

    def ordered(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        order = jnp.argsort(arrays[0])
        return tuple(array[order] for array in arrays)

    dtype = jnp.result_type(*arrays)
    x, *values = (array.astype(dtype) for array in arrays)
    return lax.cond(jnp.all(x[1:] >= x[:-1]), lambda arrays: arrays, ordered, (x, *values))


def _state_chain(transition: StateTransition, x: Array) -> LinearGaussianChain:
    """The prior of the states as a linear Gaussian chain."""
    initial = as_array(full(transition.start), (), x.dtype)
    matrix, noise = (
        as_array(entries, x.shape, x.dtype)[:-1] for entries in (transition.matrix, full(transition.noise))
    )
    mean = jnp.zeros(len(initial), x.dtype)
    return LinearGaussianChain(mean, initial, matrix, noise, time_varying=True, validate_args=False)


def _state_information(transition: StateTransition, precision: Array, linear: Array) -> tuple[Array, Array]:
    """The information pairs about the states, from those about the values."""
    observed = _observation_vectors(transition, precision)
    state_precision = precision[:, None, None] * observed[:, :, None] * observed[:, None, :]
    return state_precision, linear[:, None] * observed


def _observation_vectors(transition: StateTransition, x: Array) -> Array:
    """The vectors H that make values of states, (row, d)."""
    return jnp.stack(broadcast_entries((transition.observed,), x.shape, x.dtype)[0], -1)


def _values_of_states(transition: StateTransition, states: Array) -> Array:
    """The values, (..., row), of states (..., row, d)."""
    return (states * _observation_vectors(transition, states[..., 0])).sum(-1)


def _value_variances(transition: StateTransition, covariance: Array) -> Array:
    """The variances of the values, (row,), from covariances of states (row, d, d)."""
    observed = _observation_vectors(transition, covariance[:, 0, 0])
    return jnp.einsum("ti,tij,tj->t", observed, covariance, observed)
