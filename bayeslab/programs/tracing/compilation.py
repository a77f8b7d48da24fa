"""Functions that are the same computation, compiled once.

A program with many sites has few kinds of them. What is to be proven of each site is traced, and stripped of the
inputs that it does not need; where the code of several reads the same, it is compiled once for all of them.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.stages import Compiled, Lowered

UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""What runs a few times on little is not worth more: this takes a third off compilation."""
OPTIMISED = {"xla_backend_optimization_level": 1}
LARGE = 50_000
"""Numbers in the argument from which optimised code gives back, in a few runs, what it takes to compile."""
LARGEST = 256
"""Functions that are remembered: each holds some of the 65,530 memory maps that Linux gives a process."""


class Piece(NamedTuple):
    """run: what is compiled, of some leaves of the argument. tree: of what it returns."""

    run: Compiled
    leaves: tuple[int, ...]
    tree: Any


_pieces: dict[Any, Piece] = {}
_compiled: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
"""By the hash of the code."""


def evaluated(functions: Sequence[Callable[[Any], Any]], argument: Any) -> list[Any]:
    """The values of several functions of one argument, on the host.

    What is compiled is remembered for the same functions, by identity, and arguments of the same structure.
    """
    leaves, tree = jax.tree.flatten(argument)
    about = (tree, tuple(jax.typeof(leaf) for leaf in leaves))
    keys = [(function, about) for function in functions]
    _compile([key for key in keys if key not in _pieces], argument)
    pieces = [_pieces[key] for key in keys]
    for key in list(_pieces)[:-LARGEST]:
        _pieces.pop(key, None)
    found = [piece.run(*(leaves[place] for place in piece.leaves)) for piece in pieces]
    return [jax.tree.unflatten(piece.tree, values) for piece, values in zip(pieces, jax.device_get(found), strict=True)]


def _compile(keys: Sequence[Any], argument: Any) -> None:
    """Adds pieces for functions that have none; those whose code is new are compiled in threads."""
    lowered = {key: _lowered(key[0], argument) for key in keys}
    names = {key: sha256(lowered[key][0].as_text().encode()).hexdigest() for key in keys}
    compiled = {name: found for name in names.values() if (found := _compiled.get(name)) is not None}
    new = {name: lowered[key][0] for key, name in names.items() if name not in compiled}
    options = OPTIMISED if sum(map(np.size, jax.tree.leaves(argument))) >= LARGE else UNOPTIMISED
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda one: one.compile(compiler_options=options), new.values())
        compiled |= zip(new, built, strict=True)
    _compiled.update(compiled)
    for key in keys:
        _pieces[key] = Piece(compiled[names[key]], *lowered[key][1:])


def _lowered(function: Callable[[Any], Any], argument: Any) -> tuple[Lowered, tuple[int, ...], Any]:
    traced, shape = jax.make_jaxpr(function, return_shape=True)(argument)
    part, places = pruned(traced, range(len(traced.out_avals)))
    inputs = [part.jaxpr.invars[place] for place in places]
    run = jaxpr_as_fun(ClosedJaxpr(part.jaxpr.replace(invars=inputs), part.consts))
    leaves = jax.tree.leaves(argument)
    lowered = jax.jit(run, keep_unused=True).lower(*(leaves[place] for place in places))
    return lowered, places, jax.tree.structure(shape)


def pruned(traced: ClosedJaxpr, outputs: Sequence[int]) -> tuple[ClosedJaxpr, tuple[int, ...]]:
    """Some outputs of a trace, with no more equations than they need; the places of the inputs that they need."""
    kept, ends = [], [traced.jaxpr.outvars[place] for place in outputs]
    needed = {v for v in ends if not isinstance(v, Literal)}
    for equation in reversed(traced.jaxpr.eqns):
        if needed & set(equation.outvars):
            kept.append(equation)
            needed |= {v for v in equation.invars if not isinstance(v, Literal)}
    unnamed = traced.jaxpr.debug_info.with_unknown_names()
    part = traced.jaxpr.replace(eqns=kept[::-1], outvars=ends, debug_info=unnamed)
    places = tuple(place for place, variable in enumerate(part.invars) if variable in needed)
    return ClosedJaxpr(part, traced.consts), places
