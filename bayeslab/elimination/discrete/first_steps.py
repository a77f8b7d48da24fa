"""A program run for its first steps alone: where arrays have the steps along their first axis, a few rows are enough.

Operations that work row by row are run with the rows that are wanted; any other is run whole.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from bayeslab.elimination.discrete.flat_program import Constant, Operation, run_operations
from bayeslab.elimination.discrete.scopes import ADDED, BENT, SAME_SUM

ROW_BY_ROW = (*SAME_SUM, *ADDED, *BENT, "mul", "div", "integer_pow", "square", "select_n", "convert_element_type")
MAX_OPERATIONS = 300
"""Operations of a program, beyond which it is run whole."""


class FirstSteps:
    """Runs some operations for the first rows of their values. values: what they start from, by number."""

    def __init__(self, operations: Sequence[Operation], values: dict[int, Any]) -> None:
        self.operations, self.values = operations, dict(values)
        self.made = {output: operation for operation in operations for output in operation.outputs}
        self.found: dict[tuple[int, int], Any] = {}

    def rows(self, number: int, count: int) -> Any:
        """The first rows of a value."""
        if number in self.values:
            return self.values[number][:count]
        if (number, count) not in self.found:
            operation = self.made[number]
            needed = _rows_needed(operation, count) if len(self.operations) <= MAX_OPERATIONS else None
            if needed is None:
                self.found[number, count] = self._whole(number)[:count]
            else:
                pairs = zip(operation.inputs, needed, strict=True)
                inputs = [self._operand(operand, own) for operand, own in pairs]
                self.found[number, count] = _run_rows(operation, inputs, count)
        return self.found[number, count]

    def _operand(self, operand: Any, count: int | None) -> Any:
        if isinstance(operand, Constant):
            return operand.value
        return self._whole(operand) if count is None else self.rows(operand, count)

    def _whole(self, number: int) -> Any:
        if number not in self.values:
            wanted, needed = {number}, []
            for operation in reversed(self.operations):
                if not wanted.isdisjoint(operation.outputs) and not self.values.keys() >= set(operation.outputs):
                    needed.append(operation)
                    wanted |= {each for each in operation.inputs if not isinstance(each, Constant)}
            self.values = run_operations(needed[::-1], self.values)
        return self.values[number]


def _rows_needed(operation: Operation, count: int) -> list[int | None] | None:
    """How many rows of each operand give so many rows of a result: None for all of an operand that has no steps.

    None where the operation does not work row by row.
    """
    name, params, inputs = operation.name, operation.params, operation.input_shapes
    if len(operation.outputs) > 1 or not operation.shapes[0]:
        return None
    [shape] = operation.shapes
    if name in ROW_BY_ROW:
        return [count if each == shape else None for each in inputs] if all(e in (shape, ()) for e in inputs) else None
    if name == "broadcast_in_dim":
        axes = params["broadcast_dimensions"]
        return [count if axes[:1] == (0,) and inputs[0][0] == shape[0] else None] if len(inputs) == 1 else None
    if name == "squeeze":
        return [count] if 0 not in params["dimensions"] else None
    if name == "reshape":
        return [count] if inputs[0][:1] == shape[:1] else None
    if name == "concatenate" and params["dimension"] == 0:
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


def _run_rows(operation: Operation, inputs: Sequence[Any], count: int) -> Any:
    """One operation with so many rows of its result."""
    name, params, [shape] = operation.name, dict(operation.params), operation.shapes
    if name == "broadcast_in_dim":
        params["shape"] = (count, *shape[1:])
    elif name == "reshape":
        params["new_sizes"] = (count, *shape[1:])
    elif name == "slice":
        params["limit_indices"] = (params["start_indices"][0] + count, *params["limit_indices"][1:])
    elif name == "concatenate":
        inputs = [jnp.asarray(each)[:count] for each in inputs]
    return operation.primitive.bind(*inputs, **params)
