"""What operations do to arrays that are the same along some axes."""

import operator
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.programs.tracing.flat_program import Operation


class Repeated(NamedTuple):
    """A product of arrays, each with one position of axes along which it is the same everywhere.

    factors: arrays with as many axes as the product; of NumPy where they are known while tracing. shape: of the whole.
    """

    factors: tuple[Any, ...]
    shape: tuple[int, ...]

    @property
    def entry(self) -> Any:
        """The product, with one position of the axes along which all factors are the same."""
        return reduce(operator.mul, self.factors)

    @property
    def repeats(self) -> tuple[bool, ...]:
        """Of every axis, whether it has more positions than any factor."""
        own = np.broadcast_shapes(*map(np.shape, self.factors))
        return tuple(size != whole for size, whole in zip(own, self.shape, strict=True))

    def whole(self) -> Any:
        """The product with all its positions."""
        if not any(self.repeats):
            return self.entry
        known = all(isinstance(factor, np.ndarray) for factor in self.factors)
        return (np if known else jnp).broadcast_to(self.entry, self.shape)


ELEMENTWISE = frozenset((
    "abs", "acos", "add", "add_any", "and", "asin", "atan", "ceil", "convert_element_type", "copy", "cos",
    "cosh", "digamma", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min", "ne",
    "not", "or", "pow", "rem", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square", "sub",
    "tan", "tanh", "xor",
))  # fmt: skip
"""Operations whose results at a position need their operands there alone, but for those with rules of their own."""


def elementwise(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """One position of an axis is enough where all operands are alike along it. Operands that are numbers stay so."""
    shape = np.broadcast_shapes(*(np.shape(each.entry) for each in inputs))
    entries = [each.entry if each.shape == () else jnp.broadcast_to(each.entry, shape) for each in inputs]
    return operation.run(entries)


def _product(_: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """Products are left for later where they would have more positions than their factors."""
    return _times(*sorted(inputs, key=lambda each: len(each.shape)))


def _quotient(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """Where the numerator has all positions of the denominator it is divided, since products with inverses round.

    Quotients of integers are cut, so no factor of them is divided by itself.
    """
    if not jnp.issubdtype(operation.dtypes[0], jnp.floating):
        return elementwise(operation, inputs)
    numerator, denominator = inputs
    first, *others = numerator.factors
    own, other = np.shape(first), np.shape(denominator.entry)
    if denominator.shape == () or np.broadcast_shapes(own, other) == own:
        return (first / denominator.entry, *others)
    if numerator.shape == ():
        return elementwise(operation, inputs)
    return _times(Repeated((1 / jnp.asarray(denominator.entry),), denominator.shape), numerator)


def _times(first: Repeated, second: Repeated) -> Sequence[Any]:
    """The factors of a product, the first operand of which may be a number."""
    factors = second.factors
    return (first.entry * factors[0], *factors[1:]) if first.shape == () else (*first.factors, *factors)


def _negative(_: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    first, *others = inputs[0].factors
    return (-first, *others)


def _broadcast(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """New axes are axes along which the result is the same."""
    axes, ndim = operation.params["broadcast_dimensions"], len(operation.shapes[0])

    def placed(factor: Any) -> Array:
        shape = [1] * ndim
        for axis, target in enumerate(axes):
            shape[target] = np.shape(factor)[axis]
        return jnp.reshape(factor, shape)

    return [placed(factor) for factor in inputs[0].factors]


def _reshape(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any] | None:
    """Axes that become other ones have to be all repeated, or none of them."""
    [array, *_], [shape] = inputs, operation.shapes
    if operation.params.get("dimensions") is not None:
        return None
    factors = []
    for factor in array.factors:
        own = np.shape(factor)
        entry_shape: list[int] = []
        for before, after in _groups(array.shape, shape):
            repeated = [own[axis] == 1 for axis in before if array.shape[axis] > 1]
            if any(repeated) and not all(repeated):
                return None
            entry_shape += [1 if any(repeated) else shape[axis] for axis in after]
        factors.append(jnp.reshape(factor, entry_shape))
    return factors


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of as many numbers, in the smallest groups that hold the same numbers."""
    groups: list[tuple[list[int], list[int]]] = []
    first, second = 0, 0
    while first < len(before) or second < len(after):
        own: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        while sizes[0] != sizes[1] or not (own[0] or own[1]):
            if second == len(after) or (first < len(before) and sizes[0] <= sizes[1]):
                own[0].append(first)
                sizes[0] *= before[first]
                first += 1
            else:
                own[1].append(second)
                sizes[1] *= after[second]
                second += 1
        groups.append(own)
    return groups


def _transpose(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    return [lax.transpose(factor, operation.params["permutation"]) for factor in inputs[0].factors]


def _squeeze(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    return [lax.squeeze(factor, operation.params["dimensions"]) for factor in inputs[0].factors]


def _sum(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """A sum over positions that are alike is one of them times their number."""
    [array], axes = inputs, operation.params["axes"]
    outside, inside = _split(array, axes)
    number = prod(array.shape[axis] for axis in axes if inside.repeats[axis])
    return (*(lax.squeeze(factor, axes) for factor in outside), inside.entry.sum(axes) * number)


def _split(array: Repeated, axes: Sequence[int]) -> tuple[list[Any], Repeated]:
    """The factors that are the same along some axes, and the product of the others, of at least one."""
    outside = [factor for factor in array.factors if all(np.shape(factor)[axis] == 1 for axis in axes)]
    inside = tuple(factor for factor in array.factors if all(factor is not other for other in outside))
    return (outside, Repeated(inside, array.shape)) if inside else (outside[1:], Repeated((outside[0],), array.shape))


def _extreme(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """The largest or smallest number along axes needs one of those that are alike."""
    return operation.run([inputs[0].entry])


def _dot(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """Sums over positions where both factors are alike are one product times their number.

    Where one of them is, the other is summed first. What is the same at all positions is multiplied afterwards.
    """
    (contracted, of_second), batches = operation.params["dimension_numbers"]
    splits = [_split(each, axes) for each, axes in zip(inputs, (contracted, of_second), strict=True)]
    outside = [_of_result(factor, place, operation) for place, (factors, _) in enumerate(splits) for factor in factors]
    first, second = (rest for _, rest in splits)
    number = 1
    pairs = [*zip(contracted, of_second, strict=True), *zip(*batches, strict=True)]
    for place, (axis, other) in enumerate(pairs):
        is_summed = place < len(contracted)
        if first.repeats[axis] and second.repeats[other]:
            number *= first.shape[axis] if is_summed else 1
        elif first.repeats[axis]:
            first, second = _matched(first, axis, second, other, is_summed)
        elif second.repeats[other]:
            second, first = _matched(second, other, first, axis, is_summed)
    [entry] = operation.run([jnp.asarray(first.entry), jnp.asarray(second.entry)])
    return (*outside, entry * number if number > 1 else entry)


def _of_result(factor: Any, place: int, operation: Operation) -> Array:
    """A factor of one operand of a product of matrices, as a factor of the result: batch axes come first."""
    contracted, batches = operation.params["dimension_numbers"]
    sizes = np.shape(factor)
    free = [axis for axis in range(len(sizes)) if axis not in (*contracted[place], *batches[place])]
    ndim = len(operation.shapes[0])
    start = len(batches[place]) if place == 0 else ndim - len(free)
    shape = [1] * ndim
    shape[: len(batches[place])] = [sizes[axis] for axis in batches[place]]
    shape[start : start + len(free)] = [sizes[axis] for axis in free]
    return jnp.reshape(lax.transpose(factor, (*batches[place], *free, *contracted[place])), shape)


def _matched(
    repeated: Repeated, axis: int, other: Repeated, other_axis: int, is_summed: bool
) -> tuple[Repeated, Repeated]:
    """Two operands with as many positions of an axis along which the first is alike, and the second is not."""
    if is_summed:
        return repeated, Repeated((other.entry.sum(other_axis, keepdims=True),), _with(other.shape, other_axis, 1))
    shape = _with(np.shape(repeated.entry), axis, repeated.shape[axis])
    return Repeated((jnp.broadcast_to(repeated.entry, shape),), repeated.shape), other


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _concatenate(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """Along the axis where arrays follow each other all positions are there, of others those that any of them has."""
    axis = operation.params["dimension"]
    shape = np.broadcast_shapes(*(_with(np.shape(each.entry), axis, 1) for each in inputs))
    parts = [jnp.broadcast_to(each.entry, _with(shape, axis, each.shape[axis])) for each in inputs]
    return [jnp.concatenate(parts, axis)]


def _gather(operation: Operation, inputs: Sequence[Repeated]) -> Sequence[Any]:
    """Indices that are alike along an axis choose the same there: one of them is enough.

    Along axes that operand and indices share, as many positions are needed as any of the two has.
    """
    operand, indices = inputs
    numbers = operation.params["dimension_numbers"]
    shared = [*zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)]
    once = [(axis, other) for axis, other in shared if operand.repeats[axis] and indices.repeats[other]]
    whole_axes = {*range(len(operand.shape))} - {axis for axis, _ in once}
    index_axes = {len(indices.shape) - 1, *(other for _, other in shared)} - {other for _, other in once}
    return operation.run([_with_all(operand, whole_axes), _with_all(indices, index_axes)])


def _with_all(array: Repeated, axes: Collection[int]) -> Array:
    """The product with all positions of some axes."""
    own = np.shape(array.entry)
    return jnp.broadcast_to(array.entry, [array.shape[i] if i in axes else size for i, size in enumerate(own)])


RULES: dict[str, Callable[[Operation, Sequence[Repeated]], Sequence[Any] | None]] = {
    "mul": _product,
    "div": _quotient,
    "neg": _negative,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "reduce_sum": _sum,
    "reduce_max": _extreme,
    "reduce_min": _extreme,
    "dot_general": _dot,
    "concatenate": _concatenate,
    "gather": _gather,
}
"""What operations do to arrays that are the same along some axes: the factors of the result, or None where all
positions are needed, as for operations that are not here."""
REPEATS = ("broadcast_in_dim",)
"""Operations whose results may be the same along an axis where their operands are not."""
