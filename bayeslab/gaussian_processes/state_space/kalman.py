"""The Kalman filter for a chain of states in R^d of which one number a step is seen, with its gradient.

    z_1 ~ N(0, P),  z_{t+1} ~ N(A_t z_t, Q_t),  target_t ~ N(w_t H_t' z_t, 1)

The gradient is one more loop, backwards, for the slope r and the curvature N of the log density of what is seen from a
step on, as a function of a shift of the state predicted there (de Jong 1989, doi:10.1093/biomet/76.1.101). No matrix is
inverted, so P and Q may be singular, and w may be 0. Matrices are made for a block of steps at a time, which stays in
the cache.
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
"""Steps at a time, at most."""


class Motion(NamedTuple):
    """observed: H. start: P. matrix: A after every step, the last one included. noise: Q likewise.

    Entries are (), or (step,) but for those of P. P and Q are given up to the diagonal.
    """

    observed: Vector
    start: Matrix
    matrix: Matrix
    noise: Matrix


Move = Callable[[Any, Any], Motion]


class Seen(NamedTuple):
    """What is given of every step, and how the target is seen."""

    inputs: Any
    root: Array
    target: Array


class Predicted(NamedTuple):
    """A state given what was seen before its step."""

    mean: Vector
    covariance: Matrix


class Ahead(NamedTuple):
    """exp(slope' d - d' curvature d / 2), of a shift d of a state."""

    slope: Vector
    curvature: Matrix


class Met(NamedTuple):
    """A state and its target. cross: C H. miss: target - H'm. certainty: k = 1 / (1 + H'C H). keep: I - k C H H'."""

    cross: Vector
    miss: Array
    certainty: Array
    keep: Matrix
    mean: Vector
    covariance: Matrix


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_density(move: Move, parameters: Any, inputs: Any, root: Array, target: Array) -> Array:
    """The log density of the targets, but for a constant of -log(2 pi) / 2 a step.

    move: (parameters, inputs of some steps) -> Motion; compared by identity. inputs: a pytree of arrays (step,).
    root: w (step,). target: (step,).
    """
    return _filtered(move, parameters, _blocks(inputs, root, target))[0]


@log_density.defjvp
def _log_density_jvp(move: Move, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    parameters, *given = primals
    seen = _blocks(*given)
    value, predicted = _filtered(move, parameters, seen)
    slopes = _slopes(move, parameters, seen, predicted, len(given[-1]))
    changes = jax.tree.map(lambda slope, change: None if slope is None else change, slopes, tangents, is_leaf=_absent)
    pairs = zip(jax.tree.leaves(slopes), jax.tree.leaves(changes), strict=True)
    return value, reduce(jnp.add, ((slope * change).real.sum().astype(value.dtype) for slope, change in pairs))


def _blocks(inputs: Any, root: Array, target: Array) -> Seen:
    """Arrays (block, step); nothing is seen after the last step."""
    number = -(-len(target) // BLOCK)
    size = -(-len(target) // number)
    more = number * size - len(target)

    def block(array: Array, mode: str) -> Array:
        return jnp.pad(array, (0, more), mode).reshape(number, size)

    longer = jax.tree.map(lambda array: block(array, "edge"), inputs)
    return Seen(longer, block(root, "constant"), block(target, "constant"))


def _moved(move: Move, parameters: Any, seen: Seen) -> Motion:
    """The motion of a block, with w H for H."""
    found = jax.tree.map(partial(_spread, seen.target), move(parameters, seen.inputs)._replace(start=()))
    return found._replace(observed=scaled(found.observed, seen.root))


def _spread(like: Array, entry: Entry) -> Array:
    return jnp.broadcast_to(jnp.asarray(entry, like.dtype), like.shape)


def _start(move: Move, parameters: Any, seen: Seen) -> Matrix:
    first = jax.tree.map(lambda array: array[0, :1], seen.inputs)
    return jax.tree.map(lambda entry: jnp.asarray(entry, seen.target.dtype), move(parameters, first).start)


def _filtered(move: Move, parameters: Any, seen: Seen) -> tuple[Array, Predicted]:
    """The log density and every state (block, step)."""
    start = _start(move, parameters, seen)
    (mean,) = filled(((None,) * len(start),), (), seen.target.dtype)
    first = Predicted(mean, filled(start, (), seen.target.dtype))

    def block(state: Predicted, seen: Seen) -> tuple[Predicted, tuple[Array, Predicted]]:
        motion = _apart(_moved(move, parameters, seen))
        after, predicted = lax.scan(_filter_step, state, (seen.target, motion))
        met = _met(predicted, seen.target, motion.observed)
        return after, ((jnp.log(met.certainty) - met.miss**2 * met.certainty).sum() / 2, predicted)

    values, predicted = lax.scan(block, first, seen)[1]
    return values.sum(), predicted


def _filter_step(state: Predicted, seen: tuple[Array, Motion]) -> tuple[Predicted, Predicted]:
    target, motion = seen
    met = _met(state, target, motion.observed)
    covariance = added_matrix(sandwich(motion.matrix, met.covariance), motion.noise)
    return Predicted(applied(motion.matrix, met.mean), covariance), state


def _slopes(
    move: Move, parameters: Any, seen: Seen, predicted: Predicted, length: int
) -> tuple[Any, Any, Array, Array]:
    """The derivatives by the parameters, inputs, root and target."""
    numbers = jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, parameters)

    def whole(numbers: Any) -> Any:
        return jax.tree.map(lambda one, leaf: leaf if one is None else one, numbers, parameters, is_leaf=_absent)

    start, by_start = jax.vjp(lambda numbers: _start(move, whole(numbers), seen), numbers)

    def block(carry: tuple[Ahead, Any], one: tuple[Seen, Predicted]) -> tuple[tuple[Ahead, Any], Seen]:
        (ahead, total), (seen, predicted) = carry, one

        def moved(numbers: Any, inputs: Any, root: Array) -> Motion:
            return _moved(move, whole(numbers), Seen(inputs, root, seen.target))

        motion, back = jax.vjp(moved, numbers, seen.inputs, seen.root)
        ahead, (by_target, found) = lax.scan(_slope_step, ahead, _apart((seen.target, motion, predicted)), reverse=True)
        by_numbers, by_inputs, by_root = back(_apart(found))
        return (ahead, jax.tree.map(jnp.add, total, by_numbers)), Seen(by_inputs, by_root, by_target)

    size = len(start)
    nothing = tuple((None,) * count for count in (size, *range(1, size + 1)))
    slope, *curvature = filled(nothing, (), seen.target.dtype)
    carry = (Ahead(slope, tuple(curvature)), jax.tree.map(jnp.zeros_like, numbers))
    (first, total), by_seen = lax.scan(block, carry, (seen, predicted), reverse=True)
    (more,) = by_start(_where_given(start, _doubled(_by_covariance(first))))
    by_inputs, by_root, by_target = jax.tree.map(lambda array: array.reshape(-1)[:length], by_seen)
    return jax.tree.map(jnp.add, total, more), by_inputs, by_root, by_target


def _slope_step(ahead: Ahead, seen: tuple[Array, Motion, Predicted]) -> tuple[Ahead, tuple[Array, Motion]]:
    target, motion, state = seen
    met = _met(state, target, motion.observed)
    moved = _before(motion.matrix, ahead)
    slope, curvature = _before(met.keep, moved)
    pull = scaled(motion.observed, met.certainty)
    more = lower(outer(pull, motion.observed))
    now = Ahead(added(slope, scaled(pull, met.miss)), added_matrix(curvature, more))
    return now, _step_slopes(state, met, motion, ahead, moved)


def _step_slopes(state: Predicted, met: Met, move: Motion, ahead: Ahead, moved: Ahead) -> tuple[Array, Motion]:
    """ahead: about the state after the step. moved: about the state that has met its target."""
    gain, miss = met.certainty, met.certainty * met.miss
    by_noise, by_filtered = _by_covariance(ahead), _by_covariance(moved)
    spread = product(by_noise, product(move.matrix, full(met.covariance)))
    by_matrix = added_matrix(outer(ahead.slope, met.mean), scaled_matrix(spread, 2.0))
    turned = applied(by_filtered, met.cross)
    reach = dot(moved.slope, met.cross)
    by_miss = gain * reach - miss
    by_size = ((met.miss * miss - 1) / 2 - reach * miss + gain * dot(turned, met.cross)) * gain
    by_cross = added(scaled(moved.slope, miss), scaled(turned, -2 * gain))
    by_observed = added(scaled(met.cross, 2 * by_size), scaled(state.mean, -by_miss))
    by_observed = added(by_observed, applied(full(state.covariance), by_cross))
    return by_miss, _where_given(move, Motion(by_observed, (), by_matrix, _doubled(by_noise)))


def _met(state: Predicted, target: Array, observed: Vector) -> Met:
    """Where one entry of a state is seen, what remains of it is a quotient and no difference."""
    covariance, places = full(state.covariance), range(len(observed))
    seen = [place for place in places if observed[place] is not None]
    cross = applied(covariance, observed)
    miss, certainty = target - dot(observed, state.mean), 1 / (1 + dot(observed, cross))
    gain = scaled(cross, certainty)

    def kept(row: int, column: int) -> Entry:
        if seen == [row] == [column]:
            return certainty
        same = 1.0 if row == column else None
        return plus(same, -gain[row] * observed[column]) if column in seen else same

    keep = tuple(tuple(kept(row, column) for column in places) for row in places)
    rest = product(keep, covariance)
    after = tuple(
        tuple(rest[row][column] if row in seen else rest[column][row] for column in range(row + 1)) for row in places
    )
    return Met(cross, miss, certainty, keep, added(state.mean, scaled(gain, miss)), after)


def _before(matrix: Matrix, ahead: Ahead) -> Ahead:
    """Of a state before a linear map."""
    back = transposed(matrix)
    return Ahead(applied(back, ahead.slope), sandwich(back, ahead.curvature))


def _by_covariance(ahead: Ahead) -> Matrix:
    """The derivative by the covariance of the shift: all entries."""
    squares, curvature = outer(ahead.slope, ahead.slope), full(ahead.curvature)
    return scaled_matrix(added_matrix(squares, scaled_matrix(curvature, -1.0)), 0.5)


def _doubled(matrix: Matrix) -> Matrix:
    """By the entries up to the diagonal, which stand for two below it."""
    return tuple((*scaled(row[:place], 2.0), row[place]) for place, row in enumerate(matrix))


def _where_given(motion: Any, slopes: Any) -> Any:
    """Without those by entries that are not there."""
    return jax.tree.map(lambda entry, slope: None if entry is None else slope, motion, slopes, is_leaf=_absent)


def _absent(entry: Any) -> bool:
    return entry is None


def _apart(arrays: Any) -> Any:
    """The same, computed once: XLA would fuse what makes an array into each of its uses."""
    return lax.optimization_barrier(arrays)
