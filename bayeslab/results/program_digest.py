"""The name of a program, and a digest of its code, which tells programs of one name apart."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import sha256
from inspect import unwrap
from types import CodeType, FunctionType, MethodType
from typing import Any

from bayeslab.programs.arguments import qualified_name
from bayeslab.programs.program import Program


def program_name(model: Program) -> str:
    """The name of a program, with its module."""
    return f"{getattr(model, '__module__', None) or ''}.{qualified_name(model)}"


def program_digest(program: Program) -> str:
    """The SHA-256 of the compiled code of a program and of functions that it holds: in closures, partials and records.

    It is the same in every process of one version of Python. Comments and places in a file do not count; functions that
    are called by a global name count by that name.
    """
    return sha256("\n".join(_code_texts(program, set())).encode(errors="backslashreplace")).hexdigest()


def _code_texts(value: Any, seen: set[int]) -> Iterator[str]:
    """The code of all functions that a value holds, each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, partial):
        held: tuple[Any, ...] = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        held = (value.__func__, value.__self__)
    elif isinstance(value, FunctionType):
        yield _code_text(value.__code__)
        cells = [cell for cell in value.__closure__ or () if cell != type(cell)()]  # one without contents equals that
        held = (unwrap(value), *(cell.cell_contents for cell in cells))
    elif is_dataclass(value) and not isinstance(value, type):
        held = tuple(getattr(value, field.name, None) for field in fields(value))
    else:
        inner = getattr(value, "__wrapped__", None)  # as that of jax.jit
        held = () if inner is None else (inner,)
    for each in held:
        yield from _code_texts(each, seen)


def _code_text(code: CodeType) -> str:
    """What a function does, without where it is."""
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {_constant_text(code.co_consts)}"


def _constant_text(value: Any) -> str:
    """A constant of compiled code: code, a set in any order, a tuple of constants, or a number or a text."""
    if isinstance(value, CodeType):
        return _code_text(value)
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant_text, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant_text, value))})"
    return repr(value)
