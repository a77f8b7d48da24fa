"""Loops whose steps do not need each other, as operations on all steps at once.

A scan over given values of its sites hardly ever computes anything in sequence: what is carried from one step to the
next is a value of the step before, which is known. So every scan of a trace is distributed (Kennedy and McKinley 1990,
doi:10.1145/110518.110523): what does not depend on itself is computed for all steps at once, in order of dependence,
and only what does, as the variance of a GARCH model, stays a loop.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from bayeslab.programs.tracing.loops.loop_steps import Loop, run_alone

SEQUENTIAL = ("cond", "while")
"""Operations of a body that would do more, or other, work for all steps at once."""
MAX_NUMBERS = 5 * 10**7
"""Numbers of one value at all steps at once, at most."""


def distribute_loops(traced: ClosedJaxpr) -> ClosedJaxpr:
    """A trace with every scan distributed that can be; the same function."""
    if not any(equation.primitive.name == "scan" for equation in traced.jaxpr.eqns):
        return traced
    arguments: list[Any] = [v.aval for v in traced.jaxpr.invars]
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in arguments]
    return jax.make_jaxpr(lambda *given: _run(traced, given))(*shapes)


def _run(traced: ClosedJaxpr, given: Sequence[Any]) -> list[Any]:
    jaxpr = traced.jaxpr
    env = dict(zip(jaxpr.invars, given, strict=True)) | dict(zip(jaxpr.constvars, traced.consts, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else env[variable]

    used = {v for each in jaxpr.eqns for v in each.invars if isinstance(v, Var)}
    used |= {v for v in jaxpr.outvars if isinstance(v, Var)}
    for equation in jaxpr.eqns:
        inputs = [read(variable) for variable in equation.invars]
        if equation.primitive.name == "scan" and is_distributable(equation):
            outputs = Loop(equation, inputs).outputs([variable in used for variable in equation.outvars])
        else:
            outputs = run_alone(jaxpr, equation)(*inputs)
        env.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def is_distributable(equation: Any) -> bool:
    """Whether a scan may be distributed: none of its operations is sequential itself, and its values are not large."""
    length = equation.params["length"]
    equations = equation.params["jaxpr"].jaxpr.eqns
    sizes = [int(np.prod(v.aval.shape)) for each in equations for v in each.outvars if hasattr(v.aval, "shape")]
    sequential = any(each.primitive.name in SEQUENTIAL for each in equations)
    return length > 1 and not sequential and length * max(sizes, default=1) <= MAX_NUMBERS
