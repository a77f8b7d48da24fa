"""Values that a program takes from outside of its arguments: global and nonlocal variables, attributes of its object.

Compiled code holds them as constants, so they belong to what compiled code depends on: a cell of a notebook that is run
again gives a global array other values, and the program must see them.
"""

import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from bayeslab.programs.arguments import StaticValue
from bayeslab.programs.tracing.library_files import is_library_file

_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of packages, whose functions keep what they read."""


def captured_values(program: Callable[..., Any]) -> tuple[tuple[str, StaticValue], ...]:
    """The values that a program, and the functions of its author that it calls, read from outside, with their names.

    Functions and classes are among them, since a name may stand for another one later. What functions of installed
    packages read is not, unless the program is of that package. Values that are reached through calls that name no
    variable, as `getattr` and `globals()` do, are not seen.
    """
    package = (getattr(program, "__module__", None) or "").partition(".")[0]
    return tuple((name, StaticValue(value)) for name, value in _walk("", program, package, set()))


def captured_by_functions(record: Any) -> tuple[tuple[str, StaticValue], ...]:
    """The values that functions among the fields of a record, and of records in it, read from outside.

    record: a method with a guide or a proposal of its user's, for example.
    """
    captured: list[tuple[str, StaticValue]] = []
    for value in (getattr(record, each.name) for each in fields(record)):
        if is_dataclass(value) and not isinstance(value, type):
            captured += captured_by_functions(value)
        elif isinstance(value, FunctionType | MethodType | partial):
            captured += captured_values(value)
    return tuple(captured)


def _walk(name: str, value: Any, package: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """A value that has a name, and what the functions that it consists of read; what was seen is left out."""
    if name and not isinstance(value, ModuleType | MethodType):
        yield name, value
    if not callable(value) or id(value) in seen:
        return
    seen.add(id(value))
    for inner_name, inner in _parts(value, package):
        yield from _walk(inner_name, inner, package, seen)


def _parts(value: Any, package: str) -> Iterator[tuple[str, Any]]:
    """What a function, or an object that is called, is made of, by name."""
    if isinstance(value, partial):
        yield from (("", value.func), *(("argument", each) for each in (*value.args, *value.keywords.values())))
    elif isinstance(value, MethodType):
        yield from (("", value.__func__), ("self", value.__self__))
    elif isinstance(value, FunctionType):
        if _is_of_author(value.__module__, value.__code__.co_filename, package):
            yield from _variables(value, package)
    elif isinstance(value, type):
        if _is_of_author(value.__module__, _file_of(value.__module__), package):
            yield from (("", each) for each in vars(value).values() if isinstance(each, FunctionType))
    elif (inner := getattr(value, "__wrapped__", None)) is not None:  # as that of jax.jit
        yield "", inner
    else:
        yield "", type(value)
        yield from (getattr(value, "__dict__", None) or {}).items()


def _variables(function: FunctionType, package: str) -> Iterator[tuple[str, Any]]:
    """The variables of a function that are not its own, by name, and the data that it reads of its author's modules."""
    names = dict.fromkeys(_names(function.__code__))
    variables = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # of a variable that has no value yet
            variables[name] = cell.cell_contents
    for name, value in variables.items():
        yield name, value
        if isinstance(value, ModuleType) and _is_of_author(value.__name__, _file_of(value.__name__), package):
            held = {each: vars(value)[each] for each in names if each in vars(value)}
            yield from ((f"{name}.{each}", part) for each, part in held.items() if not isinstance(part, ModuleType))
    yield from (("default", each) for each in (function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()


def _names(code: CodeType) -> Iterator[str]:
    """The names of variables and attributes in a code and in those of functions that are defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_of_author(module: str | None, file: str, package: str) -> bool:
    """Whether a function was written by the author of the program, and not for a package that is installed."""
    if is_library_file(file):
        return False
    return not file.startswith(_INSTALLED) or (bool(package) and (module or "").partition(".")[0] == package)


def _file_of(module: str) -> str:
    return getattr(sys.modules.get(module), "__file__", None) or ""
