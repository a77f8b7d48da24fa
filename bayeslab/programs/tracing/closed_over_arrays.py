"""NumPy arrays that a program closes over are constants of the precision in use, whichever it had before.

JAX 0.12 remembers, for as long as any compiled function needs it, the constant that an array became. It does not ask
whether 64 bits were in use then, nor whether the array was changed since. So a program that names an array of integers
ran in float64 or in float32, but not in one after the other: NumPyro computes in 32 bits unless told otherwise and
bayeslab in 64, and whichever came second ended in "lax.add requires arguments to have the same dtypes".
"""

import weakref
from functools import cache, partial
from typing import Any

import jax
import numpy as np

_views: dict[int, tuple[weakref.ref, weakref.ref]] = {}


@cache
def read_arrays_anew() -> None:
    """Let JAX convert arrays by the precision in use, where it would remember another one; otherwise do nothing."""
    try:
        from jax._src.dtypes import canonicalize_value, register_canonicalize_value_handler
        from jax._src.literals import TypedNdArray
    except ImportError:  # another release of JAX, which remembers nothing
        return

    def convert(array: np.ndarray) -> Any:
        """The array as a constant: a copy in 32 bits, otherwise one view for all uses, so that it is stored once."""
        if array.dtype.kind not in "biufcV" or not array.dtype.isnative:
            return array  # which JAX refuses with a sentence of its own
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        if dtype != array.dtype:
            return TypedNdArray(array.astype(dtype))
        source, view = _views.get(id(array), (_nothing, _nothing))
        constant = view() if source() is array else None
        if constant is None:
            constant = TypedNdArray(array)
            forget = partial(_views.pop, id(array))
            _views[id(array)] = weakref.ref(array), weakref.ref(constant, forget)
        return constant

    if _remembers(canonicalize_value):
        register_canonicalize_value_handler(np.ndarray, convert)


def _remembers(canonicalize_value: Any) -> bool:
    """Whether an array that was converted in 64 bits stays so in 32."""
    array = np.zeros(1)
    with jax.enable_x64(True):
        wide = canonicalize_value(array)
    with jax.enable_x64(False):
        return bool(canonicalize_value(array).dtype == wide.dtype)


def _nothing() -> None:
    """A reference to an array that is gone."""
