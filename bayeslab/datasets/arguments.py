"""Checks of arguments that simulators, filters and readers share.

Each raises TypeError for another type and ValueError for another value, in a sentence with the argument, what it is and
what was expected.
"""

import math
import reprlib
from collections.abc import Callable, Iterable
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

ROOM = 2**50
"""No memory holds more numbers than that."""

LARGEST = 1e100
"""Sums and products of such numbers are finite."""


def whole(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> int:
    """An integer, of Python, NumPy or JAX, as one of Python."""
    found = _plain(value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{name} is {shown(value)}; expected an integer.")
    if found < least:
        raise ValueError(f"{name} is {shown(found)}; expected at least {least}.")
    if found > most:
        raise ValueError(f"{name} is {shown(found)}; expected at most {most}.")
    return found


def sizes(**given: Any) -> list[int]:
    """The lengths of axes, from 1; an array that has them all could be in memory."""
    found = [whole(name, value, 1) for name, value in given.items()]
    if math.prod(found) > ROOM:
        each = ", ".join(f"{name} is {shown(size)}" for name, size in zip(given, found, strict=True))
        raise ValueError(f"{each}; expected a product that memory can hold.")
    return found


def number(name: str, value: Any, expected: str, fits: Callable[[float], bool]) -> float:
    """A number for which `fits` holds, in words what is expected; it never holds for NaN."""
    found = _plain(value)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name} is {shown(value)}; expected {expected}.")
    if not fits(found):
        raise ValueError(f"{name} is {shown(found)}; expected {expected}.")
    return float(found)


def positive(name: str, value: Any) -> float:
    return number(name, value, f"a positive number up to {LARGEST:g}", lambda found: 0 < found <= LARGEST)


def share(name: str, value: Any) -> float:
    return number(name, value, "a number from 0 to 1", lambda found: 0 <= found <= 1)


def require_flags(**given: Any) -> None:
    """Raises for what is neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} is {shown(value)}; expected True or False.")


def labels(what: str, given: Iterable[Any]) -> list[Any]:
    """Names along an axis, as xarray and files take them; what says of what they are, as in "a sequence"."""
    found = [_plain(name) for name in given]
    for name in found:
        if not isinstance(name, str | int | float | datetime):
            raise TypeError(f"{what} is named {shown(name)}; expected text or a number.")
    return found


def as_path(path: str | PathLike[str]) -> Path:
    """The path of a file."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path is {shown(path)}; expected text or a Path.")
    return Path(path)


def shown(value: Any) -> str:
    """The value in a line, shortened."""
    return " ".join(reprlib.repr(value).split())


def _plain(value: Any) -> Any:
    """A number of NumPy or JAX as one of Python, anything else as it is."""
    is_number = getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "f") and np.shape(value) == ()
    return value.item() if is_number and not np.ma.isMaskedArray(value) else value
