"""A density cut where it stops being a sum.

The log joint of discrete elements is a sum of parts, each of which few elements reach: the products of neighbours in a
grid, the densities of rows. The sum may be anywhere in the program. So the operations that lead from the parts to the
density, and are affine in them, are told from those that make the parts.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.discrete.first_steps import FirstSteps, Pieces
from bayeslab.programs.tracing.flat_program import (
    Constant,
    FlatProgram,
    Operation,
    flatten,
    reached_values,
    run_operations,
)

AFFINE_IN_ALL = ("add", "sub", "add_any", "concatenate")
"""Operations that are affine in all operands together."""
AFFINE_IN_FIRST = (
    *("neg", "copy", "copy_p", "reshape", "broadcast_in_dim", "transpose", "squeeze", "expand_dims", "slice", "rev"),
    *("reduce_sum", "cumsum", "div", "pad", "gather", "dynamic_slice", "reduce_precision"),
)
"""Operations that are affine in the first operand, where the discrete elements do not reach the others."""
AFFINE_IN_EITHER = ("mul", "dot_general")
"""Operations that are affine in one operand, where the discrete elements do not reach the other."""


class Cut(NamedTuple):
    """Where a program stops being a sum.

    parts: numbers of the values whose affine function the output is. before: the operations that make them, and what
    else is needed. after: those that add them up.
    """

    parts: tuple[int, ...]
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]


def cut(program: FlatProgram, number: int) -> Cut:
    """Where the only output stops being a sum of parts that one value reaches."""
    reached, [output] = reached_values(program, number), program.outputs
    needed, after, parts = {output}, [], []
    if output in reached:
        for operation in reversed(program.operations):
            if needed.isdisjoint(operation.outputs) or reached.isdisjoint(operation.outputs):
                continue
            operands = affine_operands(operation, reached)
            if operands is None:
                parts += [each for each in operation.outputs if each in needed]
            else:
                after.append(operation)
                needed |= set(operands)
        if number in needed:
            parts.append(number)
    after = after[::-1]
    made = {each for operation in after for each in operation.outputs}
    wanted = set(parts) | {each for operation in after for each in operation.inputs if not isinstance(each, Constant)}
    wanted = {each for each in wanted if each not in made or each in parts}
    if output not in reached and not isinstance(output, Constant):
        wanted.add(output)
    before = []
    for operation in reversed(program.operations):
        if not wanted.isdisjoint(operation.outputs):
            before.append(operation)
            wanted |= {each for each in operation.inputs if not isinstance(each, Constant)}
    return Cut(tuple(parts), tuple(before[::-1]), tuple(after))


def affine_operands(operation: Operation, reached: set[int]) -> list[int] | None:
    """The operands that discrete elements reach, where the operation is affine in them; else None."""
    name, inputs = operation.name, operation.inputs
    mine = [place for place, each in enumerate(inputs) if not isinstance(each, Constant) and each in reached]
    floating = all(dtype is not None and jnp.issubdtype(dtype, jnp.floating) for dtype in operation.dtypes)
    if not floating or len(operation.outputs) != 1:
        return None
    if name == "convert_element_type":  # from integers: the elements themselves
        affine = bool(jnp.issubdtype(operation.input_dtypes[0], jnp.floating))
    elif name == "select_n":
        affine = 0 not in mine
    else:
        affine = (
            name in AFFINE_IN_ALL
            or (name in AFFINE_IN_FIRST and mine == [0])
            or (name in AFFINE_IN_EITHER and len(mine) == 1)
        )
    return list(dict.fromkeys(inputs[place] for place in mine)) if affine else None


class SumOfParts(NamedTuple):
    """A scalar function of one vector as a constant and a weighted sum of the elements of some arrays.

    parts: from the vector to these arrays. first_rows: (vector, part, count) -> the first rows of one of them, in less
    time. weights: arrays of the same shapes. constant: what is left.
    """

    parts: Callable[[Array], list[Array]]
    first_rows: Callable[[Array | Pieces, int, int], Array]
    weights: list[Array]
    constant: Array


def sum_of_parts(density: Callable[[Array], Array], start: Array) -> SumOfParts:
    """A scalar function of a vector, taken apart. start: a vector of the right shape."""
    program = flatten(jax.make_jaxpr(density)(start))
    number = program.inputs[0]
    place = cut(program, number)
    reached = reached_values(program, number)

    def fixed(operations: Sequence[Operation]) -> list[Operation]:
        return [operation for operation in operations if reached.isdisjoint(operation.outputs)]

    shared = run_operations(fixed(place.before), program.constants)
    moving = [operation for operation in place.before if not reached.isdisjoint(operation.outputs)]

    def parts(vector: Array) -> list[Array]:
        values = run_operations(moving, shared | {number: vector})
        return [_as_real(values[each]) for each in place.parts]

    def first_rows(vector: Array | Pieces, part: int, count: int) -> Array:
        return _as_real(FirstSteps(moving, shared | {number: vector}).first_rows(place.parts[part], count))

    def total(arrays: list[Array]) -> Array:
        values = run_operations(place.after, shared | dict(zip(place.parts, arrays, strict=True)))
        [output] = program.outputs
        return jnp.asarray(output.value if isinstance(output, Constant) else values[output])

    kinds = jax.eval_shape(parts, start)
    zeros = [jnp.zeros(kind.shape, kind.dtype) for kind in kinds]
    constant, pull = jax.vjp(total, zeros)
    [weights] = pull(jnp.ones_like(constant))
    return SumOfParts(parts, first_rows, weights, constant)


def _as_real(part: Array) -> Array:
    """A part as real numbers: products of matrices take integers beside reals, and these have no derivatives."""
    return part if jnp.issubdtype(part.dtype, jnp.floating) else part.astype(float)


def weighted(parts: Sequence[Array], weights: Sequence[Array]) -> Array:
    """What all elements of all parts say, one vector; those of weight zero say nothing, whatever they are."""
    pieces = [
        jnp.where(weight == 0, 0.0, weight * part).reshape(-1) for part, weight in zip(parts, weights, strict=True)
    ]
    return jnp.concatenate(pieces) if pieces else jnp.zeros(0)
