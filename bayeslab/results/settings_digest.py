"""A digest of what a program takes besides arrays: distributions, kernels, functions, text, and global variables."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import Any

import jax
import numpy as np
from jax import Array

from bayeslab.programs.arguments import Slot, StaticValue, is_plain_object, qualified_name
from bayeslab.programs.program import Bound
from bayeslab.programs.pytrees import Ordered, wrap_distributions

_CAPTURED_DATA = (np.ndarray, np.generic, Array, Mapping, list, tuple, str, bool, int, float, complex)
"""Types of what a program reads from outside that are data."""


def settings_digest(bound: Bound) -> str:
    """The SHA-256 of what the arguments of a program hold besides arrays, the same in every process.

    Numbers, arrays and text that the program reads from outside of its arguments are part of it.
    """
    text = [f"{a.name}={_tree_text(a.tree, iter(a.leaves))}" for a in bound.settings]
    text += [f"{name}={_text(held)}" for name, held in bound.captured if isinstance(held.value, _CAPTURED_DATA)]
    return sha256("\n".join(text).encode(errors="backslashreplace")).hexdigest()


def _tree_text(tree: Any, leaves: Iterator[Any]) -> str:
    """The classes and values of a pytree as text, without arrays, addresses and orders that vary between processes."""
    if (node := tree.node_data()) is None:
        return _text(next(leaves))
    kind, fixed = node
    parts = [_tree_text(child, leaves) for child in tree.children()]
    if kind is Ordered:
        kind, fixed = fixed
        names = kind.gather_pytree_aux_fields()
        if isinstance(fixed, tuple) and len(fixed) == len(names):
            named = zip(names, fixed, strict=True)
            fixed = {name: value for name, value in named if name != "_validate_args"}
        parts = [f"{name}={part}" for name, part in zip(sorted(kind.gather_pytree_data_fields()), parts, strict=True)]
    return f"{kind.__qualname__}[{_text(fixed)}]({', '.join(parts)})"


def _text(value: Any) -> str:
    """The text of a leaf of an argument, or of what belongs to the structure of an argument."""
    value = value.value if isinstance(value, StaticValue) else value
    value = value.item() if isinstance(value, np.generic) else value
    kind = type(value).__qualname__
    if isinstance(value, Slot):
        return "array"
    if isinstance(value, Enum):
        return f"{kind}.{value.name}"
    if isinstance(value, str):
        return repr(str(value))
    if value is None or isinstance(value, bool | int | float | complex | bytes | range | slice | np.dtype):
        return repr(value)
    if isinstance(value, Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | Array):
        return _array_text(np.asarray(value))
    if isinstance(value, Mapping):
        return f"{kind}({', '.join(sorted(f'{_text(k)}: {_text(v)}' for k, v in value.items()))})"
    if isinstance(value, set | frozenset):
        return f"{kind}({', '.join(sorted(map(_text, value)))})"
    if isinstance(value, list | tuple):
        return f"{kind}({', '.join(map(_text, value))})"
    if isinstance(value, partial):
        return f"{kind}({_text(value.func)}, {_text(value.args)}, {_text(value.keywords)})"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{kind}({', '.join(f'{f.name}={_text(getattr(value, f.name, None))}' for f in fields(value))})"
    leaves, tree = jax.tree.flatten(wrap_distributions(value))
    if not jax.tree_util.all_leaves([value]):
        return _tree_text(tree, iter(leaves))
    if is_plain_object(value) and not callable(value):
        return f"{kind}({_text(vars(value))})"
    return f"{getattr(value, '__module__', None)}.{qualified_name(value)}"


def _array_text(value: np.ndarray) -> str:
    """The shape and a digest of the content, which do not depend on the type of the numbers."""
    if value.dtype.kind not in "fiub":
        return f"{value.shape} {_text(value.tolist())}"
    return f"{value.shape} {sha256(np.ascontiguousarray(value, dtype=float).tobytes()).hexdigest()}"
