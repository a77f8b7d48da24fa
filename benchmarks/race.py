"""Contenders as processes on one pinned core, which draw in turn, round after round; the scripts say who and what."""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats

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
            print(f"{name} does not run: {error}")
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
    """A table: ratios are medians over rounds of the ratio within a round."""
    heading = f"  ratio to {against}"
    print(f"\n{problem}\n{'':26}{'min ESS':>9}{'CPU s':>9}{'ESS/CPU s':>12}{heading}")
    for name, runs in found.items():
        size, seconds = np.median(runs, axis=0)
        rate = np.median([size / seconds for size, seconds in runs])
        ratio = f"{relative(found, name, against):{len(heading)}.2f}" if against in found else ""
        print(f"{name:26}{size:9.0f}{seconds:9.3f}{rate:12,.0f}{ratio}", flush=True)


def relative(found: Runs, name: str, against: str) -> float:
    """The median over rounds of the ratio of two efficiencies."""
    sizes, seconds = (np.array(leaf) for leaf in zip(*found[name], strict=True))
    other_sizes, other_seconds = (np.array(leaf) for leaf in zip(*found[against], strict=True))
    return float(np.median(sizes / seconds * other_seconds / other_sizes))


def arguments(description: str | None, rounds: int = 5) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to use")
    return parser


def pin(core: int) -> None:
    """This process, and all that it starts, on one core and in one thread."""
    os.environ |= ONE_CORE
    os.sched_setaffinity(0, {core})
