"""A program run for its first steps alone: where arrays have the steps along their first axis, a few rows are enough.

Operations that work row by row are run with the rows that are wanted; any other is run whole. Where all steps have the
same value, one row is enough, which also spares its derivative a sum over what all steps gathered.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy

from bayeslab.elimination.discrete.scopes import ADDED, BENT, SAME_SUM
from bayeslab.programs.tracing.flat_program import Constant, Operation, run_operations

ROW_BY_ROW = (*SAME_SUM, *ADDED, *BENT, "mul", "div", "integer_pow", "square", "select_n", "convert_element_type")
WEIGHTED_LOGARITHMS = {"xlogy": (xlogy, jnp.log), "xlog1py": (xlog1py, jnp.log1p)}
"""Functions of JAX that weight a logarithm, and the logarithm: of equal rows it is taken once."""
MAX_OPERATIONS = 300
"""Operations of a program, beyond which it is run whole."""


class EqualRows(NamedTuple):
    """An array whose rows are all equal. row: one of them (1, ...). number: how many there are."""

    row: Any
    number: int

    def whole(self) -> Any:
        return jnp.broadcast_to(self.row, (self.number, *jnp.shape(self.row)[1:]))


class Pieces(NamedTuple):
    """Arrays one behind the other."""

    arrays: tuple[Any, ...]

    def whole(self) -> Any:
        arrays = [_whole(each) for each in self.arrays]
        return jnp.concatenate(arrays) if len(arrays) > 1 else arrays[0]

    def between(self, start: int, stop: int) -> Any:
        """The rows from one number to another, equal ones as such."""
        begin = 0
        for each in self.arrays:
            number = _number_of_rows(each)
            if begin <= start and stop <= begin + number:
                return _first(each, stop - begin, start - begin)
            begin += number
        return self.whole()[start:stop]


def _whole(value: Any) -> Any:
    return value.whole() if isinstance(value, EqualRows | Pieces) else value


def _number_of_rows(value: Any) -> int:
    return value.number if isinstance(value, EqualRows) else jnp.shape(value)[0]


def _first(value: Any, stop: int, start: int = 0) -> Any:
    """Some rows of a value."""
    if isinstance(value, Pieces):
        return value.between(start, stop)
    return value._replace(number=stop - start) if isinstance(value, EqualRows) else value[start:stop]


class FirstSteps:
    """Runs some operations for the first rows of their values. values: what they start from, by number."""

    def __init__(self, operations: Sequence[Operation], values: dict[int, Any]) -> None:
        self.operations, self.values = operations, dict(values)
        self.made = {output: operation for operation in operations for output in operation.outputs}
        self.rows_of: dict[tuple[int, int], Any] = {}

    def first_rows(self, number: int, count: int) -> Any:
        """The first rows of a value, as one array."""
        return _whole(self._rows(number, count))

    def _rows(self, number: int, count: int) -> Any:
        if number in self.values:
            return _first(self.values[number], count)
        if (number, count) not in self.rows_of:
            operation = self.made[number]
            needed = _rows_needed(operation, count) if len(self.operations) <= MAX_OPERATIONS else None
            if needed is None:
                self.rows_of[number, count] = self._all(number)[:count]
            else:
                pairs = zip(operation.inputs, needed, strict=True)
                inputs = [self._operand(operand, own) for operand, own in pairs]
                self.rows_of[number, count] = _run_rows(operation, inputs, count)
        return self.rows_of[number, count]

    def _operand(self, operand: Any, count: int | None) -> Any:
        if isinstance(operand, Constant):
            return operand.value
        return self._all(operand) if count is None else self._rows(operand, count)

    def _all(self, number: int) -> Any:
        """The whole of a value."""
        if number in self.values:
            return _whole(self.values[number])
        if len(self.operations) > MAX_OPERATIONS:
            wanted, needed = {number}, []
            for operation in reversed(self.operations):
                if not wanted.isdisjoint(operation.outputs) and not self.values.keys() >= set(operation.outputs):
                    needed.append(operation)
                    wanted |= {each for each in operation.inputs if not isinstance(each, Constant)}
            started = {key: _whole(value) for key, value in self.values.items()}
            self.values |= {
                key: value for key, value in run_operations(needed[::-1], started).items() if key not in started
            }
        else:
            operation = self.made[number]
            pairs = zip(operation.inputs, operation.input_shapes, strict=True)
            outputs = operation.run([_whole(self._operand(each, shape[0] if shape else None)) for each, shape in pairs])
            self.values |= dict(zip(operation.outputs, outputs, strict=True))
        return self.values[number]


def _rows_needed(operation: Operation, count: int) -> list[int | None] | None:
    """How many rows of each operand give so many rows of a result: None for all of an operand that has no steps.

    None where the operation does not work row by row.
    """
    name, params, inputs = operation.name, operation.params, operation.input_shapes
    if len(operation.outputs) > 1 or not operation.shapes[0]:
        return None
    [shape] = operation.shapes
    if name in ROW_BY_ROW or _weighted_logarithm(operation) is not None:
        return [count if each == shape else None for each in inputs] if all(e in (shape, ()) for e in inputs) else None
    if name == "broadcast_in_dim":
        axes = params["broadcast_dimensions"]
        return [count if axes[:1] == (0,) and inputs[0][0] == shape[0] else None] if len(inputs) == 1 else None
    if name == "squeeze":
        return [count] if 0 not in params["dimensions"] else None
    if name == "reshape":
        return [count] if inputs[0][:1] == shape[:1] else None
    if name == "concatenate":
        if params["dimension"] > 0:
            return [count] * len(inputs)
        starts = [sum(each[0] for each in inputs[:place]) for place in range(len(inputs))]
        return [max(min(count - start, each[0]), 0) for start, each in zip(starts, inputs, strict=True)]
    if name == "slice" and (params["strides"] is None or params["strides"][0] == 1):
        return [params["start_indices"][0] + count]
    if name == "gather":
        dims = params["dimension_numbers"]
        aligned = 0 not in dims.offset_dims and inputs[1][0] == shape[0]
        if aligned and not dims.operand_batching_dims:
            return [None, count]
        if aligned and dims.operand_batching_dims == dims.start_indices_batching_dims == (0,):
            return [count, count]
    return None


def _weighted_logarithm(operation: Operation) -> tuple[Callable, Callable] | None:
    """The function of JAX that an operation is, and its logarithm, where it is one of these.

    Traced where values are computed at once, it may have its constants as inputs of their own.
    """
    if operation.name != "custom_jvp_call" or len(operation.inputs) != 2:
        return None
    return WEIGHTED_LOGARITHMS.get(operation.params["call_jaxpr"].jaxpr.debug_info.func_name)


def _weighted(weight: Any, logarithm: Any) -> Any:
    """A product, zero where the weight is zero and the logarithm infinite."""
    return jnp.where((weight == 0) & jnp.isneginf(logarithm), 0.0, weight * logarithm)


def _run_rows(operation: Operation, inputs: Sequence[Any], count: int) -> Any:
    """One operation with so many rows of its result."""
    name, needed = operation.name, _rows_needed(operation, count)
    assert needed is not None
    if name == "concatenate" and operation.params["dimension"] == 0:
        pairs = zip(inputs, needed, strict=True)
        return Pieces(
            tuple(
                _first(jnp.asarray(each) if not isinstance(each, EqualRows | Pieces) else each, own)
                for each, own in pairs
                if own
            )
        )
    if name == "slice":
        start = operation.params["start_indices"][0]
        inputs = [_first(inputs[0], start + count, start)]
    with_rows = [each for each, own in zip(inputs, needed, strict=True) if own is not None]
    equal = [each for each in with_rows if isinstance(each, EqualRows)]
    if with_rows and len(equal) == len(with_rows):
        rows = [each.row if isinstance(each, EqualRows) else each for each in inputs]
        return EqualRows(_bound(operation, rows, 1), count)
    if (functions := _weighted_logarithm(operation)) is not None and isinstance(inputs[1], EqualRows):
        return _weighted(_whole(inputs[0]), functions[1](inputs[1].row))
    return _bound(operation, [_whole(each) for each in inputs], count)


def _bound(operation: Operation, inputs: Sequence[Any], count: int) -> Any:
    """One operation on arrays, with so many rows of its result."""
    name, params, [shape] = operation.name, dict(operation.params), operation.shapes
    if (functions := _weighted_logarithm(operation)) is not None:
        return functions[0](*inputs)
    if name == "broadcast_in_dim":
        params["shape"] = (count, *shape[1:])
    elif name == "reshape":
        params["new_sizes"] = (count, *shape[1:])
    elif name == "slice":
        params["start_indices"] = (0, *params["start_indices"][1:])
        params["limit_indices"] = (count, *params["limit_indices"][1:])
    return operation.primitive.bind(*inputs, **params)
