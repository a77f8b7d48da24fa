"""The values of a Gaussian process as a distribution, closed under information pairs about the single values."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.transforms import LowerCholeskyAffine
from numpyro.distributions.util import validate_sample

from bayeslab.gaussian_processes.dense import Dense, DenseProcess
from bayeslab.gaussian_processes.moments import Moments

MAX_ROWS_DENSE = 10_000
"""The most rows for which a covariance matrix is made: it alone takes a gigabyte at 11,585."""
MAX_ROWS_DENSE_BY_DEFAULT = 1_000
"""The most rows for which the covariance matrix is used although the kernel has a state space."""


class RealVector(constraints.Constraint):
    """All vectors; unconstrained coordinates are those in which a process with a given mean is standard Normal."""

    event_dim = 1

    def __init__(self, mean: Array, process: DenseProcess):
        self.mean, self.process = mean, process

    def __call__(self, x: Any) -> Any:
        return jnp.isfinite(x).all(-1)

    def feasible_like(self, prototype: Any) -> Any:
        return jnp.broadcast_to(self.mean, jnp.shape(prototype))

    def tree_flatten(self) -> Any:
        return (self.mean, self.process), (("mean", "process"), {})


@biject_to.register(RealVector)
def _whitening(constraint: RealVector) -> LowerCholeskyAffine:
    return LowerCholeskyAffine(constraint.mean, constraint.process.root())


class GaussianProcess(Distribution):
    """f ``(row,)``, the values at inputs x of a Gaussian process: f ~ N(mean, kernel(x, x)).

    kernel: of `bayeslab.kernels` or any other of tinygp. x: ``(row,)`` or ``(row, input)``. mean: ``(*batch, row)`` or
    a number, of processes with one covariance. solver: how to compute with it; None is `Dense()` and, beyond 1,000
    rows, `StateSpace()` where the kernel has one; both are exact.
    Where the covariance matrix is singular, the smallest jitter that works is added to its diagonal, relative to the
    mean of the diagonal: 0, 1e-15, 1e-14, ... . Samplers see whitened values, in which the prior is standard Normal.
    Raises ValueError where shapes do not fit, and where rows are too many for a kernel without a state space.
    """

    arg_constraints = {"mean": constraints.real_vector, "x": constraints.real}
    pytree_data_fields = ("kernel", "x", "mean_values")
    pytree_aux_fields = ("solver",)

    def __init__(
        self,
        kernel: Any,
        x: ArrayLike,
        mean: ArrayLike = 0.0,
        solver: Any = None,
        *,
        validate_args: bool | None = None,
    ):
        inputs, centre = jnp.asarray(x, float), jnp.asarray(mean, float)
        if inputs.ndim not in (1, 2) or not inputs.size:
            raise ValueError(f"x has shape {inputs.shape}; expected (row,) or (row, input), none of them empty")
        rows = len(inputs)
        if centre.ndim and centre.shape[-1] != rows:
            raise ValueError(
                f"mean has shape {centre.shape}; expected a number or (*batch, {rows}), as x has {rows} rows"
            )
        self.kernel, self.x, self.solver = kernel, inputs, solver
        self.mean_values = jnp.broadcast_to(centre, (*centre.shape[:-1], rows))
        super().__init__(self.mean_values.shape[:-1], (rows,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Any:
        dense = isinstance(solver_of(self.kernel, self.x, self.solver), Dense)
        return RealVector(self.mean_values, self.process) if dense else constraints.real_vector

    @property
    def process(self) -> Any:
        """The representation that the solver makes: the process without its mean."""
        solver = solver_of(self.kernel, self.x, self.solver)
        if solver is None:
            raise ValueError(
                f"{len(self.x)} rows are too many for a covariance matrix, and this process has no state space; "
                "give it a solver that approximates it, HilbertSpace or inducing_points"
            )
        return solver.represent(self.kernel, self.x)

    @property
    def mean(self) -> Array:
        return self.mean_values

    @property
    def variance(self) -> Array:
        nothing = jnp.zeros(self.event_shape)
        return jnp.broadcast_to(self.process.moments(nothing, nothing).variance, self.shape())

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.mean_values + self.process.draw(key, (*sample_shape, *self.batch_shape))

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        solver = solver_of(self.kernel, self.x, self.solver) or Dense()  # programs are traced at any size to be bound
        process = solver.represent(self.kernel, self.x)
        return _map_over_batch(process.log_density)(jnp.asarray(value) - self.mean_values)

    def condition(self, precision: ArrayLike, linear: ArrayLike) -> "ConditionedProcess":
        """The process given information pairs: p(f) exp(sum_i linear_i f_i - precision_i f_i^2 / 2), normalised.

        precision, linear: ``(*batch, row)``, not negative; both 0 where nothing is observed. Of y ~ N(f, s) they are
        1 / s^2 and y / s^2.
        """
        return ConditionedProcess(self, precision, linear)

    def log_marginal(self, precision: ArrayLike, linear: ArrayLike) -> Array:
        """The log of the integral over f of p(f) exp(-sum_i precision_i (f_i - linear_i / precision_i)^2 / 2).

        ``(*batch,)``; of y ~ N(f, s) it is log p(y) + sum_i log(2 pi s_i^2) / 2.
        """
        all_precision, all_linear, mean = jnp.broadcast_arrays(precision, linear, self.mean_values)
        return _map_over_batch(self.process.log_mass)(all_precision, all_linear - all_precision * mean)


class ConditionedProcess(Distribution):
    """A process given information pairs about its single values: what `GaussianProcess.condition` returns."""

    arg_constraints: dict[str, constraints.Constraint] = {}
    pytree_data_fields = ("prior", "precision", "linear")
    support = constraints.real_vector

    def __init__(self, prior: GaussianProcess, precision: ArrayLike, linear: ArrayLike):
        all_precision, all_linear, _ = jnp.broadcast_arrays(precision, linear, prior.mean_values)
        self.prior, self.precision = prior, all_precision
        self.linear = jnp.where(all_precision > 0, all_linear, 0.0)  # a value without precision is not observed
        super().__init__(all_precision.shape[:-1], all_precision.shape[-1:], validate_args=False)

    @property
    def mean(self) -> Array:
        return (
            self.prior.mean_values
            + _map_over_batch(self.prior.process.moments)(self.precision, self._centred_linear).mean
        )

    @property
    def variance(self) -> Array:
        return _map_over_batch(self.prior.process.moments)(self.precision, self._centred_linear).variance

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        process, batch = self.prior.process, self.batch_shape
        keys, *pairs = (
            array.reshape(-1, *array.shape[len(batch) :])
            for array in (jax.random.split(key, batch), self.precision, self._centred_linear)
        )
        centred = jax.lax.map(lambda arguments: process.given(*arguments, sample_shape), (keys, *pairs))
        centred = jnp.moveaxis(centred, 0, -2).reshape(*sample_shape, *self.shape())
        return self.prior.mean_values + centred

    def log_prob(self, value: ArrayLike) -> Array:
        f, known = jnp.asarray(value), self.precision > 0
        peak = self.linear / jnp.where(known, self.precision, 1.0)
        log_likelihood = -(self.precision * (f - peak) ** 2).sum(-1) / 2
        return self.prior.log_prob(f) + log_likelihood - self.prior.log_marginal(self.precision, self.linear)

    def moments_at(self, new: Array, mean: ArrayLike = 0.0) -> Moments:
        """The mean and variance at new inputs, each ``(*batch, new)``. mean: of the prior there."""
        process = self.prior.process
        centred = _map_over_batch(lambda j, h: process.moments_at(j, h, new))(self.precision, self._centred_linear)
        return Moments(mean + centred.mean, centred.variance)

    def moments_of(self, part: Any, new: Array) -> Moments:
        """The moments at new inputs of one part of a dense process, without the prior mean.

        part: a term of its kernel, the covariance of that part.
        """
        process = self.prior.process
        return _map_over_batch(lambda j, h: process.moments_of(part, j, h, new))(self.precision, self._centred_linear)

    def covariance_at(self, new: Array) -> Array:
        """The covariance at new inputs, ``(*batch, new, new)``."""
        process = self.prior.process
        return _map_over_batch(lambda j, h: process.covariance_at(j, h, new))(self.precision, self._centred_linear)

    def slope_at(self, new: Array) -> Array:
        """The derivative of the mean by new inputs, ``(*batch, new, input)``, without that of the prior mean."""
        process, inputs = self.prior.process, new.reshape(len(new), -1)

        def mean(point: Array, j: Array, h: Array) -> Array:
            return process.moments_at(j, h, point.reshape(1, *new.shape[1:])).mean[0]

        slopes = jax.vmap(jax.grad(mean), (0, None, None))
        return _map_over_batch(lambda j, h: slopes(inputs, j, h))(self.precision, self._centred_linear)

    def sample_at(self, key: Array, new: Array, mean: ArrayLike = 0.0) -> Array:
        """A joint draw at new inputs, for a process without a batch, ``(new,)``. mean: of the prior there."""
        return mean + self.prior.process.draws_at(key, self.precision, self._centred_linear, new)

    @property
    def _centred_linear(self) -> Array:
        """The linear parts of the information pairs about the process without its mean."""
        return self.linear - self.precision * self.prior.mean_values


def solver_of(kernel: Any, x: Array, solver: Any) -> Any:
    """The solver that runs: the one given, or an exact one that fits into memory; None where there is no such one."""
    if solver is not None or len(x) <= MAX_ROWS_DENSE_BY_DEFAULT:
        return solver or Dense()
    from bayeslab.gaussian_processes.state_space.solver import StateSpace, state_space_kernel

    if x.size == len(x) and state_space_kernel(kernel) is not None:
        return StateSpace()
    return Dense() if len(x) <= MAX_ROWS_DENSE else None


def _map_over_batch(function: Any) -> Any:
    """The function mapped over all axes of its arguments but the last."""

    def over(*arrays: Array) -> Any:
        axes = arrays[0].ndim - 1
        mapped = function
        for _ in range(axes):
            mapped = jax.vmap(mapped)
        return mapped(*arrays)

    return over
