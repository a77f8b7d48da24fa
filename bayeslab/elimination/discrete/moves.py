"""Operations that only move numbers, for arrays of NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bayeslab.programs.tracing.flat_program import Operation


def _moved_by(function: Callable[[Any, dict[str, Any]], np.ndarray]) -> Callable[[Operation, Any], np.ndarray]:
    return lambda operation, sums: np.asarray(function(sums[0], operation.params))


def _broadcast(array: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    shape, axes = params["shape"], params["broadcast_dimensions"]
    pattern = [1] * len(shape)
    for own, axis in enumerate(axes):
        pattern[axis] = array.shape[own]
    return np.broadcast_to(array.reshape(pattern), shape)


def _slice(array: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    strides = params["strides"] or (1,) * array.ndim
    limits = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return array[tuple(slice(*each) for each in limits)]


MOVED: dict[str, Callable[[Operation, Any], np.ndarray]] = {
    "reshape": _moved_by(lambda array, params: array.reshape(params["new_sizes"])),
    "broadcast_in_dim": _moved_by(_broadcast),
    "transpose": _moved_by(lambda array, params: np.transpose(array, params["permutation"])),
    "squeeze": _moved_by(lambda array, params: np.squeeze(array, tuple(params["dimensions"]))),
    "expand_dims": _moved_by(lambda array, params: np.expand_dims(array, tuple(params["dimensions"]))),
    "slice": _moved_by(_slice),
    "rev": _moved_by(lambda array, params: np.flip(array, tuple(params["dimensions"]))),
}
"""Operations that only move numbers."""
