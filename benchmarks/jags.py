"""JAGS as a sampler of a model, with its glm module."""

import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from problems import NUM_CHAINS, NUM_SAMPLES
from worker import Answer


def jags_sampler(model: str, data: Mapping[str, Any], names: Sequence[str], num_warmup: int) -> Callable[[int], Answer]:
    """Runs of all chains of a model with a seed; on the clock is JAGS, less a run that ends before the first iteration.

    data: numbers and arrays, NaN where a value is missing. names: what is monitored.
    """
    folder = Path(tempfile.mkdtemp())
    (folder / "model.txt").write_text(model)
    (folder / "data.txt").write_text("".join(_dumped(name, np.asarray(value)) for name, value in data.items()))

    def seconds(script: str) -> float:
        (folder / "script.txt").write_text(script)
        process = subprocess.Popen(["jags", "script.txt"], cwd=folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, "JAGS failed"
        return usage.ru_utime + usage.ru_stime

    def run(seed: int) -> Answer:
        start = "load glm\nmodel in model.txt\ndata in data.txt\n"
        start += f"compile, nchains({NUM_CHAINS})\n"
        for chain in range(1, NUM_CHAINS + 1):
            state = f'.RNG.name <- "base::Mersenne-Twister"\n.RNG.seed <- {1 + seed * NUM_CHAINS + chain}\n'
            (folder / f"start{chain}.txt").write_text(state)
            start += f"parameters in start{chain}.txt, chain({chain})\n"
        start += "initialize\n"
        draw = f"update {num_warmup}\n" + "".join(f"monitor {name}\n" for name in names)
        draw += f"update {NUM_SAMPLES}\ncoda *\n"
        spent = seconds(start + draw) - seconds(start)
        return spent, _coda(folder)

    return run


def _dumped(name: str, value: np.ndarray) -> str:
    """A number or an array in the format of R's dump."""
    numbers = ", ".join("NA" if number != number else repr(number) for number in value.ravel(order="F").tolist())
    if not value.ndim:
        return f"{name} <- {numbers}\n"
    return f"{name} <- structure(c({numbers}), .Dim = c({', '.join(f'{size}L' for size in value.shape)}))\n"


def _coda(folder: Path) -> dict[str, np.ndarray]:
    """The draws (chain, draw, *site) that JAGS has written; the index has a line for every scalar."""
    chains = np.stack([np.loadtxt(folder / f"CODAchain{chain}.txt")[:, 1] for chain in range(1, NUM_CHAINS + 1)])
    scalars: dict[str, dict[tuple[int, ...], np.ndarray]] = defaultdict(dict)
    for line in (folder / "CODAindex.txt").read_text().splitlines():
        scalar, first, last = line.split()
        name, _, place = scalar.rstrip("]").partition("[")
        index = tuple(int(number) - 1 for number in place.split(",") if number)
        scalars[name][index] = chains[:, int(first) - 1 : int(last)]
    draws = {}
    for name, parts in scalars.items():
        draws[name] = np.empty((NUM_CHAINS, NUM_SAMPLES, *(np.max(list(parts), axis=0) + 1).astype(int)))
        for index, part in parts.items():
            draws[name][:, :, *index] = part
    return draws
