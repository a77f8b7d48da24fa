"""Operations between a site and a density that are not analytic: where a conjugate form may hold on one side only.

Derivatives at some points say nothing about a bend, a step, a floor or a cap that lies elsewhere. So a continuous site
may have a conditional in closed form only where the program reaches no such operation from it, or where the branch of
every such operation is the same at thousands of values of the site. The operations are read off the traced program:
the sites are followed through it, into called functions, loops and conditionals.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.extend.core import ClosedJaxpr, Literal

Path = tuple[int, ...]


class Kink(NamedTuple):
    """An operation that is not analytic in some sites.

    path: of its equation in the trace, those of the functions that it is in first. operation: as programs call it.
    sites: that reach what decides on its branch. known: whether its branch can be computed.
    of_library: whether it is of a distribution or a function of NumPyro or bayeslab, and not of the program itself.
    """

    path: Path
    operation: str
    sites: frozenset[str]
    known: bool
    of_library: bool


class Scope(NamedTuple):
    """What equations are of. label: what programs call the function, if it is one of JAX. body: its file and name.

    of_library: whether it was called by NumPyro or bayeslab.
    """

    label: str = ""
    body: tuple[str, str] | None = None
    of_library: bool = False


class Reached(NamedTuple):
    """What reaches a variable of a trace.

    sites: continuous latent sites. kinks: paths of operations that are not analytic in them.
    test: of a truth value that depends on sites, the comparison that it comes from.
    """

    sites: frozenset[str] = frozenset()
    kinks: frozenset[Path] = frozenset()
    test: str = ""

    def __or__(self, other: "Reached") -> "Reached":
        return Reached(self.sites | other.sites, self.kinks | other.kinks, self.test or other.test)


NOTHING = Reached()
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "is_finite": "isfinite"}
NAMES = {
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
_BROKEN = {"abs", "sign", "floor", "ceil", "round", "sort", "argmax", "argmin", "cummax", "cummin", "top_k"}
_BROKEN |= {"max", "min", "reduce_max", "reduce_min", "rem", "clamp"}
_OPAQUE = {"nextafter", "bitcast_convert_type", "reduce_precision", "reduce_window_max"}
_OPAQUE |= {"shard_map", "pure_callback", "io_callback", "select_and_scatter_add", "reduce_window_min"}
"""Whose branch is not computed."""
INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")

_ROOTS = {
    name: os.path.dirname(module.__file__ or "") + os.sep for name, module in (("jax", jax), ("numpyro", numpyro))
}
_CALLED = (_ROOTS["jax"] + "_src/numpy/lax_numpy.py", _ROOTS["jax"] + "_src/nn/functions.py")
_SMOOTH_PROCESSES = (
    *("distribution.py", "dense.py", "low_rank.py", "hilbert_space.py", "inducing_points.py", "periodic.py"),
    *("cholesky.py", "moments.py", "state_space"),
)
"""Kernels are not among them: they are functions of programs."""
_OWN = str(FilePath(__file__).parents[2]) + os.sep
_LECTURES = _OWN + "models" + os.sep
"""Of an installed package; lectures are programs like those of users."""
SMOOTH_FILES = (
    *(_ROOTS["jax"] + file for file in ("_src/scipy/special.py", "_src/ops/special.py", "_src/lax/special.py")),
    _OWN + "distributions" + os.sep,
    *(_OWN + os.path.join("gaussian_processes", name) for name in _SMOOTH_PROCESSES),
)
"""Every function in these is analytic inside of its domain, though it is computed in pieces."""
SMOOTH = {
    (_ROOTS["jax"] + "_src/lax/other.py", ("logaddexp", "logaddexp2")),
    (
        _ROOTS["jax"] + "_src/nn/functions.py",
        ("softplus", "log_sigmoid", "softmax", "_softmax", "log_softmax", "logmeanexp", "log1mexp", "silu", "gelu"),
    ),
    (_ROOTS["jax"] + "_src/numpy/ufuncs.py", ("sinc", "logaddexp", "logaddexp2")),
    (_ROOTS["jax"] + "_src/numpy/linalg.py", ("slogdet", "det", "inv", "solve", "_slogdet_lu", "_det", "pinv")),
    (
        _ROOTS["numpyro"] + "distributions/util.py",
        ("clamp_probs", "binary_cross_entropy_with_logits", "logmatmulexp", "_to_probs_bernoulli", "log1mexp"),
    ),
    (_ROOTS["numpyro"] + "distributions/discrete.py", ("log_prob", "_to_logits_bernoulli", "_log_probs")),
    (_ROOTS["numpyro"] + "distributions/mixtures.py", ("log_prob",)),
    (_ROOTS["numpyro"] + "distributions/directional.py", ("log_prob",)),
    (_ROOTS["numpyro"] + "distributions/transforms.py", ("_clipped_expit", "log_abs_det_jacobian")),
}
"""The same of some functions of other files: smooth ones written with absolute values, and guards against rounding."""


def reached(traced: ClosedJaxpr, sources: Sequence[Sequence[str]]) -> tuple[list[Reached], dict[Path, Kink]]:
    """What reaches every output of a trace, and the operations named in that.

    sources: for every input the continuous sites that it is.
    """
    kinks: dict[Path, Kink] = {}
    given = [Reached(frozenset(names)) for names in sources]
    return _walk(traced.jaxpr, given, (), Scope(), kinks), kinks


def _walk(jaxpr: Any, given: Sequence[Reached], path: Path, scope: Scope, kinks: dict[Path, Kink]) -> list[Reached]:
    known = dict(zip(jaxpr.invars, given, strict=True))

    def read(variable: Any) -> Reached:
        return NOTHING if isinstance(variable, Literal) else known.get(variable, NOTHING)

    for place, equation in enumerate(jaxpr.eqns):
        inputs = [read(variable) for variable in equation.invars]
        if any(one.sites for one in inputs):
            outputs = _through(equation, inputs, (*path, place), scope, kinks)
            known.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _through(
    equation: Any,
    inputs: list[Reached],
    path: Path,
    scope: Scope,
    kinks: dict[Path, Kink],
) -> list[Reached]:
    """What reaches the outputs of one equation."""
    name, params = equation.primitive.name, equation.params
    every = _union(inputs)

    def kink(decides: Reached, operation: str, known: bool = True) -> Reached:
        if not decides.sites or _is_smooth(equation, scope.body):
            return every._replace(test="")
        computed = known and (path not in kinks or kinks[path].known)
        library = _is_of_library(equation, scope)
        shown = scope.label or _called(equation, scope) or operation
        kinks[path] = Kink(path, shown, decides.sites, computed, library)
        return Reached(every.sites, every.kinks | {path})

    def same(value: Reached) -> list[Reached]:
        return [value] * len(equation.outvars)

    def within(closed: Any, given: Sequence[Reached], place: int = 0) -> list[Reached]:
        inner = getattr(closed, "jaxpr", closed)
        body = _function_of(inner)
        called = name not in ("scan", "cond", "while")
        if (body is not None and _smooth(*body)) or (called and _is_smooth(equation, scope.body)):
            return [every._replace(test="")] * len(inner.outvars)
        label = scope.label or (body[1].strip("_") if body is not None and _of_jax(body[0]) else "")
        return _walk(inner, given, (*path, place), Scope(label, body, _is_of_library(equation, scope)), kinks)

    if name == "scan":
        return _of_scan(params, inputs, within)
    if name == "cond":
        index, operands = inputs[0], inputs[1:]
        found = [within(branch, operands, place) for place, branch in enumerate(params["branches"])]
        outputs = [_union(each) for each in zip(*found, strict=True)]
        if not index.sites:
            return outputs
        whole = kink(index, "cond")
        return [one | whole for one in outputs]
    if name == "while":
        return same(_of_while(equation, inputs, within, kink, kinks))
    if (inner := inner_of(params)) is not None:
        return within(inner, inputs)
    if name in COMPARISONS:
        return same(every._replace(test=COMPARISONS[name]))
    if name == "select_n":
        return same(kink(inputs[0], "where"))
    if name == "convert_element_type":
        return same(_of_cast(equation, every, kink))
    if name in _BROKEN:
        return same(kink(every, NAMES.get(name, name)))
    if name in _OPAQUE:
        return same(kink(every, name, known=False))
    kinds = [getattr(variable.aval, "dtype", None) for variable in equation.outvars]
    if any(kind is not None and jnp.issubdtype(kind, jnp.integer) for kind in kinds) and _real(equation, inputs):
        return same(kink(every, name))  # a place in an array, for example
    return same(every if all(kind == np.bool_ for kind in kinds) else every._replace(test=""))


def _real(equation: Any, inputs: Sequence[Reached]) -> bool:
    """Whether sites reach an operation as real numbers."""
    pairs = zip(equation.invars, inputs, strict=True)
    return any(one.sites and jnp.issubdtype(variable.aval.dtype, jnp.floating) for variable, one in pairs)


def _of_cast(equation: Any, every: Reached, kink: Callable[..., Reached]) -> Reached:
    """Truth values and real numbers that become integers; real numbers of another precision change nothing."""
    before, after = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    if before == np.bool_ and after != np.bool_:
        return kink(every, every.test or "astype")
    if jnp.issubdtype(before, jnp.floating) and jnp.issubdtype(after, jnp.integer):
        return kink(every, "astype")
    return every._replace(test="!=") if after == np.bool_ and before != np.bool_ else every


def _of_scan(params: dict[str, Any], inputs: list[Reached], within: Callable[..., list[Reached]]) -> list[Reached]:
    """A carry is reached by what reaches it in any step."""
    fixed, carried = scan_counts(params)
    carry = inputs[fixed : fixed + carried]
    while True:
        outputs = within(params["jaxpr"], [*inputs[:fixed], *carry, *inputs[fixed + carried :]])
        new = [one | other for one, other in zip(carry, outputs[:carried], strict=True)]
        if new == carry:
            return [*new, *outputs[carried:]]
        carry = new


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many inputs of a scan are the same in all steps, and how many are carried from one to the next."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = map(len, params["ft_in"].unpack())  # since JAX 0.12
    return fixed, carried


def _of_while(
    equation: Any,
    inputs: list[Reached],
    within: Callable[..., list[Reached]],
    kink: Callable[..., Reached],
    kinks: dict[Path, Kink],
) -> Reached:
    """A loop whose number of steps depends on sites is not analytic; branches within it are not computed."""
    params = equation.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    carry, known = inputs[second:], set(kinks)
    while True:
        outputs = within(params["body_jaxpr"], [*inputs[first:second], *carry])
        new = [one | other for one, other in zip(carry, outputs, strict=True)]
        if new == carry:
            break
        carry = new
    for path in set(kinks) - known:
        kinks[path] = kinks[path]._replace(known=False)
    goes_on = _union(within(params["cond_jaxpr"], [*inputs[:first], *carry], 1))
    decided = kink(goes_on, "while_loop", known=False) if goes_on.sites else NOTHING
    return _union(carry) | decided


def _union(flows: Sequence[Reached]) -> Reached:
    found = NOTHING
    for flow in flows:
        found = found | flow
    return found


def _is_smooth(equation: Any, body: tuple[str, str] | None) -> bool:
    """Whether an equation is of a smooth function that was called without being compiled by itself.

    Frames beyond the function that the equation is of are those of its first caller, not of this one.
    """
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        file, function = frame.file_name, frame.function_name.rpartition(".")[2]
        if _smooth(file, function):
            return True
        if (file, function) == body or not _of_library(file):
            return False
    return False


def _is_of_library(equation: Any, scope: Scope) -> bool:
    """Whether an equation is of NumPyro or bayeslab: who called the functions of JAX that it is of."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if (frame.file_name, frame.function_name.rpartition(".")[2]) == scope.body:
            return scope.of_library
        if not _of_jax(frame.file_name):
            return _of_library(frame.file_name)
    return scope.of_library


def _called(equation: Any, scope: Scope) -> str:
    """The function of `jax.numpy` or `jax.nn` that an equation is of, as a program or a distribution called it."""
    traceback, found = equation.source_info.traceback, ""
    for frame in traceback.frames if traceback is not None else ():
        if not _of_jax(frame.file_name) or (frame.file_name, frame.function_name) == scope.body:
            return found
        if frame.file_name.startswith(_CALLED) and not frame.function_name.startswith("_"):
            found = frame.function_name if "." not in frame.function_name else found
    return ""


def _smooth(file: str, function: str) -> bool:
    if file.startswith(SMOOTH_FILES):
        return True
    return any(file == other and function in functions for other, functions in SMOOTH)


def inner_of(params: dict[str, Any]) -> Any:
    """The jaxpr of the function that an equation calls, None where it calls none."""
    return next((params[key] for key in INNER if key in params), None)


def _function_of(jaxpr: Any) -> tuple[str, str] | None:
    """The file and the name of the function that was traced."""
    told = getattr(jaxpr.debug_info, "func_src_info", None) or ""
    name, _, place = told.partition(" at ")
    return (place.rpartition(":")[0], name.rpartition(".")[2]) if place else None


def _of_jax(file: str) -> bool:
    return file.startswith(_ROOTS["jax"])


def _of_library(file: str) -> bool:
    """Whether a file is of JAX, NumPyro, or of what programs are run and traced with."""
    own = file.startswith((*_ROOTS.values(), _OWN)) and not file.startswith(_LECTURES)
    return own or f"{os.sep}tinygp{os.sep}" in file
