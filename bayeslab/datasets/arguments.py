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

MAX_NUMBERS_IN_MEMORY = 2**50
"""The most numbers in one array: no memory holds more."""

MAX_MAGNITUDE = 1e100
"""The largest size of a number: sums and products of such numbers are finite."""


def as_integer(name: str, value: Any, minimum: float = -math.inf, maximum: float = math.inf) -> int:
    """The value, an integer of Python, NumPy or JAX, as an integer of Python.

    minimum, maximum: the bounds that it has to keep.
    """
    integer = _as_python(value)
    if isinstance(integer, bool) or not isinstance(integer, int):
        raise TypeError(f"{name} is {short_repr(value)}; expected an integer.")
    if integer < minimum:
        raise ValueError(f"{name} is {short_repr(integer)}; expected at least {minimum}.")
    if integer > maximum:
        raise ValueError(f"{name} is {short_repr(integer)}; expected at most {maximum}.")
    return integer


def axis_lengths(**given: Any) -> list[int]:
    """The lengths of axes as integers from 1, such that an array with all these axes could be in memory."""
    lengths = [as_integer(name, value, 1) for name, value in given.items()]
    if math.prod(lengths) > MAX_NUMBERS_IN_MEMORY:
        each = ", ".join(f"{name} is {short_repr(size)}" for name, size in zip(given, lengths, strict=True))
        raise ValueError(f"{each}; expected a product that memory can hold.")
    return lengths


def as_number(name: str, value: Any, expected: str, fits: Callable[[float], bool]) -> float:
    """The value as a float, for which `fits` holds.

    expected: in words what `fits` asks for; it never holds for NaN.
    """
    plain = _as_python(value)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise TypeError(f"{name} is {short_repr(value)}; expected {expected}.")
    if not fits(plain):
        raise ValueError(f"{name} is {short_repr(plain)}; expected {expected}.")
    return float(plain)


def as_positive(name: str, value: Any) -> float:
    """The value as a positive float."""
    return as_number(name, value, f"a positive number up to {MAX_MAGNITUDE:g}", lambda x: 0 < x <= MAX_MAGNITUDE)


def as_share(name: str, value: Any) -> float:
    """The value as a float from 0 to 1."""
    return as_number(name, value, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def require_flags(**given: Any) -> None:
    """Raise TypeError for the first value that is neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} is {short_repr(value)}; expected True or False.")


def checked_labels(what: str, given: Iterable[Any]) -> list[Any]:
    """The names along an axis, as xarray and files take them; what: the thing that they name, as in "a sequence"."""
    names = [_as_python(name) for name in given]
    for name in names:
        if not isinstance(name, str | int | float | datetime):
            raise TypeError(f"{what} is named {short_repr(name)}; expected text or a number.")
    return names


def is_listed(values: Any) -> bool:
    """Whether values are several things, one after the other: no text, and no array without axes."""
    is_text = isinstance(values, str | bytes)
    return not is_text and isinstance(values, Iterable) and getattr(values, "ndim", 1) != 0


def as_path(path: str | PathLike[str]) -> Path:
    """The path of a file."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path is {short_repr(path)}; expected text or a Path.")
    return Path(path)


def short_repr(value: Any) -> str:
    """The value as one line of text, shortened."""
    return " ".join(reprlib.repr(value).split())


def _as_python(value: Any) -> Any:
    """A number of NumPy or JAX as one of Python, anything else as it is."""
    is_number = getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "f") and np.shape(value) == ()
    return value.item() if is_number and not np.ma.isMaskedArray(value) else value
