"""Which elements of the values of a program are the same function of discrete elements, each at its own step.

The density of a state given the one before is one function at all steps where all share a matrix, and differs from step
to step where each has its own. Operations are followed element by element: two elements are the same function where the
same operation makes them of the same functions, at the same distances in time. Whatever is not known is a function of
its own, so none are ever taken for the same that are not.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayeslab.elimination.discrete.moves import MOVED
from bayeslab.elimination.discrete.scopes import ADDED, BENT, REDUCED, SAME_SUM
from bayeslab.elimination.discrete.sum_table import distinct_rows
from bayeslab.programs.tracing.flat_program import Constant, FlatProgram, Operation, flatten

ELEMENTWISE = (*SAME_SUM, *ADDED, *BENT, "mul", "div", "integer_pow", "square", "select_n", "convert_element_type")
NOWHERE = 2**30
"""The step of what depends on no discrete element."""
MAX_NUMBERS = 4 * 10**6
"""Numbers that are compared for one operation, at most; beyond, all elements of its result are taken for different."""


class Functions(NamedTuple):
    """For every element of a value the number of its function, and the earliest step of what it is a function of."""

    numbers: np.ndarray
    steps: np.ndarray

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> "Functions":
        """The functions of a value that holds the same elements at other places."""
        return Functions(np.asarray(move(self.numbers)), np.asarray(move(self.steps)))


class FunctionFinder:
    """Follows functions through a flat program. known: a value that depends on no site, or None where it does."""

    def __init__(self, program: FlatProgram, known: Callable[[Any], np.ndarray | None], first: int = 0) -> None:
        self.program, self.known, self.next = program, known, first
        self.functions: dict[int, Functions] = {}

    def run(self, inputs: dict[int, Functions]) -> dict[int, Functions]:
        """The functions of all values. inputs: of the arguments that discrete elements reach."""
        self.next = max([self.next, *(int(each.numbers.max(initial=0)) + 1 for each in inputs.values())])
        self.functions = dict(inputs)
        for number, value in self.program.constants.items():
            self.functions[number] = self._constant(value)
        for operation in self.program.operations:
            outputs = self._outputs(operation)
            for number, shape, each in zip(operation.outputs, operation.shapes, outputs, strict=True):
                self.functions[number] = Functions(*(np.broadcast_to(array, shape) for array in each))
        return self.functions

    def _new(self, shape: tuple[int, ...]) -> Functions:
        """Functions of their own."""
        size = int(np.prod(shape))
        numbers = np.arange(self.next, self.next + size).reshape(shape)
        self.next += size
        return Functions(numbers, np.full(shape, NOWHERE))

    def _constant(self, value: Any) -> Functions:
        array = np.asarray(value) if isinstance(value, np.ndarray | int | float | bool | np.generic) else None
        if array is None or array.size > MAX_NUMBERS:
            return self._new(np.shape(value))
        _, inverse = np.unique(array, return_inverse=True)
        numbers = self.next + inverse.reshape(array.shape)
        self.next = int(numbers.max(initial=self.next)) + 1
        return Functions(numbers, np.full(array.shape, NOWHERE))

    def _of(self, operand: Any, shape: tuple[int, ...]) -> Functions:
        if isinstance(operand, Constant):
            return self._constant(operand.value)
        if operand not in self.functions:
            self.functions[operand] = self._new(shape)
        return self.functions[operand]

    def _rows(self, numbers: np.ndarray, steps: np.ndarray) -> Functions:
        """One function for every row of several, (row, function) each."""
        earliest = steps.min(1, initial=NOWHERE)
        distances = np.where(steps == NOWHERE, -1, steps - earliest[:, None])
        first, inverse = distinct_rows(np.concatenate([numbers, distances], axis=1))
        result = Functions(self.next + inverse.ravel(), earliest)
        self.next += len(first)
        return result

    def _outputs(self, operation: Operation) -> Sequence[Functions]:
        name, shapes = operation.name, operation.shapes
        pairs = zip(operation.inputs, operation.input_shapes, strict=True)
        inputs = [self._of(operand, shape) for operand, shape in pairs]
        size = max((int(np.prod(shape)) for shape in (*shapes, *operation.input_shapes)), default=0)
        if size * max(len(inputs), 1) <= MAX_NUMBERS:
            if name in ELEMENTWISE:
                return [self._elementwise(inputs, shapes[0])]
            if name in MOVED:
                return [inputs[0].moved(lambda array: MOVED[name](operation, [array]))]
            if name == "concatenate":
                axis = operation.params["dimension"]
                columns = zip(*inputs, strict=True)
                return [Functions(*(np.concatenate(arrays, axis) for arrays in columns))]
            if name == "split":
                ends, axis = np.cumsum(operation.params["sizes"])[:-1], operation.params["axis"]
                return [Functions(*both) for both in zip(*(np.split(x, ends, axis) for x in inputs[0]), strict=True)]
            if name in ("reduce_sum", *REDUCED):
                return [self._reduced(inputs[0], tuple(operation.params["axes"]), shapes[0])]
            if name == "gather":
                return [self._gathered(operation, inputs)]
            if name == "dot_general":
                return [self._contracted(operation, inputs)]
            if name in ("custom_jvp_call", "custom_vjp_call"):
                return self._called(operation, inputs)
        return [self._new(shape) for shape in shapes]

    def _elementwise(self, inputs: Sequence[Functions], shape: tuple[int, ...]) -> Functions:
        arrays = [np.stack([np.broadcast_to(x, shape).ravel() for x in each], 1) for each in zip(*inputs, strict=True)]
        return self._rows(*arrays).moved(lambda array: array.reshape(shape))

    def _reduced(self, functions: Functions, axes: tuple[int, ...], shape: tuple[int, ...]) -> Functions:
        kept = [axis for axis in range(functions.numbers.ndim) if axis not in axes]
        number = int(np.prod(shape))
        rows = functions.moved(lambda array: np.transpose(array, (*kept, *axes)).reshape(number, -1))
        return self._rows(*rows).moved(lambda array: array.reshape(shape))

    def _gathered(self, operation: Operation, inputs: Sequence[Functions]) -> Functions:
        """Elements of an array at places: functions of the places, and of what may be there."""
        dims, [shape] = operation.params["dimension_numbers"], operation.shapes
        operand, places = inputs
        index = self.known(operation.inputs[1])
        if index is not None:
            params = {key: value for key, value in operation.params.items() if key != "fill_value"}

            def gather(array: np.ndarray) -> np.ndarray:
                moved = operation.primitive.bind(
                    jnp.asarray(array, jnp.int32), jnp.asarray(index), fill_value=-1, **params
                )
                return np.asarray(moved)

            return operand.moved(gather)
        batch = places.numbers.shape[:-1]
        offsets = tuple(shape[axis] for axis in dims.offset_dims)
        columns = [each.reshape(-1, each.shape[-1]) for each in places]
        if dims.operand_batching_dims:
            rest = [axis for axis in range(operand.numbers.ndim) if axis not in dims.operand_batching_dims]
            sizes = [operand.numbers.shape[axis] for axis in dims.operand_batching_dims]
            pattern = [1] * len(batch)
            for axis, size in zip(dims.start_indices_batching_dims, sizes, strict=True):
                pattern[axis] = size
            order = [dims.operand_batching_dims[i] for i in np.argsort(dims.start_indices_batching_dims)]
            width = int(np.prod([operand.numbers.shape[axis] for axis in rest]))
            if int(np.prod(batch)) * width > MAX_NUMBERS:
                return self._new(shape)
            held = [np.transpose(each, (*order, *rest)).reshape(*pattern, width) for each in operand]
            held = [np.broadcast_to(each, (*batch, width)).reshape(-1, width) for each in held]
            columns = [np.concatenate(both, axis=1) for both in zip(columns, held, strict=True)]
        elif (operand.steps != NOWHERE).any():
            return self._new(shape)
        rows, number = self._rows(*columns), int(np.prod(offsets))
        numbers = self.next + (rows.numbers[:, None] - rows.numbers.min(initial=self.next)) * number + np.arange(number)
        self.next = int(numbers.max(initial=self.next)) + 1
        steps = np.broadcast_to(rows.steps[:, None], numbers.shape)
        axes = tuple(range(len(batch), len(batch) + len(offsets)))
        return Functions(numbers, steps).moved(
            lambda array: np.moveaxis(array.reshape(*batch, *offsets), axes, dims.offset_dims)
        )

    def _contracted(self, operation: Operation, inputs: Sequence[Functions]) -> Functions:
        ((left, right), (left_batch, right_batch)) = operation.params["dimension_numbers"]
        sides = []
        for functions, contracted, batch in zip(inputs, (left, right), (left_batch, right_batch), strict=True):
            shape = functions.numbers.shape
            free = [axis for axis in range(len(shape)) if axis not in (*contracted, *batch)]
            sizes = [int(np.prod([shape[axis] for axis in axes])) for axes in (batch, free, contracted)]
            order = (*batch, *free, *contracted)
            sides.append(Functions(*(np.transpose(array, order).reshape(sizes) for array in functions)))
        (batches, rows, inner), columns = sides[0].numbers.shape, sides[1].numbers.shape[1]
        if batches * rows * columns * inner > MAX_NUMBERS:
            return self._new(operation.shapes[0])
        arrays = []
        for first, second in zip(*sides, strict=True):
            both = np.broadcast_arrays(first[:, :, None], second[:, None])
            arrays.append(np.concatenate([each.reshape(-1, inner) for each in both], axis=1))
        return self._rows(*arrays).moved(lambda array: array.reshape(operation.shapes[0]))

    def _called(self, operation: Operation, inputs: Sequence[Functions]) -> list[Functions]:
        program = flatten(operation.params["call_jaxpr"])
        finder = FunctionFinder(program, lambda operand: None, self.next)
        functions = finder.run(dict(zip(program.inputs, inputs, strict=True)))
        self.next = finder.next
        return [self._constant(o.value) if isinstance(o, Constant) else functions[o] for o in program.outputs]
