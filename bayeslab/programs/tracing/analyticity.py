"""Operations between a site and a density that are not analytic: where a conjugate form may hold on one side only.

Derivatives at some points say nothing about a bend, a step, a floor or a cap that lies elsewhere. So a continuous site
may have a conditional in closed form only where the program reaches no such operation from it, or where the branch of
every such operation is the same at thousands of values of the site. The operations are read off the traced program:
the sites are followed through it, into called functions, loops and conditionals.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from bayeslab.programs.tracing.library_files import PUBLIC_JAX_FILES, is_analytic_function, is_jax_file, is_library_file

EquationPath = tuple[int, ...]


class Kink(NamedTuple):
    """An operation that is not analytic in some sites.

    path: indices of the functions that its equation is in, from the outermost, and its own. operation: the name that
    programs call it by. sites: the sites that reach what decides on its branch. known: whether its branch can be
    computed. of_library: whether a distribution or function of NumPyro or bayeslab calls it, not the program itself.
    is_continuous: whether its values have bends alone, no jumps.
    """

    path: EquationPath
    operation: str
    sites: frozenset[str]
    known: bool
    of_library: bool
    is_continuous: bool


class Scope(NamedTuple):
    """The function whose equations are read. label: what programs call it, if it is of JAX. body: its file and name.

    of_library: whether it was called by NumPyro or bayeslab.
    """

    label: str = ""
    body: tuple[str, str] | None = None
    of_library: bool = False


class Dependencies(NamedTuple):
    """What reaches a variable of a trace.

    sites: continuous latent sites. kinks: paths of operations that are not analytic in them.
    test: for a truth value that depends on sites, the comparison that it comes from.
    """

    sites: frozenset[str] = frozenset()
    kinks: frozenset[EquationPath] = frozenset()
    test: str = ""

    def __or__(self, other: "Dependencies") -> "Dependencies":
        return Dependencies(self.sites | other.sites, self.kinks | other.kinks, self.test or other.test)


NO_DEPENDENCIES = Dependencies()
COMPARISON_SYMBOLS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "is_finite": "isfinite"}
PROGRAM_NAMES = {
    "max": "maximum",
    "min": "minimum",
    "reduce_max": "max",
    "reduce_min": "min",
    "rem": "remainder",
    "clamp": "clip",
    "select_n": "where",
    "while": "while_loop",
    "convert_element_type": "astype",
}
_PIECEWISE_PRIMITIVES = {"sign", "floor", "ceil", "round", "argmax", "argmin", "top_k"}
_CONTINUOUS_PRIMITIVES = {"abs", "sort", "cummax", "cummin", "max", "min", "reduce_max", "reduce_min", "clamp"}
_PIECEWISE_PRIMITIVES |= {"rem"} | _CONTINUOUS_PRIMITIVES
_OPAQUE_PRIMITIVES = {"nextafter", "bitcast_convert_type", "reduce_precision", "reduce_window_max"}
_OPAQUE_PRIMITIVES |= {"shard_map", "pure_callback", "io_callback", "select_and_scatter_add", "reduce_window_min"}
"""Primitives that are not analytic and whose branch is not computed."""
JAXPR_PARAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def trace_dependencies(
    traced: ClosedJaxpr, sources: Sequence[Sequence[str]]
) -> tuple[list[Dependencies], dict[EquationPath, Kink]]:
    """What reaches every output of a trace, and the operations that are not analytic, by path.

    sources: for every input the names of the continuous sites that it holds.
    """
    kinks: dict[EquationPath, Kink] = {}
    inputs = [Dependencies(frozenset(names)) for names in sources]
    return _walk_jaxpr(traced.jaxpr, inputs, (), Scope(), kinks), kinks


def _walk_jaxpr(
    jaxpr: Any, given: Sequence[Dependencies], path: EquationPath, scope: Scope, kinks: dict[EquationPath, Kink]
) -> list[Dependencies]:
    known = dict(zip(jaxpr.invars, given, strict=True))

    def read(variable: Any) -> Dependencies:
        return NO_DEPENDENCIES if isinstance(variable, Literal) else known.get(variable, NO_DEPENDENCIES)

    for index, equation in enumerate(jaxpr.eqns):
        inputs = [read(variable) for variable in equation.invars]
        if any(value.sites for value in inputs):
            outputs = _equation_dependencies(equation, inputs, (*path, index), scope, kinks)
            known.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _equation_dependencies(
    equation: Any,
    inputs: list[Dependencies],
    path: EquationPath,
    scope: Scope,
    kinks: dict[EquationPath, Kink],
) -> list[Dependencies]:
    """What reaches the outputs of one equation."""
    name, params = equation.primitive.name, equation.params
    every = _union(inputs)

    def kink(decides: Dependencies, operation: str, known: bool = True) -> Dependencies:
        if not decides.sites or _is_within_analytic_function(equation, scope.body):
            return every._replace(test="")
        computed = known and (path not in kinks or kinks[path].known)
        library = _is_called_by_library(equation, scope)
        shown_name = scope.label or _jax_function_name(equation, scope) or operation
        kinks[path] = Kink(path, shown_name, decides.sites, computed, library, name in _CONTINUOUS_PRIMITIVES)
        return Dependencies(every.sites, every.kinks | {path})

    def same(value: Dependencies) -> list[Dependencies]:
        return [value] * len(equation.outvars)

    def within(closed: Any, given: Sequence[Dependencies], place: int = 0) -> list[Dependencies]:
        inner = getattr(closed, "jaxpr", closed)
        body = _traced_function(inner)
        called = name not in ("scan", "cond", "while")
        if (body is not None and is_analytic_function(*body)) or (
            called and _is_within_analytic_function(equation, scope.body)
        ):
            return [every._replace(test="")] * len(inner.outvars)
        label = scope.label or (body[1].strip("_") if body is not None and is_jax_file(body[0]) else "")
        return _walk_jaxpr(
            inner, given, (*path, place), Scope(label, body, _is_called_by_library(equation, scope)), kinks
        )

    if name == "scan":
        return _scan_dependencies(params, inputs, within)
    if name == "cond":
        index, operands = inputs[0], inputs[1:]
        by_branch = [within(branch, operands, number) for number, branch in enumerate(params["branches"])]
        outputs = [_union(values) for values in zip(*by_branch, strict=True)]
        if not index.sites:
            return outputs
        choice = kink(index, "cond")
        return [output | choice for output in outputs]
    if name == "while":
        return same(_while_dependencies(equation, inputs, within, kink, kinks))
    if (inner := called_jaxpr(params)) is not None:
        return within(inner, inputs)
    if name in COMPARISON_SYMBOLS:
        return same(every._replace(test=COMPARISON_SYMBOLS[name]))
    if name == "select_n":
        return same(kink(inputs[0], "where"))
    if name == "convert_element_type":
        return same(_cast_dependencies(equation, every, kink))
    if name in _PIECEWISE_PRIMITIVES:
        return same(kink(every, PROGRAM_NAMES.get(name, name)))
    if name in _OPAQUE_PRIMITIVES:
        return same(kink(every, name, known=False))
    kinds = [getattr(variable.aval, "dtype", None) for variable in equation.outvars]
    if any(kind is not None and jnp.issubdtype(kind, jnp.integer) for kind in kinds) and _has_real_dependence(
        equation, inputs
    ):
        return same(kink(every, name))  # an index into an array, for example
    return same(every if all(kind == np.bool_ for kind in kinds) else every._replace(test=""))


def _has_real_dependence(equation: Any, inputs: Sequence[Dependencies]) -> bool:
    """Whether an input that sites reach holds real numbers."""
    pairs = zip(equation.invars, inputs, strict=True)
    return any(value.sites and jnp.issubdtype(variable.aval.dtype, jnp.floating) for variable, value in pairs)


def _cast_dependencies(equation: Any, every: Dependencies, kink: Callable[..., Dependencies]) -> Dependencies:
    """What reaches a cast: it is not analytic where truth values or real numbers become integers."""
    before, after = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    if before == np.bool_ and after != np.bool_:
        return kink(every, every.test or "astype")
    if jnp.issubdtype(before, jnp.floating) and jnp.issubdtype(after, jnp.integer):
        return kink(every, "astype")
    return every._replace(test="!=") if after == np.bool_ and before != np.bool_ else every


def _scan_dependencies(
    params: dict[str, Any], inputs: list[Dependencies], within: Callable[..., list[Dependencies]]
) -> list[Dependencies]:
    """What reaches the outputs of a scan: a carry is reached by what reaches it in any step."""
    fixed, carried = scan_counts(params)
    carry = inputs[fixed : fixed + carried]
    while True:
        outputs = within(params["jaxpr"], [*inputs[:fixed], *carry, *inputs[fixed + carried :]])
        new = [before | after for before, after in zip(carry, outputs[:carried], strict=True)]
        if new == carry:
            return [*new, *outputs[carried:]]
        carry = new


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """The numbers of inputs of a scan that are the same in all steps, and that are carried from step to step."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = map(len, params["ft_in"].unpack())  # since JAX 0.12
    return fixed, carried


def _while_dependencies(
    equation: Any,
    inputs: list[Dependencies],
    within: Callable[..., list[Dependencies]],
    kink: Callable[..., Dependencies],
    kinks: dict[EquationPath, Kink],
) -> Dependencies:
    """What reaches a loop, which is not analytic where sites decide how many steps it takes.

    Branches within it are not computed.
    """
    params = equation.params
    start_body, start_carry = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    carry, known = inputs[start_carry:], set(kinks)
    while True:
        outputs = within(params["body_jaxpr"], [*inputs[start_body:start_carry], *carry])
        new = [before | after for before, after in zip(carry, outputs, strict=True)]
        if new == carry:
            break
        carry = new
    for path in set(kinks) - known:
        kinks[path] = kinks[path]._replace(known=False)
    goes_on = _union(within(params["cond_jaxpr"], [*inputs[:start_body], *carry], 1))
    decided = kink(goes_on, "while_loop", known=False) if goes_on.sites else NO_DEPENDENCIES
    return _union(carry) | decided


def _union(flows: Sequence[Dependencies]) -> Dependencies:
    union = NO_DEPENDENCIES
    for flow in flows:
        union = union | flow
    return union


def _is_within_analytic_function(equation: Any, body: tuple[str, str] | None) -> bool:
    """Whether an equation is of an analytic function that was called without being compiled by itself.

    Frames beyond the function that the equation is of are those of its first caller, not of this one.
    """
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        file, function = frame.file_name, frame.function_name.rpartition(".")[2]
        if is_analytic_function(file, function):
            return True
        if (file, function) == body or not is_library_file(file):
            return False
    return False


def _is_called_by_library(equation: Any, scope: Scope) -> bool:
    """Whether NumPyro or bayeslab called the functions of JAX that an equation is of."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if (frame.file_name, frame.function_name.rpartition(".")[2]) == scope.body:
            return scope.of_library
        if not is_jax_file(frame.file_name):
            return is_library_file(frame.file_name)
    return scope.of_library


def _jax_function_name(equation: Any, scope: Scope) -> str:
    """The function of `jax.numpy` or `jax.nn` that an equation is of, as a program or a distribution called it."""
    traceback, name = equation.source_info.traceback, ""
    for frame in traceback.frames if traceback is not None else ():
        if not is_jax_file(frame.file_name) or (frame.file_name, frame.function_name) == scope.body:
            return name
        if frame.file_name.startswith(PUBLIC_JAX_FILES) and not frame.function_name.startswith("_"):
            name = frame.function_name if "." not in frame.function_name else name
    return ""


def called_jaxpr(params: dict[str, Any]) -> Any:
    """The jaxpr of the function that an equation calls, None where it calls none."""
    return next((params[key] for key in JAXPR_PARAMS if key in params), None)


def _traced_function(jaxpr: Any) -> tuple[str, str] | None:
    """The file and the name of the function that was traced; None where JAX does not say."""
    source_info = getattr(jaxpr.debug_info, "func_src_info", None) or ""
    name, _, location = source_info.partition(" at ")
    return (location.rpartition(":")[0], name.rpartition(".")[2]) if location else None
