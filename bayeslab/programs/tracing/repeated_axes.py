"""Functions of arrays that are the same along some axes, computed once in place of at every position of these.

A direction in which all rows of a site move alike is the same for every row, and so, often, are the changes that it
makes: `z @ w.T` with rows of z that are alike has rows that are alike, and a sum over these is one of them times their
number. Here every operation of a traced function is done with one position in place of all along such axes, where the
operation permits it, and products of arrays that are the same along different axes are multiplied as late as possible:
what does not change along an axis is taken out of sums over it. What that leaves of the precision of factors or
loadings is the work that one would do by hand, a matrix product for all rows, or none.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.programs.tracing.flat_program import Constant, Operation, flatten
from bayeslab.programs.tracing.repeated_operations import ELEMENTWISE, REPEATS, RULES, Repeated, elementwise

MAX_FOLDED = 2**16
"""Numbers, at most, of an array that is computed while tracing."""


def evaluate_repeated(function: Callable[[Any], Any], argument: Repeated) -> Any:
    """The value of a function, a tree of arrays, at an argument that is the same along some axes."""
    described = jax.ShapeDtypeStruct(argument.shape, argument.entry.dtype)
    traced, shape = jax.make_jaxpr(function, return_shape=True)(described)
    program = flatten(traced)
    known: dict[int, Repeated] = {number: _plain(value) for number, value in program.constants.items()}
    known[program.inputs[0]] = _compressed(argument)

    def read(operand: Any) -> Repeated:
        if isinstance(operand, Constant):
            return _plain(operand.value)
        return known[operand]

    for operation in program.operations:
        results = _run(operation, [read(operand) for operand in operation.inputs])
        known |= dict(zip(operation.outputs, results, strict=True))
    leaves = [jnp.asarray(read(output).whole()) for output in program.outputs]
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)


def evaluate_at_choices(function: Callable[[Array], Any], choices: Any, shape: tuple[int, ...]) -> Any:
    """The values (choice, *out) of a function of an array at arrays of this shape that are one choice everywhere.

    choices: (choice,), known while tracing.
    """
    column = np.asarray(choices, jax.dtypes.canonicalize_dtype(np.asarray(choices).dtype))
    all_choices = Repeated((column.reshape(-1, *(1 for _ in shape)),), (len(column), *shape))
    return evaluate_repeated(jax.vmap(function), all_choices)


def gradient_and_changes(gradient: Callable[[Any], Any], at: Array, directions: Repeated) -> tuple[Any, Any]:
    """A gradient that is linear in its argument, and its changes (direction, *shape) along some directions.

    directions: (direction, *shape), of the argument.
    """

    def both(moves: Array) -> tuple[Any, Any]:
        slope, change = jax.linearize(gradient, at)
        return slope, jax.vmap(change)(moves)

    typed = Repeated(tuple(factor.astype(at.dtype) for factor in directions.factors), directions.shape)
    if directions.shape[0] == at.size:  # no two elements move together
        return both(jnp.asarray(typed.whole()))
    return evaluate_repeated(both, typed)


def _plain(value: Any) -> Repeated:
    return Repeated((value,), tuple(np.shape(value)))


def _is_known(array: Repeated) -> bool:
    return all(isinstance(factor, np.ndarray) for factor in array.factors) and prod(array.shape) <= MAX_FOLDED


def _compressed(array: Repeated) -> Repeated:
    """An array whose numbers are known, with one position of every axis along which they are the same."""
    if not _is_known(array):
        return array
    entry = array.entry
    for axis in range(entry.ndim):
        first = entry.take([0], axis) if entry.shape[axis] else entry
        entry = first if (entry == first).all() else entry
    return Repeated((entry,), array.shape)


def _run(operation: Operation, inputs: Sequence[Repeated]) -> list[Repeated]:
    """The results of an operation."""
    [shape, *_] = operation.shapes
    fold = FOLDED.get(operation.name)
    if fold is not None and _is_known(inputs[0]):
        results = fold(inputs[0].whole(), operation.params)
        return [_compressed(_plain(np.asarray(result))) for result in results]
    if any(_is_repeated(each) for each in inputs) or operation.name in REPEATS:
        rule = RULES.get(operation.name, elementwise if operation.name in ELEMENTWISE else None)
        factors = None if rule is None else rule(operation, inputs)
        if factors is not None:
            return [Repeated(_merged(factors), shape)]
    return [_plain(result) for result in operation.run([each.whole() for each in inputs])]


def _is_repeated(array: Repeated) -> bool:
    return len(array.factors) > 1 or any(array.repeats)


def _merged(factors: Sequence[Any]) -> tuple[Any, ...]:
    """Factors, those multiplied whose axes another one has too."""
    kept: list[Any] = []
    for factor in sorted(factors, key=np.size, reverse=True):
        for place, other in enumerate(kept):
            if np.broadcast_shapes(np.shape(factor), np.shape(other)) == np.shape(other):
                kept[place] = other * factor
                break
        else:
            kept.append(factor)
    return tuple(kept)


Fold = Callable[[np.ndarray, dict[str, Any]], list[np.ndarray]]


def _slice(array: np.ndarray, params: dict[str, Any]) -> list[np.ndarray]:
    steps = params["strides"] or (1,) * array.ndim
    parts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return [array[tuple(slice(*part) for part in parts)]]


FOLDED: dict[str, Fold] = {
    "slice": _slice,
    "split": lambda array, params: np.split(array, np.cumsum(params["sizes"])[:-1], params["axis"]),
    "reshape": lambda array, params: [array.reshape(params["new_sizes"])],
    "squeeze": lambda array, params: [array.squeeze(params["dimensions"])],
    "transpose": lambda array, params: [array.transpose(params["permutation"])],
    "neg": lambda array, _: [-array],
}
"""Operations on arrays whose numbers are known while tracing."""
