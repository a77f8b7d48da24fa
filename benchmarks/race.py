"""Contenders as processes on one pinned core, which draw in turn, round after round; the scripts say who and what."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tables import note, number, spread, table

Command = tuple[str, list[str]]
Runs = dict[str, list[tuple[float, float]]]
"""Name -> (smallest ESS, CPU seconds) of every round."""

HERE = Path(__file__).parent
ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


def run_fresh(script: str, *words: object) -> subprocess.CompletedProcess:
    """A script of this folder in a process of its own, to which nothing is known that was compiled before."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    command = [sys.executable, str(HERE / script), *map(str, words)]
    return subprocess.run(command, env=environment | {"BAYESLAB_CACHE": "off"}, capture_output=True, text=True)


def answer_of(script: str, *words: object) -> Any:
    """The last line that such a process prints, which is JSON."""
    ended = run_fresh(script, *words)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


class Contender:
    """A process that draws on request."""

    def __init__(self, name: str, command: list[str], problem: str, folder: Path):
        self.name, self._folder = name, folder
        self._log = (folder / f"{name}.log").open("w+")
        self._process = subprocess.Popen(
            [*command, name, problem, folder / "data.npz"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._hear("ready")

    def draw(self, seed: int) -> tuple[dict[str, np.ndarray], float]:
        """The draws of one run, and its CPU seconds."""
        path = self._folder / "draws.npz"
        self._process.stdin.write(f"{seed} {path}\n")
        self._process.stdin.flush()
        self._hear("done")
        with np.load(path) as answer:
            draws = dict(answer)
        return draws, float(draws.pop("cpu_seconds"))

    def efficiency(self, seed: int) -> tuple[float, float]:
        """The smallest bulk ESS of a scalar parameter in one run, and the CPU seconds of that run."""
        draws, seconds = self.draw(seed)
        return min(ess(value) for value in draws.values()), seconds

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def _hear(self, word: str) -> None:
        if self._process.stdout.readline().strip() != word:
            self._log.seek(0)
            raise RuntimeError(self._log.read().strip().rpartition("\n")[2] or "it ended")


def ess(draws: np.ndarray) -> float:
    """The smallest bulk ESS of the scalars in draws (chain, draw, *site); a single chain holds independent draws."""
    from arviz_stats.base import array_stats  # brings SciPy, whose BLAS counts the cores: after `pin`

    chains, length = draws.shape[:2]
    if chains == 1:
        return float(length)
    scalars = draws.reshape(chains, length, -1)
    return min(float(array_stats.ess(scalar, method="bulk")) for scalar in np.moveaxis(scalars, -1, 0))


def start(commands: Iterable[Command], problem: str, arrays: dict[str, np.ndarray], folder: Path) -> list[Contender]:
    """The contenders that run, compiled and waiting."""
    np.savez(folder / "data.npz", **arrays)
    running = []
    for name, command in commands:
        try:
            running.append(Contender(name, command, problem, folder))
        except (RuntimeError, OSError) as error:
            note(f"{name} does not run: {error}")
    return running


def race(commands: Iterable[Command], problem: str, arrays: dict[str, np.ndarray], rounds: int) -> Runs:
    """The efficiency of all contenders over interleaved rounds."""
    with tempfile.TemporaryDirectory() as folder:
        running = start(commands, problem, arrays, Path(folder))
        found: Runs = {contender.name: [] for contender in running}
        for seed in range(1, rounds + 1):
            for contender in running:
                found[contender.name].append(contender.efficiency(seed))
        for contender in running:
            contender.close()
    return found


def report(problem: str, found: Runs, against: str) -> None:
    """A table of medians over rounds, and of ratios to one contender if it ran."""
    columns = [problem, "min ESS", "CPU s", "ESS per CPU s"]
    rows = []
    for name, runs in found.items():
        sizes, seconds = np.transpose(runs)
        rows.append([name, *(number(np.median(each)) for each in (sizes, seconds, sizes / seconds))])
    if against in found:
        columns.append(f"ratio to {against}")
        rows = [[*row, "1" if row[0] == against else spread(relative(found, row[0], against))] for row in rows]
    table(columns, rows)


def relative(found: Runs, name: str, against: str) -> np.ndarray:
    """The ratio of two efficiencies in every round."""
    (size, seconds), (other_size, other_seconds) = np.transpose(found[name]), np.transpose(found[against])
    return size / seconds * other_seconds / other_size


def installed(name: str, python: str, package: str) -> bool:
    """Whether there is such a Python and it loads the package; says so if not."""
    command = [python, "-c", f"import {package}"]
    there = shutil.which(python) is not None and subprocess.run(command, capture_output=True).returncode == 0
    if not there:
        note(f"{name} is not installed: skipped")
    return there


def jags_installed() -> bool:
    there = shutil.which("jags") is not None
    if not there:
        note("JAGS is not installed: skipped")
    return there


def arguments(description: str | None, rounds: int = 5) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to use")
    return parser


def pin(core: int) -> None:
    """This process, and all that it starts, on one core and in one thread."""
    os.environ |= ONE_CORE
    threadpool_limits(1)  # of the linear algebra that this process has loaded already
    os.sched_setaffinity(0, {core})
