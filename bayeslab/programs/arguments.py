"""Arguments of programs taken apart into arrays, which are data, and structure, which compiled code depends on."""

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import PyTreeDef
from numpyro.primitives import Messenger

from bayeslab.programs.pytrees import unwrap_distributions

MAX_CONTENT_DEPTH = 4
"""Levels of an object, at most, that are looked at to see whether it has changed."""


class Slot(NamedTuple):
    """The place of an array in an argument: its key in `Bound.arrays`."""

    entry: str


class Argument(NamedTuple):
    """An argument of a program with its arrays taken out: each leaf is a Slot or structure."""

    name: str
    tree: PyTreeDef
    leaves: tuple[Any, ...]


class StaticValue:
    """An array, or an object that may change, whose value is structure, because the program needs it to run.

    Two are equal if they hold equal arrays, or the same object with the same content.
    """

    def __init__(self, value: Any):
        self.value = value
        self._key = _content_key(value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticValue) and self._key == other._key

    def __repr__(self) -> str:
        return repr(self.value)


class ConcreteArray(np.ndarray):
    """An array of NumPy, whose values Python may look at, with what programs expect of arrays of JAX."""

    @property
    def at(self) -> Any:
        """Updates of elements, of which an array of JAX is made."""
        return jnp.asarray(self).at

    def __getitem__(self, index: Any) -> Any:
        is_computed = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(index))
        return jnp.asarray(self)[index] if is_computed else super().__getitem__(index)


def qualified_name(program: Callable[..., Any]) -> str:
    """The name of a program, with the class or function that it is defined in."""
    return str(getattr(program, "__qualname__", getattr(program, "__name__", type(program).__name__)))


def signature(program: Callable[..., Any]) -> inspect.Signature:
    """The signature of a program inside its NumPyro handlers; raises TypeError for what is no function."""
    while isinstance(program, Messenger) and program.fn is not None:
        program = program.fn
    try:
        return inspect.signature(program)
    except (TypeError, ValueError):
        raise TypeError(f"a program is a function that calls numpyro.sample, not {type(program).__name__}") from None


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a program that have a name, without *args and **kwargs."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in signature(function).parameters.items() if p.kind not in variadic}


def rebuild_argument(argument: Argument, arrays: Mapping[str, Array]) -> Any:
    """An argument as the program takes it."""
    leaves = [arrays[leaf.entry] if isinstance(leaf, Slot) else _static_leaf(leaf) for leaf in argument.leaves]
    return unwrap_distributions(jax.tree.unflatten(argument.tree, leaves))


def argument_arrays(settings: Iterable[Argument], arrays: Mapping[str, Array]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays among arguments, with their names: those that are data, and those that are structure."""
    for argument in settings:
        for leaf in argument.leaves:
            if isinstance(leaf, Slot):
                yield leaf.entry, np.asarray(arrays[leaf.entry])
            elif isinstance(leaf, StaticValue) and isinstance(leaf.value, np.ndarray):
                yield argument.name, leaf.value


def is_plain_object(value: Any) -> bool:
    """Whether a value is an object with attributes that may change, and that is equal to itself alone."""
    if isinstance(value, type | ModuleType | FunctionType | BuiltinFunctionType | MethodType):
        return False
    return type(value).__hash__ in (None, object.__hash__) and bool(getattr(value, "__dict__", None))


def as_structure(leaf: Any) -> Any:
    """A leaf of an argument in a form that compiled code may depend on: it has a hash, and is equal to itself."""
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return StaticValue(leaf)
    if isinstance(leaf, np.integer | np.bool_) or (isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim == 0):
        leaf = leaf.item()
    if is_plain_object(leaf):
        return StaticValue(leaf)
    try:
        return leaf if hash(leaf) is not None and bool(leaf == leaf) else StaticValue(leaf)
    except Exception:  # what has no hash, or is neither equal to itself nor not, as what pandas calls missing
        return StaticValue(leaf)


def _static_leaf(leaf: Any) -> Any:
    """A leaf that is structure, as the program takes it."""
    value = leaf.value if isinstance(leaf, StaticValue) else leaf
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        return value
    return value.view(ConcreteArray) if value.ndim else value.item()


def _content_key(value: Any, depth: int = 0) -> Any:
    """What has a hash, and is equal as long as a value has the same content, or is the same object if it has none."""
    if isinstance(value, np.ndarray | np.generic | jax.Array) and not isinstance(value, jax.core.Tracer):
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        try:
            array = np.asarray(jax.random.key_data(jnp.asarray(value)) if is_key else value)
        except RuntimeError:  # of an array that was deleted, or that other processes hold
            return _Identity(value)
        if array.dtype.kind != "O":
            return array.shape, array.dtype.str, sha256(np.ascontiguousarray(array).ravel().view(np.uint8)).digest()
    if isinstance(value, str | bytes | int | float | complex | None):
        return type(value), repr(value)  # 1, 1.0 and True are equal, and their types differ
    if hasattr(type(value), "__array__") and not isinstance(value, jax.Array):  # columns of pandas, polars, xarray
        return _pickled_digest(value) or _Identity(value)
    if depth < MAX_CONTENT_DEPTH:
        if isinstance(value, Mapping):
            parts = tuple((_content_key(k, depth + 1), _content_key(part, depth + 1)) for k, part in value.items())
            return type(value), parts
        if isinstance(value, list | tuple):
            return type(value), tuple(_content_key(part, depth + 1) for part in value)
        if isinstance(value, set | frozenset):
            return type(value), frozenset(_content_key(part, depth + 1) for part in value)
        if is_plain_object(value):
            parts = tuple((name, _content_key(part, depth + 1)) for name, part in vars(value).items())
            return _Identity(value), parts
    return _Identity(value)


class _Identity:
    """An object that is equal to itself alone, and is kept, so that no later one takes its address."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value


def _pickled_digest(value: Any) -> bytes | None:
    """A digest of what a file would hold of an object, None where it cannot be written."""
    digest = sha256()
    try:
        digest.update(pickle.dumps(value, protocol=5, buffer_callback=lambda part: digest.update(part.raw())))
    except Exception:  # whatever the class of the object raises
        return None
    return digest.digest()
