"""Functions that are the same computation, compiled once.

A program with many sites has few kinds of them. What is to be proven of each site is traced, and stripped of the
inputs that it does not need; where the code of several reads the same, it is compiled once for all of them.
"""

import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from jax.stages import Compiled, Lowered

UNOPTIMISED_OPTIONS = {"xla_backend_optimization_level": 0}
"""Options of the compiler for code that runs a few times on little data: they take a third off compilation."""
OPTIMISED_OPTIONS = {"xla_backend_optimization_level": 1}
"""Options of the compiler for code that runs on much data."""
MIN_NUMBERS_TO_OPTIMISE = 50_000
"""Numbers in the argument from which optimised code saves, in a few runs, more time than it takes to compile."""
MAX_REMEMBERED_FUNCTIONS = 256
"""Largest number of functions that are remembered: each holds some of the 65,530 memory maps of a Linux process."""


class CompiledFunction(NamedTuple):
    """A function that is compiled. run: the code. leaves: indices of the leaves of the argument that it takes.

    tree: the structure of what the function returns.
    """

    run: Compiled
    leaves: tuple[int, ...]
    tree: Any


_compiled_functions: dict[Any, CompiledFunction] = {}
_executables: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
"""Compiled code by the SHA-256 of its text before optimisation, kept while a piece uses it."""


@lru_cache(maxsize=MAX_REMEMBERED_FUNCTIONS)
def partial_once(function: Callable[..., Any], structure: Hashable) -> Callable[[Any], Any]:
    """The function with its first argument, one object for equal ones: `evaluate_all` remembers its code."""
    return partial(function, structure)


def evaluate_all(functions: Sequence[Callable[[Any], Any]], argument: Any) -> list[Any]:
    """The values of several functions of one argument, on the host.

    Compiled code is remembered for the same functions, by identity, and arguments of the same structure.
    """
    leaves, tree = jax.tree.flatten(argument)
    types = (tree, tuple(jax.typeof(leaf) for leaf in leaves))
    keys = [(function, types) for function in functions]
    _compile_functions([key for key in keys if key not in _compiled_functions], argument)
    pieces = [_compiled_functions[key] for key in keys]
    for key in list(_compiled_functions)[:-MAX_REMEMBERED_FUNCTIONS]:
        _compiled_functions.pop(key, None)
    outputs = [piece.run(*(leaves[index] for index in piece.leaves)) for piece in pieces]
    return [
        jax.tree.unflatten(piece.tree, values) for piece, values in zip(pieces, jax.device_get(outputs), strict=True)
    ]


def _compile_functions(keys: Sequence[Any], argument: Any) -> None:
    """Add a piece for every key, (function, types of its argument); code that is new is compiled in threads."""
    lowered = {key: _lower(key[0], argument) for key in keys}
    names = {key: sha256(lowered[key][0].as_text().encode()).hexdigest() for key in keys}
    compiled = {name: code for name in names.values() if (code := _executables.get(name)) is not None}
    new = {name: lowered[key][0] for key, name in names.items() if name not in compiled}
    options = (
        OPTIMISED_OPTIONS
        if sum(map(np.size, jax.tree.leaves(argument))) >= MIN_NUMBERS_TO_OPTIMISE
        else UNOPTIMISED_OPTIONS
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda code: code.compile(compiler_options=options), new.values())
        compiled |= zip(new, built, strict=True)
    _executables.update(compiled)
    for key in keys:
        _compiled_functions[key] = CompiledFunction(compiled[names[key]], *lowered[key][1:])


def _lower(function: Callable[[Any], Any], argument: Any) -> tuple[Lowered, tuple[int, ...], Any]:
    """The lowered code of a function, the indices of the leaves that it takes, and the structure of its value."""
    traced, shape = jax.make_jaxpr(function, return_shape=True)(argument)
    needed, used = dce_jaxpr(traced.jaxpr, [True] * len(traced.out_avals))  # also within loops
    indices = tuple(index for index, is_used in enumerate(used) if is_used)
    run = jaxpr_as_fun(ClosedJaxpr(needed.replace(debug_info=needed.debug_info.with_unknown_names()), traced.consts))
    leaves = jax.tree.leaves(argument)
    lowered = jax.jit(run, keep_unused=True).lower(*(leaves[index] for index in indices))
    return lowered, indices, jax.tree.structure(shape)


def prune_trace(traced: ClosedJaxpr, outputs: Sequence[int]) -> tuple[ClosedJaxpr, tuple[int, ...]]:
    """A trace of some outputs with the equations that they need, and the indices of the inputs that they need.

    outputs: indices of the outputs.
    """
    equations, ends = [], [traced.jaxpr.outvars[index] for index in outputs]
    needed = {v for v in ends if not isinstance(v, Literal)}
    for equation in reversed(traced.jaxpr.eqns):
        if needed & set(equation.outvars):
            equations.append(equation)
            needed |= {v for v in equation.invars if not isinstance(v, Literal)}
    unnamed = traced.jaxpr.debug_info.with_unknown_names()
    part = traced.jaxpr.replace(eqns=equations[::-1], outvars=ends, debug_info=unnamed)
    indices = tuple(index for index, variable in enumerate(part.invars) if variable in needed)
    return ClosedJaxpr(part, traced.consts), indices
