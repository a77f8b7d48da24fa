"""A path of a linear Gaussian chain, conjugate to quadratic log likelihoods of its states one by one.

Filter and smoother are those of `bayeslab.distributions.kalman`.
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import validate_sample

from bayeslab.distributions import kalman
from bayeslab.distributions.kalman import InformationPair, Moments, Transition


class LinearGaussianChain(Distribution):
    """A path of states in R^d: z_1 ~ N(initial_mean, initial_covariance), z_{t+1} | z_t ~ N(A z_t + offset, Q).

    initial_mean: ``(*batch, d)``. initial_covariance: ``(*batch, d, d)``.
    transition_matrix: A ``(*batch, d, d)``. transition_covariance: Q ``(*batch, d, d)``. offset: ``(*batch, d)``, or
        None for 0. If `time_varying`, these have an axis of steps after the batch, of size num_steps - 1, or 1 for what
        all steps share. The attributes always have that axis.
    num_steps: length of the path; needed unless `time_varying`, where the arrays tell.
    A density, hence a program, needs positive definite covariances. With validate_args=False they may be semidefinite,
    such as 0 for a part of the state that is known or constant, for all but `log_prob` and means of it. Raises
    ValueError if shapes do not fit.
    """

    arg_constraints = {
        "initial_mean": constraints.real_vector,
        "initial_covariance": constraints.positive_definite,
        "transition_matrix": constraints.independent(constraints.real, 3),
        "transition_covariance": constraints.independent(constraints.positive_definite, 1),
        "offset": constraints.independent(constraints.real, 2),
    }
    support = constraints.independent(constraints.real, 2)
    pytree_data_fields = tuple(arg_constraints)

    def __init__(
        self,
        initial_mean: ArrayLike,
        initial_covariance: ArrayLike,
        transition_matrix: ArrayLike,
        transition_covariance: ArrayLike,
        offset: ArrayLike | None = None,
        num_steps: int | None = None,
        *,
        time_varying: bool = False,
        validate_args: bool | None = None,
    ):
        mean, first = jnp.asarray(initial_mean), jnp.asarray(initial_covariance)
        matrix, noise = jnp.asarray(transition_matrix), jnp.asarray(transition_covariance)
        if not mean.ndim or not mean.shape[-1]:
            raise ValueError(f"initial_mean has shape {mean.shape}; expected (*batch, d) for states of d >= 1 numbers")
        size = mean.shape[-1]
        dtype = jnp.result_type(mean, first, matrix, noise, float if offset is None else jnp.asarray(offset), float)
        shift = jnp.zeros((1, size) if time_varying else size, dtype) if offset is None else jnp.asarray(offset)
        transitions = {"transition_matrix": matrix, "transition_covariance": noise, "offset": shift}
        batches = {
            "initial_mean": mean.shape[:-1],
            "initial_covariance": _leading_batch(first, "initial_covariance", size),
        }
        for name, array in transitions.items():
            batches[name] = _leading_batch(array, name, size, time_varying)
            transitions[name] = (array if time_varying else jnp.expand_dims(array, len(batches[name]))).astype(dtype)
        if not time_varying:
            _refuse_steps_as_batch(batches, num_steps)
        axes = {name: array.shape[len(batches[name])] for name, array in transitions.items()}
        steps = _num_steps(axes, num_steps, time_varying)
        common = steps - 1 if any(axis != 1 for axis in axes.values()) else 1
        self.initial_mean, self.initial_covariance = mean.astype(dtype), first.astype(dtype)
        for name, array in transitions.items():
            lead = len(batches[name])
            setattr(self, name, jnp.broadcast_to(array, (*array.shape[:lead], common, *array.shape[lead + 1 :])))
        super().__init__(_broadcast(batches), (steps, size), validate_args=validate_args)

    @property
    def num_steps(self) -> int:
        return self.event_shape[0]

    @property
    def mean(self) -> Array:
        return self.marginals().mean

    @property
    def variance(self) -> Array:
        return jnp.diagonal(self.marginals().covariance, axis1=-2, axis2=-1)

    @property
    def conditional_scale(self) -> Array:
        """The standard deviation of every number given all others."""
        start, steps = _whitening(self.initial_covariance)[0], _whitening(self.transition_covariance)[0]
        own_precision, next_precision = (steps**2).sum(-2), ((steps @ self.transition_matrix) ** 2).sum(-2)
        precision = jnp.zeros(self.shape(), own_precision.dtype).at[..., 0, :].add((start**2).sum(-2))
        return 1 / jnp.sqrt(precision.at[..., 1:, :].add(own_precision).at[..., :-1, :].add(next_precision))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (self.num_steps, *sample_shape, *self.batch_shape, self.event_shape[1])
        noise = jax.random.normal(key, shape, self.initial_mean.dtype)
        start, transitions = self._parts(self.batch_shape)
        first = start.mean + kalman.matvec(kalman.semidefinite_cholesky(start.covariance), noise[0])
        roots = jnp.expand_dims(
            kalman.semidefinite_cholesky(transitions.covariance), [1 + axis for axis in range(len(sample_shape))]
        )
        return jnp.moveaxis(kalman.path(first, transitions, kalman.matvec(roots, noise[1:])), 0, -2)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        path = jnp.asarray(value)
        if path.shape[-2:] != self.event_shape:
            expected = ", ".join(map(str, self.event_shape))
            raise ValueError(f"a path of shape {path.shape} does not fit; expected (..., {expected})")
        first = _log_normal(path[..., 0, :] - self.initial_mean, self.initial_covariance)
        step = path[..., 1:, :] - kalman.matvec(self.transition_matrix, path[..., :-1, :]) - self.offset
        return first + _log_normal(step, self.transition_covariance).sum(-1)

    def marginals(self) -> Moments:
        """Mean ``(*batch, num_steps, d)`` and covariance ``(*batch, num_steps, d, d)`` of the state at every step."""
        return _steps_last(kalman.moments(*self._parts(self.batch_shape), self.num_steps))

    def cross_covariances(self) -> Array:
        """The covariance of each state with the one before, Cov(z_{t+1}, z_t), ``(*batch, num_steps - 1, d, d)``."""
        return self.transition_matrix @ self.marginals().covariance[..., :-1, :, :]

    def paths(self, corners: ArrayLike) -> Array:
        """Paths ``(point, *batch, num_steps, d)`` with the means of z_t, z_t z_t' and z_{t+1} z_t' for every step.

        corners: ``(point, 2 d)``, whose means are 0 and whose mean products are the identity.
        """
        points = jnp.asarray(corners, self.initial_mean.dtype)
        deviations = kalman.deviations(*self._parts(self.batch_shape), self.num_steps, points)
        return self.mean + jnp.moveaxis(deviations, (0, -2), (-2, 0))

    def mode(self) -> Array:
        """The most probable path, which is the mean."""
        return self.mean

    def entropy(self) -> Array:
        """The entropy in nats, ``(*batch,)``."""
        return -self.expected_log_prob(self)

    def expected_log_prob(self, other: "LinearGaussianChain") -> Array:
        """The mean of `log_prob` over the paths of another chain, ``(*batch,)``."""
        mean, covariance = other.marginals()
        before, after = mean[..., :-1, :], mean[..., 1:, :]
        difference = other.transition_matrix - self.transition_matrix
        spread = difference @ covariance[..., :-1, :, :] @ difference.mT + other.transition_covariance
        step = after - kalman.matvec(self.transition_matrix, before) - self.offset
        first = _log_normal(mean[..., 0, :] - self.initial_mean, self.initial_covariance, covariance[..., 0, :, :])
        return first + _log_normal(step, self.transition_covariance, spread).sum(-1)

    def condition(self, precision: ArrayLike, linear: ArrayLike) -> "LinearGaussianChain":
        """The chain given observations, p(z) exp(sum_t h_t' z_t - z_t' J_t z_t / 2) normalised, which varies in time.

        precision: J ``(*batch, num_steps, d, d)``, symmetric and positive semidefinite; 0 where nothing is observed.
        linear: h ``(*batch, num_steps, d)``.
        An observation y_t ~ N(C z_t + D, R) has the information pair C' R^-1 C and C' R^-1 (y_t - D). The batch of
        both may extend the chain's.
        """
        start, transitions = kalman.conditioned(*self._arguments(precision, linear))
        matrix, offset, covariance = _steps_last(transitions)
        parameters = (matrix, covariance, offset)
        return LinearGaussianChain(start.mean, start.covariance, *parameters, time_varying=True, validate_args=False)

    def log_marginal(self, precision: ArrayLike, linear: ArrayLike) -> Array:
        """The log of the integral over paths of p(z) exp(sum_t h_t' z_t - z_t' J_t z_t / 2), ``(*batch,)``.

        precision, linear: as for `condition`.
        """
        return kalman.log_mass(*self._arguments(precision, linear))

    def predicted(self, precision: ArrayLike, linear: ArrayLike) -> Moments:
        """Moments of every state given the observations before its step. Arguments as for `condition`."""
        return _steps_last(kalman.filtered(*self._arguments(precision, linear)).predicted)

    def filtered(self, precision: ArrayLike, linear: ArrayLike) -> Moments:
        """Moments of every state given the observations up to its step. Arguments as for `condition`."""
        return _steps_last(kalman.filtered(*self._arguments(precision, linear)).filtered)

    def smoothed(self, precision: ArrayLike, linear: ArrayLike) -> Moments:
        """Moments of every state given all observations. Arguments as for `condition`."""
        return self.condition(precision, linear).marginals()

    def coefficients(self) -> dict[str, Array]:
        """The coefficients in which the log density is linear, but for a constant.

        `from_coefficients` of the mean of several chains' coefficients is the chain of their mean log density.
        """
        start, steps = _whitening(self.initial_covariance)[0], _whitening(self.transition_covariance)[0]
        steps = jnp.broadcast_to(steps, (*steps.shape[:-3], self.num_steps - 1, *steps.shape[-2:]))
        matrix, shift = steps @ self.transition_matrix, kalman.matvec(steps, self.offset)
        return {
            "initial_precision": start.mT @ start,
            "initial_linear": kalman.matvec(start.mT, kalman.matvec(start, self.initial_mean)),
            "precision": steps.mT @ steps,
            "matrix": steps.mT @ matrix,
            "offset": kalman.matvec(steps.mT, shift),
            "before_precision": matrix.mT @ matrix,
            "before_linear": -kalman.matvec(matrix.mT, shift),
        }

    @staticmethod
    def from_coefficients(coefficients: dict[str, Array]) -> "LinearGaussianChain":
        """The chain of `coefficients`; what no transition accounts for is information about the state before it."""
        start, steps = (
            _inverse_precision(coefficients["initial_precision"]),
            _inverse_precision(coefficients["precision"]),
        )
        matrix, offset = steps @ coefficients["matrix"], kalman.matvec(steps, coefficients["offset"])
        mean = kalman.matvec(start, coefficients["initial_linear"])
        chain = LinearGaussianChain(mean, start, matrix, steps, offset, time_varying=True, validate_args=False)
        precision = coefficients["before_precision"] - matrix.mT @ coefficients["matrix"]
        linear = coefficients["before_linear"] + kalman.matvec(matrix.mT, coefficients["offset"])
        batch, (size,) = (
            np.broadcast_shapes(chain.batch_shape, precision.shape[:-3], linear.shape[:-2]),
            mean.shape[-1:],
        )
        zeros = jnp.zeros((*batch, chain.num_steps, size), linear.dtype)
        zero_matrices = jnp.zeros((*zeros.shape, size), linear.dtype)
        return chain.condition(
            zero_matrices.at[..., :-1, :, :].set((precision + precision.mT) / 2), zeros.at[..., :-1, :].set(linear)
        )

    def _parts(self, batch: tuple[int, ...]) -> tuple[Moments, Transition]:
        """The first state and the transitions, with steps on the first axis."""
        size, axes = self.event_shape[1], len(batch)
        mean = jnp.broadcast_to(self.initial_mean, (*batch, size))
        covariance = jnp.broadcast_to(self.initial_covariance, (*batch, size, size))
        matrix, offset, noise = self.transition_matrix, self.offset, self.transition_covariance
        transitions = Transition(
            _steps_first(matrix, 3, axes), _steps_first(offset, 2, axes), _steps_first(noise, 3, axes)
        )
        return Moments(mean, covariance), transitions

    def _arguments(self, precision: ArrayLike, linear: ArrayLike) -> tuple[Moments, Transition, InformationPair]:
        """The arguments of the recursions in one type, for one batch; raises ValueError if shapes do not fit."""
        precisions, linears = jnp.asarray(precision), jnp.asarray(linear)
        size = self.event_shape[1]
        for name, array, event in (
            ("precision", precisions, (*self.event_shape, size)),
            ("linear", linears, self.event_shape),
        ):
            if array.shape[-len(event) :] != event:
                expected = ", ".join(map(str, (*self.batch_shape, *event)))
                raise ValueError(f"{name} has shape {array.shape}; expected ({expected})")
        batches = {"the chain": self.batch_shape, "precision": precisions.shape[:-3], "linear": linears.shape[:-2]}
        batch = _broadcast(batches)
        dtype = jnp.result_type(self.initial_mean, precisions, linears)
        start, transitions = jax.tree.map(lambda leaf: leaf.astype(dtype), self._parts(batch))
        precisions = jnp.broadcast_to(precisions, (*batch, *self.event_shape, size)).astype(dtype)
        linears = jnp.broadcast_to(linears, (*batch, *self.event_shape)).astype(dtype)
        return start, transitions, InformationPair(jnp.moveaxis(precisions, -3, 0), jnp.moveaxis(linears, -2, 0))


@kl_divergence.register(LinearGaussianChain, LinearGaussianChain)
def _kl_divergence(p: LinearGaussianChain, q: LinearGaussianChain) -> Array:
    return p.expected_log_prob(p) - q.expected_log_prob(p)


def _leading_batch(array: Array, name: str, size: int, time_varying: bool = False) -> tuple[int, ...]:
    """The batch of an argument, from its shape; raises ValueError if it does not fit."""
    event = (size,) if name == "offset" else (size, size)
    lead = array.ndim - len(event) - time_varying
    if lead < 0 or array.shape[lead + time_varying :] != event:
        expected = ", ".join(["*batch", *["num_steps - 1"] * time_varying, *map(str, event)])
        raise ValueError(f"{name} has shape {array.shape}; expected ({expected}), since initial_mean ends in {size}")
    return array.shape[:lead]


def _refuse_steps_as_batch(batches: dict[str, tuple[int, ...]], num_steps: int | None) -> None:
    """Raises ValueError where the one argument with a batch is of transitions, and has as many as there are."""
    name, *others = [name for name, batch in batches.items() if batch] or [""]
    if num_steps and num_steps > 2 and not (others or "initial" in name) and batches.get(name) == (num_steps - 1,):
        raise ValueError(
            f"{name} has an axis of {num_steps - 1}, one for each transition of {num_steps} steps: pass time_varying="
            f"True; for a batch of {num_steps - 1} chains, give initial_mean that axis too"
        )


def _num_steps(axes: dict[str, int], num_steps: int | None, time_varying: bool) -> int:
    """The length of the path, from the axes of steps; raises ValueError if they do not fit."""
    if num_steps is not None and operator.index(num_steps) < 1:
        raise ValueError(f"num_steps is {num_steps}; expected at least 1")
    varying = {name: axis for name, axis in axes.items() if axis != 1}
    lengths = {axis + 1 for axis in varying.values()}
    if len(lengths) > 1 or (varying and num_steps is not None and {num_steps} != lengths):
        as_given = "" if num_steps is None else f", and num_steps is {num_steps}"
        listed = " and ".join(f"{name} has transitions for {axis + 1} steps" for name, axis in varying.items())
        raise ValueError(f"{listed}{as_given}; expected one length")
    if num_steps is None and not time_varying:
        raise ValueError("num_steps is missing; give it, or time_varying=True if transitions differ between steps")
    return operator.index(num_steps) if num_steps is not None else lengths.pop() if lengths else 2


def _broadcast(batches: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The batch shape that those of named arguments broadcast to; raises ValueError if there is none."""
    try:
        return np.broadcast_shapes(*batches.values())
    except ValueError:
        listed = ", ".join(f"{name} {batch}" for name, batch in batches.items())
        raise ValueError(f"batch shapes do not broadcast: {listed}") from None


def _steps_first(array: Array, event: int, axes: int) -> Array:
    """An array (*batch, step, ...), of `event` axes from steps on, as (step, *batch, ...) with `axes` of a batch."""
    array = jnp.moveaxis(array, -event, 0)
    return array.reshape(array.shape[0], *(1,) * (axes + event - array.ndim), *array.shape[1:])


def _steps_last(record: Any) -> Any:
    """A record of vectors and matrices (step, *batch, ...) as one of (*batch, step, ...)."""
    return type(record)(
        *(
            jnp.moveaxis(leaf, 0, -2 if name in ("mean", "offset") else -3)
            for name, leaf in zip(record._fields, record, strict=True)
        )
    )


def _whitening(covariance: Array) -> tuple[Array, Array]:
    """W with W' W the inverse of a covariance, and half the log of its determinant."""
    if covariance.shape[-1] == 1:
        return 1 / jnp.sqrt(covariance), jnp.log(covariance[..., 0, 0]) / 2
    factor = jnp.linalg.cholesky(covariance)
    identity = jnp.broadcast_to(jnp.eye(covariance.shape[-1], dtype=covariance.dtype), covariance.shape)
    logs = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return solve_triangular(factor, identity, lower=True), logs


def _log_normal(distance: Array, covariance: Array, spread: Array | None = None) -> Array:
    """The log density of N(0, covariance) at a distance, or its mean over distances with a covariance `spread`."""
    whitening, logs = _whitening(covariance)
    squares = (kalman.matvec(whitening, distance) ** 2).sum(-1)
    if spread is not None:
        squares += ((whitening @ spread) * whitening).sum((-2, -1))
    return -squares / 2 - logs - distance.shape[-1] * np.log(2 * np.pi) / 2


def _inverse_precision(precision: Array) -> Array:
    """The covariance that belongs to a precision."""
    whitening, _ = _whitening(precision)
    return whitening.mT @ whitening
