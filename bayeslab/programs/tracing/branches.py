"""Which branch operations that are not analytic take: the evaluation of a trace that records some equations."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from bayeslab.programs.tracing.analyticity import EquationPath, Kink, called_jaxpr, scan_counts


def branch_indicators(traced: ClosedJaxpr, kinks: Sequence[Kink], inputs: Sequence[Any]) -> list[Array]:
    """For every kink an array that says which branch it takes at these inputs, to be compared with others.

    kinks: those whose branch can be computed.
    """
    wanted = {kink.path for kink in kinks}
    taken: dict[EquationPath, Array] = {}
    _evaluate_jaxpr(traced.jaxpr, traced.consts, inputs, (), wanted, taken)
    return [taken[kink.path] for kink in kinks]


def _evaluate_jaxpr(
    jaxpr: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    path: EquationPath,
    wanted: set[EquationPath],
    taken: dict[EquationPath, Array],
) -> list[Any]:
    """The outputs of a jaxpr. The branches of the operations whose paths are wanted are added to `taken`."""
    values = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for index, equation in enumerate(jaxpr.eqns):
        equation_path = (*path, index)
        inputs = [read(variable) for variable in equation.invars]
        if any(len(p) > len(equation_path) and p[: len(equation_path)] == equation_path for p in wanted):
            outputs = _evaluate_calls(jaxpr, equation, inputs, equation_path, wanted, taken)
        else:
            outputs = _evaluate_equation(jaxpr, equation, inputs)
        if equation_path in wanted:
            taken[equation_path] = _branch_indicator(equation, inputs, outputs)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _evaluate_equation(jaxpr: Any, equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of one equation of a jaxpr."""
    arguments = {v: x for v, x in zip(equation.invars, inputs, strict=True) if not isinstance(v, Literal)}
    parts = {"constvars": [], "invars": [*arguments], "outvars": equation.outvars, "eqns": [equation]}
    single = jaxpr.replace(**parts, debug_info=jaxpr.debug_info.with_unknown_names())
    return jaxpr_as_fun(ClosedJaxpr(single, []))(*arguments.values())


def _evaluate_calls(
    jaxpr: Any,
    equation: Any,
    inputs: list[Any],
    path: EquationPath,
    wanted: set[EquationPath],
    taken: dict[EquationPath, Array],
) -> Sequence[Any]:
    """The outputs of an equation that calls functions. The wanted branches in them are added to `taken`."""
    name, params = equation.primitive.name, equation.params

    def run(closed: Any, args: Sequence[Any], place: int, into: dict[EquationPath, Array]) -> list[Any]:
        inner, consts = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
        return _evaluate_jaxpr(inner, consts, args, (*path, place), wanted, into)

    if name == "scan":
        fixed, carried = scan_counts(params)

        def step(carry: Any, row: Any) -> Any:
            inner: dict[EquationPath, Array] = {}
            outputs = run(params["jaxpr"], [*inputs[:fixed], *carry, *row], 0, inner)
            return outputs[:carried], (outputs[carried:], inner)

        start, rows = inputs[fixed : fixed + carried], inputs[fixed + carried :]
        last, (stacked, inner) = jax.lax.scan(step, start, rows, params["length"], params["reverse"])
        taken.update(inner)
        return [*last, *stacked]
    if name == "cond":
        for number, branch in enumerate(params["branches"]):
            run(branch, inputs[1:], number, taken)
        return _evaluate_equation(jaxpr, equation, inputs)
    return run(called_jaxpr(params), inputs, 0, taken)


def _branch_indicator(equation: Any, inputs: list[Any], outputs: Sequence[Any]) -> Array:
    """An array that differs between the branches of an operation."""
    name, first = equation.primitive.name, jnp.asarray(inputs[0])
    if name in ("max", "min"):
        return first >= inputs[1]
    if name == "abs":
        return first >= 0
    if name == "clamp":
        return (inputs[1] < first).astype(int) + 2 * (inputs[1] > inputs[2])
    if name == "rem":
        return jnp.trunc(first / inputs[1])
    if name == "sort":
        return jnp.argsort(first, axis=equation.params["dimension"])
    if name in ("reduce_max", "reduce_min"):
        return first == jnp.expand_dims(outputs[0], equation.params["axes"])
    if name in ("cummax", "cummin"):
        return first == outputs[0]
    if name == "top_k":
        return outputs[1]
    if name in ("select_n", "cond") or first.dtype == np.bool_:
        return first
    return outputs[0]
