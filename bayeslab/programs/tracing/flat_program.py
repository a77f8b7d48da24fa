"""A traced function as a flat list of operations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun

CALLS = ("jit", "pjit", "closed_call", "core_call", "core_closed_call", "checkpoint", "remat2")
"""Operations that only call others."""


class Operation(NamedTuple):
    """One operation.

    inputs: numbers of values, or constants. outputs: numbers of values. shapes, dtypes: of these. input_shapes,
    input_dtypes: of the former. alone: the operation as a trace, where it calls functions.
    """

    primitive: Any
    params: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[Any, ...]
    alone: ClosedJaxpr | None = None

    @property
    def name(self) -> str:
        return self.primitive.name

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        if self.alone is not None:
            return jaxpr_as_fun(self.alone)(*values)
        result = self.primitive.bind(*values, **self.params)
        return result if self.primitive.multiple_results else [result]


class FlatProgram(NamedTuple):
    """A function as a flat list of operations.

    inputs: the numbers of its arguments. constants: values by number. outputs: the numbers of its results, or what
    these are, where they are constants.
    """

    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    constants: dict[int, Any]
    outputs: tuple[Any, ...]


class Constant(NamedTuple):
    """An operand that is written into the program."""

    value: Any


def flatten(traced: ClosedJaxpr) -> FlatProgram:
    """A trace as a flat list, calls replaced by what they call."""
    operations: list[Operation] = []
    constants: dict[int, Any] = {}
    counter = iter(range(10**9))

    def walk(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
        env |= dict(zip(jaxpr.constvars, consts, strict=True))

        def read(variable: Any) -> Any:
            return Constant(variable.val) if isinstance(variable, Literal) else env[variable]

        for equation in jaxpr.eqns:
            inputs = [read(variable) for variable in equation.invars]
            if equation.primitive.name in CALLS:
                inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
                body, inner_consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
                outputs = walk(body, [constant(each) for each in inner_consts], inputs)
                env.update(zip(equation.outvars, outputs, strict=True))
                continue
            numbers = [next(counter) for _ in equation.outvars]
            kinds = (*_kinds(equation.outvars), *_kinds(equation.invars))
            alone = _alone(jaxpr, equation) if equation.primitive.name.startswith("custom_") else None
            described = (equation.primitive, equation.params, tuple(inputs), tuple(numbers), *kinds)
            operations.append(Operation(*described, alone=alone))
            env.update(zip(equation.outvars, numbers, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def constant(value: Any) -> int:
        number = next(counter)
        constants[number] = value
        return number

    arguments = [next(counter) for _ in traced.jaxpr.invars]
    outputs = walk(traced.jaxpr, [constant(each) for each in traced.consts], arguments)
    return FlatProgram(tuple(operations), tuple(arguments), constants, tuple(outputs))


def _alone(jaxpr: Any, equation: Any) -> ClosedJaxpr:
    """One operation of a trace as a trace of its own, a function of all its operands."""
    inputs = [Var(variable.aval) for variable in equation.invars]
    names = jaxpr.debug_info.with_unknown_names()
    part = equation.replace(invars=inputs)
    return ClosedJaxpr(
        jaxpr.replace(constvars=[], invars=inputs, outvars=equation.outvars, eqns=[part], debug_info=names), []
    )


def _kinds(variables: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Shapes and types of some variables."""
    avals = [variable.aval for variable in variables]
    return tuple(getattr(a, "shape", ()) for a in avals), tuple(getattr(a, "dtype", None) for a in avals)


def reached_values(program: FlatProgram, number: int) -> set[int]:
    """The numbers of all values that one value reaches."""
    reached = {number}
    for operation in program.operations:
        if any(not isinstance(each, Constant) and each in reached for each in operation.inputs):
            reached |= set(operation.outputs)
    return reached


def run_operations(operations: Sequence[Operation], values: dict[int, Any]) -> dict[int, Any]:
    """Values with those that some operations make."""
    values = dict(values)
    for operation in operations:
        inputs = [each.value if isinstance(each, Constant) else values[each] for each in operation.inputs]
        values.update(zip(operation.outputs, operation.run(inputs), strict=True))
    return values


def operations_before(program: FlatProgram, number: int) -> list[Operation]:
    """The operations that make a value, in order."""
    wanted, chosen = {number}, []
    for operation in reversed(program.operations):
        if not wanted.isdisjoint(operation.outputs):
            chosen.append(operation)
            wanted |= {each for each in operation.inputs if not isinstance(each, Constant)}
    return chosen[::-1]


def concrete(program: FlatProgram, known: dict[int, Any], number: int) -> np.ndarray:
    """A value that depends on known ones alone. known: by number."""
    operations = operations_before(program, number)
    wanted = {each for one in operations for each in one.inputs if not isinstance(each, Constant)} | {number}
    values = {each: known[each] for each in wanted if each in known}
    if not operations:
        return np.asarray(values[number])
    run = jax.jit(lambda given: run_operations(operations, given)[number])
    return np.asarray(run(values))
