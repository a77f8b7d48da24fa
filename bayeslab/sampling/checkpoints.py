"""Fits that outlive their process: the result so far in a file, which the same call goes on from."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayeslab.results.saving import require_writable, save
from bayeslab.sampling.protocols import Method

if TYPE_CHECKING:
    from xarray import DataTree

SECONDS = 60.0
"""Between two writes, or twenty times as long as a write takes."""
FIRST = 0.01
"""Of all draws, before the first write: so many that the speed is known."""
GROWTH = 10


def read_checkpoint(path: Path, model: str, key: str) -> "DataTree | None":
    """The result in a file, None where there is no file yet.

    Raises ValueError for a file that is no result, or one of another model or key; OSError where none can be written.
    """
    import xarray

    require_writable(path)
    if not path.exists():
        return None
    try:
        tree = xarray.load_datatree(path, engine="h5netcdf")
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"checkpoint '{path}' is damaged or no result of fit(); delete it to begin anew") from error
    for name, wanted in (("model", model), ("key", key)):
        if (found := tree.attrs.get(name)) != wanted:
            raise ValueError(f"checkpoint '{path}' is of {name} {found}, not of {wanted}; name another file")
    return tree


def checkpointed(
    path: Path, method: Method, tree: "DataTree | None", whole: bool, portion: Callable[..., "DataTree"]
) -> "DataTree":
    """All draws of the method, a portion after the other, written after each.

    tree: what is finished. whole: its draws cannot be made in portions, as those of optimisers.
    portion: the result of so many more draws after an earlier result. Interrupted, the finished draws are returned.
    """
    if whole and tree is not None and not tree.attrs["interrupted"]:
        return tree
    count = method.num_samples if whole else int(np.ceil(FIRST * method.num_samples))
    while (left := method.num_samples - (0 if whole else _draws(tree))) > 0:
        began = time.perf_counter()
        try:
            tree = portion(min(count, left), tree)
        except KeyboardInterrupt:
            if tree is None:
                raise
            tree.attrs["interrupted"] = 1
            return tree
        drawn = time.perf_counter()
        save(tree, path)
        if whole or tree.attrs["interrupted"]:
            break
        seconds = max(SECONDS, 20 * (time.perf_counter() - drawn))
        count = int(np.clip(count * seconds / (drawn - began), 1, GROWTH * count))
    assert tree is not None
    return tree


def _draws(tree: "DataTree | None") -> int:
    return 0 if tree is None else tree["posterior"].sizes["draw"]
