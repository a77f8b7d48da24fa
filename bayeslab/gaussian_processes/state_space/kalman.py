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
    added,
    added_matrix,
    applied,
    dot,
    filled,
    full,
    lower,
    outer,
    plus,
    product,
    sandwich,
    scaled,
    scaled_matrix,
    transposed,
)

BLOCK = 4096
"""The largest number of steps whose matrices are made together: those of one block stay in the cache."""


class Motion(NamedTuple):
    """The matrices of the chain at some steps.

    observed: H. start: P. matrix: A after every step, the last one included. noise: Q likewise.
    Entries are (), or (step,) but for those of P. P and Q are given up to the diagonal.
    """

    observed: Vector
    start: Matrix
    matrix: Matrix
    noise: Matrix


Move = Callable[[Any, Any], Motion]
"""(parameters, inputs of some steps) -> the matrices of these steps."""


class Seen(NamedTuple):
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


class Ahead(NamedTuple):
    """The information pair of the targets from a step on, about a shift d of the state there.

    Their density is proportional to exp(slope' d - d' curvature d / 2).
    """

    slope: Vector
    curvature: Matrix


class Met(NamedTuple):
    """A state after the update with its target, for the predicted mean m and covariance C.

    cross: C H. innovation: target - H'm. innovation_precision: k = 1 / (1 + H'C H). I_minus_gain: I - k C H H'.
    mean, covariance: of the state given the targets up to its step.
    """

    cross: Vector
    miss: Array
    certainty: Array
    keep: Matrix
    mean: Vector
    covariance: Matrix


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_density(move: Move, parameters: Any, inputs: Any, root: Array, target: Array) -> Array:
    """The log density of the targets, but for a constant of -log(2 pi) / 2 a step.

    transition_function: (parameters, inputs of some steps) -> StateTransition; compared by identity.
    inputs: a pytree of arrays (step,). root: w (step,). target: (step,).
    """
    return _filtered(move, parameters, _blocks(inputs, root, target))[0]


@log_density.defjvp
def _log_density_jvp(move: Move, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    parameters, *observed = primals
    observations = _blocks(*observed)
    value, predicted = _filtered(move, parameters, observations)
    gradient = _slopes(move, parameters, observations, predicted, len(observed[-1]))
    changes = jax.tree.map(lambda slope, change: None if slope is None else change, gradient, tangents, is_leaf=_absent)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(changes), strict=True)
    return value, reduce(jnp.add, ((slope * change).real.sum().astype(value.dtype) for slope, change in pairs))


def _blocks(inputs: Any, root: Array, target: Array) -> Seen:
    """The arrays as (block, step); the steps that fill the last block have a root and a target of 0."""
    number = -(-len(target) // BLOCK)
    size = -(-len(target) // number)
    padding = number * size - len(target)

    def block(array: Array, mode: str) -> Array:
        return jnp.pad(array, (0, padding), mode).reshape(number, size)

    blocked_inputs = jax.tree.map(lambda array: block(array, "edge"), inputs)
    return Seen(blocked_inputs, block(root, "constant"), block(target, "constant"))


def _moved(move: Move, parameters: Any, seen: Seen) -> Motion:
    """The matrices of a block of steps, with w H in place of H."""
    transition = jax.tree.map(partial(_spread, seen.target), move(parameters, seen.inputs)._replace(start=()))
    return transition._replace(observed=scaled(transition.observed, seen.root))


def _spread(like: Array, entry: Entry) -> Array:
    """The entry with the shape and type of an array."""
    return jnp.broadcast_to(jnp.asarray(entry, like.dtype), like.shape)


def _start(move: Move, parameters: Any, seen: Seen) -> Matrix:
    """The initial covariance P, up to the diagonal."""
    first_input = jax.tree.map(lambda array: array[0, :1], seen.inputs)
    return jax.tree.map(lambda entry: jnp.asarray(entry, seen.target.dtype), move(parameters, first_input).start)


def _filtered(move: Move, parameters: Any, seen: Seen) -> tuple[Array, Predicted]:
    """The log density of the targets, and every predicted state (block, step), by the Kalman filter."""
    start = _start(move, parameters, seen)
    (mean,) = filled(((None,) * len(start),), (), seen.target.dtype)
    first = Predicted(mean, filled(start, (), seen.target.dtype))

    def block(state: Predicted, seen: Seen) -> tuple[Predicted, tuple[Array, Predicted]]:
        transition = _apart(_moved(move, parameters, seen))
        last, predicted = lax.scan(_filter_step, state, (seen.target, transition))
        updated = _met(predicted, seen.target, transition.observed)
        return last, ((jnp.log(updated.certainty) - updated.miss**2 * updated.certainty).sum() / 2, predicted)

    values, predicted = lax.scan(block, first, seen)[1]
    return values.sum(), predicted


def _filter_step(state: Predicted, seen: tuple[Array, Motion]) -> tuple[Predicted, Predicted]:
    target, transition = seen
    updated = _met(state, target, transition.observed)
    covariance = added_matrix(sandwich(transition.matrix, updated.covariance), transition.noise)
    return Predicted(applied(transition.matrix, updated.mean), covariance), state


def _slopes(
    move: Move, parameters: Any, seen: Seen, predicted: Predicted, length: int
) -> tuple[Any, Any, Array, Array]:
    """The derivatives of the log density by the parameters, inputs, root and target, by the backward recursion."""
    numbers = jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, parameters)

    def with_integers(numbers: Any) -> Any:
        return jax.tree.map(
            lambda number, leaf: leaf if number is None else number, numbers, parameters, is_leaf=_absent
        )

    start, by_start = jax.vjp(lambda numbers: _start(move, with_integers(numbers), seen), numbers)

    def block(carry: tuple[Ahead, Any], steps: tuple[Seen, Predicted]) -> tuple[tuple[Ahead, Any], Seen]:
        (information, total), (seen, predicted) = carry, steps

        def block_transition(numbers: Any, inputs: Any, root: Array) -> Motion:
            return _moved(move, with_integers(numbers), Seen(inputs, root, seen.target))

        transition, pull_back = jax.vjp(block_transition, numbers, seen.inputs, seen.root)
        information, (by_target, by_entries) = lax.scan(
            _slope_step, information, _apart((seen.target, transition, predicted)), reverse=True
        )
        by_numbers, by_inputs, by_root = pull_back(_apart(by_entries))
        return (information, jax.tree.map(jnp.add, total, by_numbers)), Seen(by_inputs, by_root, by_target)

    size = len(start)
    nothing = tuple((None,) * count for count in (size, *range(1, size + 1)))
    slope, *curvature = filled(nothing, (), seen.target.dtype)
    carry = (Ahead(slope, tuple(curvature)), jax.tree.map(jnp.zeros_like, numbers))
    (earliest, total), by_seen = lax.scan(block, carry, (seen, predicted), reverse=True)
    (by_initial,) = by_start(_where_given(start, _doubled(_by_covariance(earliest))))
    by_inputs, by_root, by_target = jax.tree.map(lambda array: array.reshape(-1)[:length], by_seen)
    return jax.tree.map(jnp.add, total, by_initial), by_inputs, by_root, by_target


def _slope_step(ahead: Ahead, seen: tuple[Array, Motion, Predicted]) -> tuple[Ahead, tuple[Array, Motion]]:
    target, transition, state = seen
    updated = _met(state, target, transition.observed)
    filtered = _before(transition.matrix, ahead)
    slope, curvature = _before(updated.keep, filtered)
    scaled_observed = scaled(transition.observed, updated.certainty)
    observed_curvature = lower(outer(scaled_observed, transition.observed))
    earlier = Ahead(added(slope, scaled(scaled_observed, updated.miss)), added_matrix(curvature, observed_curvature))
    return earlier, _step_slopes(state, updated, transition, ahead, filtered)


def _step_slopes(state: Predicted, met: Met, move: Motion, ahead: Ahead, moved: Ahead) -> tuple[Array, Motion]:
    """The derivatives of the log density by the target and the matrices of one step.

    state: the predicted one. updated: the same state given its target.
    later: the information pair about the state after the step. filtered: the one about the updated state.
    """
    precision, scaled_innovation = met.certainty, met.certainty * met.miss
    by_noise, by_filtered = _by_covariance(ahead), _by_covariance(moved)
    spread = product(by_noise, product(move.matrix, full(met.covariance)))
    by_matrix = added_matrix(outer(ahead.slope, met.mean), scaled_matrix(spread, 2.0))
    along_curvature = applied(by_filtered, met.cross)
    along_slope = dot(moved.slope, met.cross)
    by_innovation = precision * along_slope - scaled_innovation
    by_size = (
        (met.miss * scaled_innovation - 1) / 2
        - along_slope * scaled_innovation
        + precision * dot(along_curvature, met.cross)
    ) * precision
    by_cross = added(scaled(moved.slope, scaled_innovation), scaled(along_curvature, -2 * precision))
    by_observed = added(scaled(met.cross, 2 * by_size), scaled(state.mean, -by_innovation))
    by_observed = added(by_observed, applied(full(state.covariance), by_cross))
    return by_innovation, _where_given(move, Motion(by_observed, (), by_matrix, _doubled(by_noise)))


def _met(state: Predicted, target: Array, observed: Vector) -> Met:
    """The state given its target.

    Where one entry of a state is observed, its entry of I - k C H H' is a quotient, not a difference.
    """
    covariance, indices = full(state.covariance), range(len(observed))
    observed_indices = [index for index in indices if observed[index] is not None]
    cross = applied(covariance, observed)
    innovation, innovation_precision = target - dot(observed, state.mean), 1 / (1 + dot(observed, cross))
    gain = scaled(cross, innovation_precision)

    def entry(row: int, column: int) -> Entry:
        if observed_indices == [row] == [column]:
            return innovation_precision
        identity = 1.0 if row == column else None
        return plus(identity, -gain[row] * observed[column]) if column in observed_indices else identity

    I_minus_gain = tuple(tuple(entry(row, column) for column in indices) for row in indices)
    products = product(I_minus_gain, covariance)
    filtered = tuple(
        tuple(products[row][column] if row in observed_indices else products[column][row] for column in range(row + 1))
        for row in indices
    )
    return Met(
        cross, innovation, innovation_precision, I_minus_gain, added(state.mean, scaled(gain, innovation)), filtered
    )


def _before(matrix: Matrix, ahead: Ahead) -> Ahead:
    """The information pair about a state, from that about its image under a linear map."""
    transpose = transposed(matrix)
    return Ahead(applied(transpose, ahead.slope), sandwich(transpose, ahead.curvature))


def _by_covariance(ahead: Ahead) -> Matrix:
    """The derivative of the log density by the covariance of the shift, with all entries."""
    squares, curvature = outer(ahead.slope, ahead.slope), full(ahead.curvature)
    return scaled_matrix(added_matrix(squares, scaled_matrix(curvature, -1.0)), 0.5)


def _doubled(matrix: Matrix) -> Matrix:
    """The derivative by the entries up to the diagonal: each one below the diagonal stands for two."""
    return tuple((*scaled(row[:index], 2.0), row[index]) for index, row in enumerate(matrix))


def _where_given(motion: Any, slopes: Any) -> Any:
    """The derivatives without those by entries of the matrices that are None."""
    return jax.tree.map(lambda entry, slope: None if entry is None else slope, motion, slopes, is_leaf=_absent)


def _absent(entry: Any) -> bool:
    """Whether an entry is 0, which is written as None."""
    return entry is None


def _apart(arrays: Any) -> Any:
    """The arrays as they are, computed once: XLA would fuse what makes an array into each of its uses."""
    return lax.optimization_barrier(arrays)
