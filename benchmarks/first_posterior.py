"""Seconds to the first posterior: a fresh process that imports bayeslab, compiles and fits, beside mere imports.

    python benchmarks/first_posterior.py --rounds 5

Processes are interleaved. Wall seconds are what a user waits, and mean something on an idle machine only; CPU seconds
are of all threads, and compilation uses several. README.md says what is measured.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from problems import diabetes
from tables import note, number, spread, table

FIT = """
import sys
import numpy as np
import bayeslab as bl
from bayeslab.models.linear_regression import model
x, y = np.load(sys.argv[1] + "/x.npy"), np.load(sys.argv[1] + "/y.npy")
tree = bl.fit(0, model, {"x": x, "y": y}, bl.NUTS(), progress=False)
assert tree["posterior"]["w"].shape == (4, 1000, 11)
"""

PROCESSES = {
    "import numpyro, arviz": ("import numpyro, arviz", None),
    "fit, nothing compiled": (FIT, None),
    "fit, persistent cache": (FIT, "cache"),
    "import numpyro": ("import numpyro", None),
    "import numpyro, bayeslab": ("import numpyro, bayeslab", None),
}
"""Name -> a program, and the folder of its compilation cache."""

RATIOS = [
    ("fit, nothing compiled", "import numpyro, arviz", "at most 1.3 (wall)"),
    ("fit, persistent cache", "import numpyro, arviz", "below 1 (wall)"),
]


def spent(program: str, cache: str | None, folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a fresh process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    if cache:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(folder / cache)
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program, str(folder)], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, program
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for entry, array in diabetes().items():
            np.save(folder / f"{entry}.npy", array)
        for program, cache in PROCESSES.values():  # fills the caches of files and of compiled programs
            spent(program, cache, folder)
        runs = []
        for done in range(rounds):
            runs.append({name: spent(*process, folder) for name, process in PROCESSES.items()})
            note(f"{done + 1} of {rounds} rounds")
    found = {name: np.array([run[name] for run in runs]) for name in PROCESSES}
    table(["", "wall s", "CPU s"], [[name, *map(number, np.median(each, axis=0))] for name, each in found.items()])
    ratios = [(f"{name}, to {against}", found[name] / found[against], goal) for name, against, goal in RATIOS]
    added = found["import numpyro, bayeslab"] - found["import numpyro"]
    ratios.append(("seconds that bayeslab adds to `import numpyro`", added, "below 0.5"))
    rows = [[name, *map(spread, each.T), goal] for name, each, goal in ratios]
    table(["within a round", "wall", "CPU", "goal"], rows)


if __name__ == "__main__":
    main()
