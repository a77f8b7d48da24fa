"""Checkpoints: the result so far in a file, from which the same call of fit continues in another process."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayeslab.results.saving import require_writable, save
from bayeslab.sampling.processes import Processes
from bayeslab.sampling.protocols import Method

if TYPE_CHECKING:
    from xarray import DataTree

MIN_SECONDS_BETWEEN_WRITES = 60.0
"""Seconds between two writes, unless twenty times as long as a write takes is more."""
FIRST_PORTION_SHARE = 0.01
"""Share of all draws before the first write: as many as it takes to know the speed."""
MAX_PORTION_GROWTH = 10
"""Largest ratio of the numbers of draws of two portions that follow each other."""


def read_checkpoint(path: Path, model: str, key: str, chains: Sequence[int]) -> "DataTree | None":
    """The result in a file, None where there is no file yet.

    Raises ValueError for a file that is no result, or one of another model, key or chains; OSError where
    none can be written.
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
        if (saved := tree.attrs.get(name)) != wanted:
            raise ValueError(f"checkpoint '{path}' is of {name} {saved}, not of {wanted}; name another file")
    if (numbers := np.asarray(tree["posterior"]["chain"]).tolist()) != [*chains]:
        raise ValueError(f"checkpoint '{path}' is of chains {numbers}, not of {[*chains]}; name another file")
    return tree


def draw_with_checkpoints(
    path: Path,
    method: Method,
    tree: "DataTree | None",
    whole: bool,
    portion: Callable[..., "DataTree"],
    processes: Processes,
) -> "DataTree":
    """The result with all draws of the method, which are made in portions; each portion is followed by a write.

    tree: the result so far. whole: draws cannot be made in portions, as those of optimisers.
    processes: of which the first writes, and all read the file before.
    portion: (number of draws, result so far) -> the result with these draws added. Interrupted from the keyboard,
    the result with the finished draws is returned.
    """
    processes.require_same({f"draws in checkpoint '{path}'": str(_num_draws(tree))})
    if whole and tree is not None and not tree.attrs["interrupted"]:
        return tree
    count = method.num_samples if whole else int(np.ceil(FIRST_PORTION_SHARE * method.num_samples))
    while (left := method.num_samples - (0 if whole else _num_draws(tree))) > 0:
        began = time.perf_counter()
        try:
            tree = portion(min(count, left), tree)
        except KeyboardInterrupt:
            if tree is None:
                raise
            tree.attrs["interrupted"] = 1
            return tree
        drawn = time.perf_counter()
        if processes.is_first:
            save(tree, path)
        if whole or tree.attrs["interrupted"]:
            break
        seconds = max(MIN_SECONDS_BETWEEN_WRITES, 20 * (time.perf_counter() - drawn))
        count = int(np.clip(count * seconds / (drawn - began), 1, MAX_PORTION_GROWTH * count))
        count = processes.from_first(count)
    assert tree is not None
    return tree


def _num_draws(tree: "DataTree | None") -> int:
    return 0 if tree is None else tree["posterior"].sizes["draw"]
