"""What programs raise on their arguments, in one sentence."""

import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from bayeslab.programs.arguments import Slot, StaticValue, argument_arrays, signature
from bayeslab.programs.program import Bound
from bayeslab.programs.validation import short_name

NEEDS_CONCRETE_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises where a program has to know the values of its arguments."""
_WORDS_FOR_SHAPES = ("ncompatible shapes for broadcasting", "Incompatible types for broadcasting")
"""What JAX says of arrays whose shapes do not fit together."""


@contextmanager
def errors_explained(bound: Bound) -> Iterator[None]:
    """The scope that raises one sentence in place of what a program raises on its arguments, which stays the cause."""
    function = f"'{short_name(bound.function)}'"
    try:
        yield
    except (*NEEDS_CONCRETE_VALUES, ImportError):  # of a package that is missing the program itself says what to do
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        without_elements = _sizes_without_elements(bound)
        if "size of plate" in reason:
            reason = f"data are empty: a plate of {function} has no element"
            raise ValueError(", since ".join(filter(None, (reason, without_elements)))) from None
        if without_elements:
            said = _error_in_words(error, bound.function)
            raise ValueError(f"program {function} does not run where {without_elements} ({said})") from error
        if any(words in reason for words in _WORDS_FOR_SHAPES):
            arrays = ", ".join(f"{name} {np.shape(x)}" for name, x in argument_arrays(bound.settings, bound.arrays))
            raise ValueError(
                f"shapes of arguments of {function} do not fit together ({reason}); the arrays are {arrays}"
            ) from error
        if "inhomogeneous shape" in reason:
            raise ValueError(f"program {function} makes an array of a list of unequal lengths") from error
        arguments = textwrap.shorten(", ".join(_argument_texts(bound)), 150)
        reason = _error_in_words(error, bound.function)
        starred = any(each.kind is each.VAR_POSITIONAL for each in signature(bound.function).parameters.values())
        by_name = "; data go to arguments by name, so *args has none" if starred else ""
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"program {function} does not run ({reason}); its arguments are {arguments}{by_name}") from error


def _error_in_words(error: Exception, function: Any) -> str:
    """The kind of an error and what it says, or, where that is nothing, the last line of the program's file it met."""
    said = next(iter(str(error).splitlines()), "")
    if not said.strip():
        while inner := getattr(function, "function", getattr(function, "fn", None)):  # in wrappers and in handlers
            function = inner
        frames = traceback.extract_tb(error.__traceback__)
        own_file = getattr(getattr(function, "__code__", None), "co_filename", "")
        own = [frame for frame in frames if frame.filename == own_file]
        said = next((f"at `{frame.line}`" for frame in reversed(own or frames) if frame.line), "without a message")
    return textwrap.shorten(f"{type(error).__name__}: {said}", 200)


def _argument_texts(bound: Bound) -> Iterator[str]:
    """For every argument a text with its name, and the types and shapes or the values of its leaves."""
    for argument in bound.settings:
        leaves = [bound.arrays[leaf.entry] if isinstance(leaf, Slot) else leaf for leaf in argument.leaves]
        values = [leaf.value if isinstance(leaf, StaticValue) else leaf for leaf in leaves]
        kinds = [
            f"{v.dtype} {v.shape}" if isinstance(v, np.ndarray | jax.Array) else textwrap.shorten(repr(v), 30)
            for v in values
        ]
        listed = ", ".join(kinds) or "None"
        yield f"{argument.name}: {listed if jax.tree_util.treedef_is_leaf(argument.tree) else f'({listed})'}"


def _sizes_without_elements(bound: Bound) -> str:
    """Which arguments that are Python's integers are zero or negative, as a number of elements never is; may be empty.

    Only what is called a number or a size is looked at.
    """
    return " and ".join(
        f"'{argument.name}' is {value}"
        for argument in bound.settings
        for value in (leaf.value if isinstance(leaf, StaticValue) else leaf for leaf in argument.leaves)
        if argument.name.startswith(("num", "n_")) or argument.name.endswith(("_size", "_count"))
        if isinstance(value, int) and not isinstance(value, bool) and value < 1
    )
