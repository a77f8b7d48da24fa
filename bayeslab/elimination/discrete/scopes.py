"""Which discrete elements meet: every value of a program as a sum of functions of a few elements each.

The elements that a function depends on are its scope. Scopes are followed through the operations of the program:
sums join them, products pair them, and whatever else is done with a sum makes one scope of all of it. So no two
elements are ever taken for independent that are not, whatever the values of the other sites; what multiplies with a
zero of an argument of the program, such as a matrix of who is a neighbour of whom, is left out.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayeslab.elimination.discrete.moves import MOVED
from bayeslab.elimination.discrete.sum_table import SumTable
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.analyticity import scan_counts
from bayeslab.programs.tracing.flat_program import Constant, FlatProgram, Operation, concrete, flatten

MAX_NUMBERS = 2 * 10**7
"""Numbers of one value that are looked at one by one, at most."""
MAX_UNROLLED = 4096
"""Operations that a loop is unrolled to, at most."""

SAME_SUM = ("neg", "copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision", "real")
ADDED = ("add", "sub", "add_any")
BENT = (
    *("exp", "exp2", "log", "log1p", "expm1", "sqrt", "rsqrt", "cbrt", "logistic", "tanh", "sin", "cos", "tan", "asin"),
    *("acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma", "digamma", "erf", "erfc", "erf_inv", "abs"),
    *("sign", "floor", "ceil", "round", "not", "is_finite", "population_count", "clz", "eq", "ne", "lt", "le", "gt"),
    *("ge", "and", "or", "xor", "max", "min", "pow", "atan2", "rem", "nextafter", "shift_left", "clamp", "polygamma"),
    *("shift_right_logical", "shift_right_arithmetic", "igamma", "igammac", "regularized_incomplete_beta", "eq_to"),
    *("lt_to", "le_to", "bessel_i0e", "bessel_i1e", "zeta", "random_gamma_grad", "igamma_grad_a"),
)
"""Operations that work element by element, and are no sum."""
REDUCED = ("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin")
ALONG = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")


class Followed(NamedTuple):
    """A function of discrete elements whose scopes were followed: its operations, the number of the elements among its
    values, the finder, and the sums of all values that elements reach."""

    program: FlatProgram
    number: int
    finder: "ScopeFinder"
    sums: dict[int, np.ndarray]


def follow_elements(
    function: Callable[[Any, Bound, Values], Any],
    size: int,
    bound: Bound,
    others: Values,
    looks_for_zeros: bool = False,
) -> Followed:
    """Follows the scopes of elements through a function of indices of choices (size,), a Bound and values.

    The arguments of the program are looked at, since they may say which elements meet; data and values are not.
    """
    start = jnp.zeros(size, jnp.int32)
    program = flatten(jax.make_jaxpr(function)(start, bound, others))
    leaves = [start, *jax.tree.leaves(bound), *jax.tree.leaves(others)]
    arguments = {id(leaf) for leaf in bound.arrays.values()}
    known = {number: leaf for number, leaf in zip(program.inputs, leaves, strict=True) if id(leaf) in arguments}
    table, number = SumTable(), program.inputs[0]
    singles = np.array([table.number(frozenset({frozenset({element})})) for element in range(size)], np.int32)
    finder = ScopeFinder(table, program, known, looks_for_zeros)
    return Followed(program, number, finder, finder.run({number: singles}))


class ScopeFinder:
    """Follows scopes through a flat program.

    table: of the sums. known: values by number that do not depend on sites. looks_for_zeros: whether single elements
    that are multiplied with a zero are left out too, and not pairs alone.
    """

    def __init__(
        self, table: SumTable, program: FlatProgram, known: dict[int, Any], looks_for_zeros: bool = False
    ) -> None:
        self.looks_for_zeros = looks_for_zeros
        self.table, self.program, self.known = table, program, program.constants | known
        self.sums: dict[int, np.ndarray] = {}
        self.concrete: dict[int, np.ndarray] = {}
        self.knowable = set(self.known)

    def run(self, sums: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The sums of all values that elements reach. sums: of the arguments that do."""
        self.sums = dict(sums)
        for operation in self.program.operations:
            if any(self._sum(each) is not None for each in operation.inputs):
                outputs = self._outputs(operation)
                for number, shape, array in zip(operation.outputs, operation.shapes, outputs, strict=True):
                    if array.any():
                        self.sums[number] = np.broadcast_to(array, shape).astype(np.int32)
            elif all(isinstance(each, Constant) or each in self.knowable for each in operation.inputs):
                self.knowable |= set(operation.outputs)
        return self.sums

    def _sum(self, operand: Any) -> np.ndarray | None:
        return None if isinstance(operand, Constant) else self.sums.get(operand)

    def value(self, operand: Any) -> np.ndarray | None:
        """The value of an operand that depends on no site, None where it does."""
        if isinstance(operand, Constant):
            return np.asarray(operand.value)
        if operand not in self.knowable:
            return None
        if operand not in self.concrete:
            self.concrete[operand] = concrete(self.program, self.known, operand)
        return self.concrete[operand]

    def _outputs(self, operation: Operation) -> Sequence[np.ndarray]:
        name, shapes, table = operation.name, operation.shapes, self.table
        sums = [self._sum(each) for each in operation.inputs]
        if max((int(np.prod(shape)) for shape in shapes), default=0) > MAX_NUMBERS:
            return self._whole(operation)
        first = sums[0]
        if name in SAME_SUM:
            return [np.zeros(shape, np.int32) if one is None else one for one, shape in zip(sums, shapes, strict=True)]
        if name == "convert_element_type":
            rounds = not jnp.issubdtype(operation.dtypes[0], jnp.floating)
            rounds &= jnp.issubdtype(operation.input_dtypes[0], jnp.floating) or operation.dtypes[0] == np.bool_
            return [self._bent(sums, shapes[0]) if rounds else self._elementwise(table.add, sums, shapes[0])]
        if name in ADDED:
            return [self._elementwise(table.add, sums, shapes[0])]
        if name == "mul":
            return [self._multiplied(operation, sums)]
        if name == "div" and sums[1] is None and jnp.issubdtype(operation.dtypes[0], jnp.floating):
            return [self._elementwise(table.add, sums, shapes[0])]
        if name == "square" or (name == "integer_pow" and operation.params["y"] == 2):
            return [self._elementwise(table.product, [first, first], shapes[0])]
        if name == "select_n":
            return [self._selected(sums, shapes[0])]
        if name in BENT or name in ("div", "integer_pow"):
            return [self._bent(sums, shapes[0])]
        if name in ("reduce_sum", *REDUCED) and first is not None:
            combine = table.add if name == "reduce_sum" else table.merge
            return [self._reduced(first, tuple(operation.params["axes"]), combine).reshape(shapes[0])]
        if name in ALONG and first is not None:
            combine = table.add if name == "cumsum" else table.merge
            axis = operation.params["axis"]
            return [np.broadcast_to(np.expand_dims(self._reduced(first, (axis,), combine), axis), shapes[0])]
        if name == "dot_general":
            return [self._contracted(operation, sums)]
        if name in MOVED:
            return [MOVED[name](operation, [np.zeros((), np.int32) if one is None else one for one in sums])]
        if name == "concatenate":
            return [self._concatenated(operation, sums)]
        if name == "pad" and sums[1] is None and first is not None:
            return [np.asarray(jax.lax.pad(first, np.int32(0), operation.params["padding_config"]))]
        if name == "gather":
            return [self._gathered(operation, sums)]
        if name == "dynamic_slice" and first is not None:
            return [self._sliced(operation, sums)]
        if name == "split" and first is not None:
            ends = np.cumsum(operation.params["sizes"])[:-1]
            return np.split(first, ends, operation.params["axis"])
        if name in ("scatter", "scatter-add") and sums[1] is None:
            members = np.concatenate([np.unique(array) for array in sums if array is not None])
            return [np.full(shapes[0], table.add(np.unique(members)[None])[0], np.int32)]
        if name in ("custom_jvp_call", "custom_vjp_call"):
            return self._called(operation, sums)
        if name == "scan":
            return self._scanned(operation, sums)
        return self._whole(operation)

    def _whole(self, operation: Operation) -> list[np.ndarray]:
        """One function of all elements that reach any operand."""
        members = [np.unique(array) for each in operation.inputs if (array := self._sum(each)) is not None]
        [number] = self.table.merge(np.unique(np.concatenate(members))[None])
        return [np.full(shape, number, np.int32) for shape in operation.shapes]

    def _elementwise(
        self, combine: Callable[[np.ndarray], np.ndarray], sums: Sequence[np.ndarray | None], shape: tuple[int, ...]
    ) -> np.ndarray:
        arrays = [np.broadcast_to(0 if array is None else array, shape).ravel() for array in sums]
        return combine(np.stack(arrays, axis=1).astype(np.int32)).reshape(shape)

    def _bent(self, sums: Sequence[np.ndarray | None], shape: tuple[int, ...]) -> np.ndarray:
        return self._elementwise(self.table.merge, sums, shape)

    def _multiplied(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> np.ndarray:
        shape = operation.shapes[0]
        if sums[0] is not None and sums[1] is not None:
            return self._elementwise(self.table.product, sums, shape)
        place = 0 if sums[0] is not None else 1
        array = sums[place]
        assert array is not None
        if operation.input_shapes[1 - place] == () or not (self.looks_for_zeros or self._has_pairs(array)):
            return array
        factor = self.value(operation.inputs[1 - place])
        return array if factor is None else np.where(np.broadcast_to(factor == 0, shape), 0, array)

    def _has_pairs(self, array: np.ndarray) -> bool:
        """Whether any function in an array has more than one element."""
        return any(len(scope) > 1 for number in np.unique(array) for scope in self.table.sums[number])

    def _selected(self, sums: Sequence[np.ndarray | None], shape: tuple[int, ...]) -> np.ndarray:
        cases = self._elementwise(self.table.add, sums[1:], shape)
        return cases if sums[0] is None else self._multiply(self._bent(sums[:1], shape), cases)

    def _multiply(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Products of a chooser and what it chooses from."""
        return self._elementwise(self.table.product, [first, second], first.shape)

    def _reduced(
        self, array: np.ndarray, axes: tuple[int, ...], combine: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        kept = [axis for axis in range(array.ndim) if axis not in axes]
        moved = np.transpose(array, (*kept, *axes))
        shape = moved.shape[: len(kept)]
        return combine(moved.reshape(int(np.prod(shape)), -1)).reshape(shape)

    def _concatenated(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> np.ndarray:
        axis, [shape] = operation.params["dimension"], operation.shapes
        result, start = np.zeros(shape, np.int32), 0
        for array, input_shape in zip(sums, operation.input_shapes, strict=True):
            size = input_shape[axis]
            if array is not None:
                result[(slice(None),) * axis + (slice(start, start + size),)] = array
            start += size
        return result

    def _contracted(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> np.ndarray:
        """Sums of products: of two values that elements reach, or of one and the numbers of the other."""
        ((left, right), (left_batch, right_batch)) = operation.params["dimension_numbers"]
        arrays = []
        for place, contracted, batch in ((0, left, left_batch), (1, right, right_batch)):
            shape, array = operation.input_shapes[place], sums[place]
            value = self.value(operation.inputs[place]) if array is None else array
            source = np.ones(shape, np.int32) if value is None else np.asarray(value != 0 if array is None else value)
            free = [axis for axis in range(len(shape)) if axis not in (*contracted, *batch)]
            moved = np.transpose(source, (*batch, *free, *contracted))
            sizes = [int(np.prod([shape[axis] for axis in axes])) for axes in (batch, free, contracted)]
            arrays.append(moved.reshape(sizes).astype(np.int32))
        first, second = arrays
        (batches, rows, inner), columns = first.shape, second.shape[1]
        if batches * rows * columns * inner > MAX_NUMBERS:
            return self._whole(operation)[0]
        pairs = np.broadcast_arrays(first[:, :, None], second[:, None])
        if sums[0] is not None and sums[1] is not None:
            stacked = np.stack([pair.ravel() for pair in pairs], axis=1)
            products = self.table.product(stacked)
        else:
            products = (pairs[0] * pairs[1]).ravel()
        return self.table.add(products.reshape(-1, inner).astype(np.int32)).reshape(operation.shapes[0])

    def _gathered(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> np.ndarray:
        """What places of an array hold: any of those that unknown places may be, as these say."""
        numbers, shape = operation.params["dimension_numbers"], operation.shapes[0]
        operand, places = sums
        index = self.value(operation.inputs[1]) if places is None else None
        result = np.zeros(shape, np.int32)
        if operand is not None:
            if index is None:
                axes = tuple(numbers.start_index_map)
                reduced = self._reduced(operand, axes, self.table.add)
                operand = np.broadcast_to(np.expand_dims(reduced, axes), operand.shape)
                index = np.zeros(operation.input_shapes[1], np.int32)
            params = {key: value for key, value in operation.params.items() if key != "fill_value"}
            gathered = operation.primitive.bind(jnp.asarray(operand), jnp.asarray(index), fill_value=0, **params)
            result = np.maximum(np.asarray(gathered), 0)
        if places is None:
            return result
        rows = self._reduced(places, (places.ndim - 1,), self.table.merge)
        batch = [axis for axis in range(len(shape)) if axis not in numbers.offset_dims]
        rows = rows.reshape([shape[axis] if axis in batch else 1 for axis in range(len(shape))])
        return self._multiply(np.broadcast_to(rows, shape), result)

    def _sliced(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> np.ndarray:
        starts = [self.value(each) for each in operation.inputs[1:]]
        if any(start is None for start in starts) or sums[0] is None:
            return self._whole(operation)[0]
        sizes = operation.params["slice_sizes"]
        return np.asarray(jax.lax.dynamic_slice(sums[0], [int(start) for start in starts if start is not None], sizes))

    def _called(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        return self._inside(flatten(operation.params["call_jaxpr"]), sums, operation.shapes)

    def _inside(
        self, program: FlatProgram, sums: Sequence[np.ndarray | None], shapes: Sequence[tuple[int, ...]]
    ) -> list[np.ndarray]:
        """The sums of the outputs of a function that an operation calls."""
        given = {n: array for n, array in zip(program.inputs, sums, strict=True) if array is not None}
        scopes = ScopeFinder(self.table, program, {}, self.looks_for_zeros).run(given)
        none = [np.zeros(shape, np.int32) for shape in shapes]
        pairs = zip(program.outputs, none, strict=True)
        return [zeros if isinstance(output, Constant) else scopes.get(output, zeros) for output, zeros in pairs]

    def _scanned(self, operation: Operation, sums: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        """The sums of a loop of fixed length, one step after the other where these are few."""
        params = operation.params
        length, (num_consts, num_carry) = params["length"], scan_counts(params)
        if length * len(params["jaxpr"].jaxpr.eqns) > MAX_UNROLLED:
            return self._whole(operation)
        fixed, carry, moving = (
            sums[:num_consts],
            list(sums[num_consts : num_consts + num_carry]),
            sums[num_consts + num_carry :],
        )
        steps: list[list[np.ndarray]] = []
        body = flatten(params["jaxpr"])
        shapes = [*operation.shapes[:num_carry], *(shape[1:] for shape in operation.shapes[num_carry:])]
        for index in range(length)[:: -1 if params["reverse"] else 1]:
            now = [None if array is None else array[index] for array in moving]
            outputs = self._inside(body, [*fixed, *carry, *now], shapes)
            carry = list(outputs[:num_carry])
            steps.append(outputs[num_carry:])
        if params["reverse"]:
            steps = steps[::-1]
        last = [array for array in carry if array is not None]
        return [*last, *(np.stack(each) for each in zip(*steps, strict=True))]
