"""A process that draws when it is told to: what it compiles stays compiled from round to round.

    python contenders.py NAME PROBLEM DATA.npz

answers every line "SEED FILE" on its input with FILE, an .npz of draws (chain, draw, *site) and their `cpu_seconds`.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Answer = tuple[float, Mapping[str, Any]]
"""CPU seconds of warm-up and draws, and the draws."""


def serve(build: Callable[[str, str, dict[str, np.ndarray]], Callable[[int], Answer]]) -> None:
    """Build the sampler that the command line names, run it once to compile it, then obey."""
    name, problem, path = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print; only answers belong on the output
    with np.load(path) as arrays:
        run = build(name, problem, dict(arrays))
    run(0)
    print("ready", file=answers)
    for line in sys.stdin:
        seed, file = line.split(maxsplit=1)
        seconds, draws = run(int(seed))
        np.savez(file.strip(), cpu_seconds=seconds, **{name: np.asarray(value) for name, value in draws.items()})
        print("done", file=answers)
