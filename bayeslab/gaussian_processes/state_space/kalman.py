"""The Kalman filter for a chain of states in R^d of which one number a step is observed, with its gradient.

    z_1 ~ N(0, P),  z_{t+1} ~ N(A_t z_t, Q_t),  target_t ~ N(w_t H_t' z_t, 1)

The gradient is one more loop, the backward recursion of the disturbance smoother: it carries the slope r and the
curvature N of the log density of the targets from a step on, as a function of a shift of the state predicted there
(de Jong 1989, doi:10.1093/biomet/76.1.101). No matrix is inverted, so P and Q may be singular, and w may be 0. Matrices
are made for a block of steps at a time, which stays in the cache.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.gaussian_processes.state_space.small_matrices import (
    Entry,
    Matrix,
    Vector,
    add_entries,
    added,
    added_matrix,
    broadcast_entries,
    dot,
    full,
    lower,
    matmul,
    matvec,
    outer,
    sandwich,
    scaled,
    scaled_matrix,
    transposed,
)

MAX_STEPS_PER_BLOCK = 4096
"""The largest number of steps whose matrices are made together: those of one block stay in the cache."""


class StateTransition(NamedTuple):
    """The matrices of the chain at some steps.

    observed: H. start: P. matrix: A after every step, the last one included. noise: Q likewise.
    Entries are (), or (step,) but for those of P. P and Q are given up to the diagonal.
    """

    observed: Vector
    start: Matrix
    matrix: Matrix
    noise: Matrix


TransitionFunction = Callable[[Any, Any], StateTransition]
"""(parameters, inputs of some steps) -> the matrices of these steps."""


class Observations(NamedTuple):
    """What is known of every step.

    inputs: what the transition function takes. root: w, by which the target is scaled. target: the observed number.
    """

    inputs: Any
    root: Array
    target: Array


class Predicted(NamedTuple):
    """The mean and covariance of a state given the targets before its step."""

    mean: Vector
    covariance: Matrix


class BackwardInformation(NamedTuple):
    """The information pair of the targets from a step on, about a shift d of the state there.

    Their density is proportional to exp(slope' d - d' curvature d / 2).
    """

    slope: Vector
    curvature: Matrix


class Updated(NamedTuple):
    """A state after the update with its target, for the predicted mean m and covariance C.

    cross: C H. innovation: target - H'm. innovation_precision: k = 1 / (1 + H'C H). I_minus_gain: I - k C H H'.
    mean, covariance: of the state given the targets up to its step.
    """

    cross: Vector
    innovation: Array
    innovation_precision: Array
    I_minus_gain: Matrix
    mean: Vector
    covariance: Matrix


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_density(
    transition_function: TransitionFunction, parameters: Any, inputs: Any, root: Array, target: Array
) -> Array:
    """The log density of the targets, but for a constant of -log(2 pi) / 2 a step.

    transition_function: (parameters, inputs of some steps) -> StateTransition; compared by identity.
    inputs: a pytree of arrays (step,). root: w (step,). target: (step,).
    """
    return _filter(transition_function, parameters, _into_blocks(inputs, root, target))[0]


@log_density.defjvp
def _log_density_jvp(transition_function: TransitionFunction, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    parameters, *observed = primals
    observations = _into_blocks(*observed)
    value, predicted = _filter(transition_function, parameters, observations)
    gradient = _gradient(transition_function, parameters, observations, predicted, len(observed[-1]))
    changes = jax.tree.map(
        lambda slope, change: None if slope is None else change, gradient, tangents, is_leaf=_is_absent
    )
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(changes), strict=True)
    return value, reduce(jnp.add, ((slope * change).real.sum().astype(value.dtype) for slope, change in pairs))


def _into_blocks(inputs: Any, root: Array, target: Array) -> Observations:
    """The arrays as (block, step); the steps that fill the last block have a root and a target of 0."""
    number = -(-len(target) // MAX_STEPS_PER_BLOCK)
    size = -(-len(target) // number)
    padding = number * size - len(target)

    def block(array: Array, mode: str) -> Array:
        return jnp.pad(array, (0, padding), mode).reshape(number, size)

    blocked_inputs = jax.tree.map(lambda array: block(array, "edge"), inputs)
    return Observations(blocked_inputs, block(root, "constant"), block(target, "constant"))


def _block_transition(
    transition_function: TransitionFunction, parameters: Any, observations: Observations
) -> StateTransition:
    """The matrices of a block of steps, with w H in place of H."""
    transition = jax.tree.map(
        partial(_broadcast, observations.target),
        transition_function(parameters, observations.inputs)._replace(start=()),
    )
    return transition._replace(observed=scaled(transition.observed, observations.root))


def _broadcast(like: Array, entry: Entry) -> Array:
    """The entry with the shape and type of an array."""
    return jnp.broadcast_to(jnp.asarray(entry, like.dtype), like.shape)


def _initial_covariance(transition_function: TransitionFunction, parameters: Any, observations: Observations) -> Matrix:
    """The initial covariance P, up to the diagonal."""
    first_input = jax.tree.map(lambda array: array[0, :1], observations.inputs)
    return jax.tree.map(
        lambda entry: jnp.asarray(entry, observations.target.dtype), transition_function(parameters, first_input).start
    )


def _filter(transition_function: TransitionFunction, parameters: Any, seen: Observations) -> tuple[Array, Predicted]:
    """The log density of the targets, and every predicted state (block, step), by the Kalman filter."""
    start = _initial_covariance(transition_function, parameters, seen)
    (mean,) = broadcast_entries(((None,) * len(start),), (), seen.target.dtype)
    first = Predicted(mean, broadcast_entries(start, (), seen.target.dtype))

    def block(state: Predicted, seen: Observations) -> tuple[Predicted, tuple[Array, Predicted]]:
        transition = _compute_once(_block_transition(transition_function, parameters, seen))
        last, predicted = lax.scan(_filter_step, state, (seen.target, transition))
        updated = _update(predicted, seen.target, transition.observed)
        return last, (
            (jnp.log(updated.innovation_precision) - updated.innovation**2 * updated.innovation_precision).sum() / 2,
            predicted,
        )

    values, predicted = lax.scan(block, first, seen)[1]
    return values.sum(), predicted


def _filter_step(state: Predicted, step: tuple[Array, StateTransition]) -> tuple[Predicted, Predicted]:
    target, transition = step
    updated = _update(state, target, transition.observed)
    covariance = added_matrix(sandwich(transition.matrix, updated.covariance), transition.noise)
    return Predicted(matvec(transition.matrix, updated.mean), covariance), state


def _gradient(
    transition_function: TransitionFunction, parameters: Any, seen: Observations, predicted: Predicted, length: int
) -> tuple[Any, Any, Array, Array]:
    """The derivatives of the log density by the parameters, inputs, root and target, by the backward recursion."""
    numbers = jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, parameters)

    def with_integers(numbers: Any) -> Any:
        return jax.tree.map(
            lambda number, leaf: leaf if number is None else number, numbers, parameters, is_leaf=_is_absent
        )

    start, by_start = jax.vjp(
        lambda numbers: _initial_covariance(transition_function, with_integers(numbers), seen), numbers
    )

    def block(
        carry: tuple[BackwardInformation, Any], steps: tuple[Observations, Predicted]
    ) -> tuple[tuple[BackwardInformation, Any], Observations]:
        (information, total), (seen, predicted) = carry, steps

        def block_transition(numbers: Any, inputs: Any, root: Array) -> StateTransition:
            return _block_transition(
                transition_function, with_integers(numbers), Observations(inputs, root, seen.target)
            )

        transition, pull_back = jax.vjp(block_transition, numbers, seen.inputs, seen.root)
        information, (by_target, by_entries) = lax.scan(
            _backward_step, information, _compute_once((seen.target, transition, predicted)), reverse=True
        )
        by_numbers, by_inputs, by_root = pull_back(_compute_once(by_entries))
        return (information, jax.tree.map(jnp.add, total, by_numbers)), Observations(by_inputs, by_root, by_target)

    size = len(start)
    nothing = tuple((None,) * count for count in (size, *range(1, size + 1)))
    slope, *curvature = broadcast_entries(nothing, (), seen.target.dtype)
    carry = (BackwardInformation(slope, tuple(curvature)), jax.tree.map(jnp.zeros_like, numbers))
    (earliest, total), by_seen = lax.scan(block, carry, (seen, predicted), reverse=True)
    (by_initial,) = by_start(_where_present(start, _double_below_diagonal(_covariance_gradient(earliest))))
    by_inputs, by_root, by_target = jax.tree.map(lambda array: array.reshape(-1)[:length], by_seen)
    return jax.tree.map(jnp.add, total, by_initial), by_inputs, by_root, by_target


def _backward_step(
    later: BackwardInformation, step: tuple[Array, StateTransition, Predicted]
) -> tuple[BackwardInformation, tuple[Array, StateTransition]]:
    target, transition, state = step
    updated = _update(state, target, transition.observed)
    filtered = _pull_back(transition.matrix, later)
    slope, curvature = _pull_back(updated.I_minus_gain, filtered)
    scaled_observed = scaled(transition.observed, updated.innovation_precision)
    observed_curvature = lower(outer(scaled_observed, transition.observed))
    earlier = BackwardInformation(
        added(slope, scaled(scaled_observed, updated.innovation)), added_matrix(curvature, observed_curvature)
    )
    return earlier, _step_gradient(state, updated, transition, later, filtered)


def _step_gradient(
    state: Predicted,
    updated: Updated,
    transition: StateTransition,
    later: BackwardInformation,
    filtered: BackwardInformation,
) -> tuple[Array, StateTransition]:
    """The derivatives of the log density by the target and the matrices of one step.

    state: the predicted one. updated: the same state given its target.
    later: the information pair about the state after the step. filtered: the one about the updated state.
    """
    precision, scaled_innovation = updated.innovation_precision, updated.innovation_precision * updated.innovation
    by_noise, by_filtered = _covariance_gradient(later), _covariance_gradient(filtered)
    spread = matmul(by_noise, matmul(transition.matrix, full(updated.covariance)))
    by_matrix = added_matrix(outer(later.slope, updated.mean), scaled_matrix(spread, 2.0))
    along_curvature = matvec(by_filtered, updated.cross)
    along_slope = dot(filtered.slope, updated.cross)
    by_innovation = precision * along_slope - scaled_innovation
    by_size = (
        (updated.innovation * scaled_innovation - 1) / 2
        - along_slope * scaled_innovation
        + precision * dot(along_curvature, updated.cross)
    ) * precision
    by_cross = added(scaled(filtered.slope, scaled_innovation), scaled(along_curvature, -2 * precision))
    by_observed = added(scaled(updated.cross, 2 * by_size), scaled(state.mean, -by_innovation))
    by_observed = added(by_observed, matvec(full(state.covariance), by_cross))
    return by_innovation, _where_present(
        transition, StateTransition(by_observed, (), by_matrix, _double_below_diagonal(by_noise))
    )


def _update(state: Predicted, target: Array, observed: Vector) -> Updated:
    """The state given its target.

    Where one entry of a state is observed, its entry of I - k C H H' is a quotient, not a difference.
    """
    covariance, indices = full(state.covariance), range(len(observed))
    observed_indices = [index for index in indices if observed[index] is not None]
    cross = matvec(covariance, observed)
    innovation, innovation_precision = target - dot(observed, state.mean), 1 / (1 + dot(observed, cross))
    gain = scaled(cross, innovation_precision)

    def entry(row: int, column: int) -> Entry:
        if observed_indices == [row] == [column]:
            return innovation_precision
        identity = 1.0 if row == column else None
        return add_entries(identity, -gain[row] * observed[column]) if column in observed_indices else identity

    I_minus_gain = tuple(tuple(entry(row, column) for column in indices) for row in indices)
    products = matmul(I_minus_gain, covariance)
    filtered = tuple(
        tuple(products[row][column] if row in observed_indices else products[column][row] for column in range(row + 1))
        for row in indices
    )
    return Updated(
        cross, innovation, innovation_precision, I_minus_gain, added(state.mean, scaled(gain, innovation)), filtered
    )


def _pull_back(matrix: Matrix, information: BackwardInformation) -> BackwardInformation:
    """The information pair about a state, from that about its image under a linear map."""
    transpose = transposed(matrix)
    return BackwardInformation(matvec(transpose, information.slope), sandwich(transpose, information.curvature))


def _covariance_gradient(information: BackwardInformation) -> Matrix:
    """The derivative of the log density by the covariance of the shift, with all entries."""
    squares, curvature = outer(information.slope, information.slope), full(information.curvature)
    return scaled_matrix(added_matrix(squares, scaled_matrix(curvature, -1.0)), 0.5)


def _double_below_diagonal(matrix: Matrix) -> Matrix:
    """The derivative by the entries up to the diagonal: each one below the diagonal stands for two."""
    return tuple((*scaled(row[:index], 2.0), row[index]) for index, row in enumerate(matrix))


def _where_present(entries: Any, derivatives: Any) -> Any:
    """The derivatives without those by entries of the matrices that are None."""
    return jax.tree.map(lambda entry, slope: None if entry is None else slope, entries, derivatives, is_leaf=_is_absent)


def _is_absent(entry: Any) -> bool:
    """Whether an entry is 0, which is written as None."""
    return entry is None


def _compute_once(arrays: Any) -> Any:
    """The arrays as they are, computed once: XLA would fuse what makes an array into each of its uses."""
    return lax.optimization_barrier(arrays)
