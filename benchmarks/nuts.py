"""Effective draws per CPU second of NUTS in bayeslab and of its peers, on one core, compilation excluded.

    python benchmarks/nuts.py --rounds 5 --peers .tools/peers/bin/python

Every sampler is a process of its own, which compiles first and then draws four chains of 1,000 + 1,000 once a round.
A peer that is not installed is skipped. README.md says what is measured.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats

from problems import NUM_CHAINS, NUM_SAMPLES, PROBLEMS

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
OURS = ["bayeslab", "bayeslab, whole fit", "NumPyro MCMC.run", "NumPyro, one jit", "NumPyro, one jit, dense"]
PEERS = {"nutpie": "nutpie", "nutpie, low rank": "nutpie", "PyMC": "pymc", "JAGS": None}


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

    def efficiency(self, seed: int) -> tuple[float, float]:
        """The smallest bulk ESS of a scalar parameter in one run, and the CPU seconds of that run."""
        path = self._folder / "draws.npz"
        self._process.stdin.write(f"{seed} {path}\n")
        self._process.stdin.flush()
        self._hear("done")
        with np.load(path) as answer:
            draws = dict(answer)
        seconds = float(draws.pop("cpu_seconds"))
        return min(ess(value) for value in draws.values()), seconds

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def _hear(self, word: str) -> None:
        if self._process.stdout.readline().strip() != word:
            self._log.seek(0)
            raise RuntimeError(self._log.read().strip().rpartition("\n")[2] or "it ended")


def ess(draws: np.ndarray) -> float:
    """The smallest bulk ESS of the scalars in draws (chain, draw, *site)."""
    assert draws.shape[:2] == (NUM_CHAINS, NUM_SAMPLES), draws.shape
    scalars = draws.reshape(NUM_CHAINS, NUM_SAMPLES, -1)
    return min(float(array_stats.ess(scalar, method="bulk")) for scalar in np.moveaxis(scalars, -1, 0))


def commands(peers: str) -> Iterable[tuple[str, list[str]]]:
    """Every contender that is installed, and how to start it."""
    for name in OURS:
        yield name, [sys.executable, str(HERE / "contenders.py")]
    for name, package in PEERS.items():
        if package is None:
            found = shutil.which("jags") is not None
        else:
            there = shutil.which(peers) is not None
            found = there and subprocess.run([peers, "-c", f"import {package}"], capture_output=True).returncode == 0
        if found:
            yield name, [peers if package else sys.executable, str(HERE / "peers.py")]
        else:
            print(f"{name} is not installed: skipped")


def race(problem: str, contenders: list[tuple[str, list[str]]], rounds: int) -> None:
    """Print the medians of all contenders over interleaved rounds."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", **PROBLEMS[problem]())
        running = []
        for name, command in contenders:
            try:
                running.append(Contender(name, command, problem, Path(folder)))
            except RuntimeError as error:
                print(f"{name} does not run: {error}")
        found = {contender.name: [] for contender in running}
        for seed in range(1, rounds + 1):
            for contender in running:
                found[contender.name].append(contender.efficiency(seed))
        for contender in running:
            contender.close()
    report(problem, found)


def report(problem: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """A table: ratios are medians over rounds of the ratio within a round."""
    rates = {name: np.array([size / seconds for size, seconds in runs]) for name, runs in found.items()}
    print(f"\n{problem}\n{'':26}{'min ESS':>9}{'CPU s':>9}{'ESS/CPU s':>12}{'ratio to nutpie':>18}")
    for name, runs in found.items():
        size, seconds = np.median(runs, axis=0)
        ratio = f"{np.median(rates[name] / rates['nutpie']):18.2f}" if "nutpie" in rates else ""
        print(f"{name:26}{size:9.0f}{seconds:9.3f}{np.median(rates[name]):12,.0f}{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=".tools/peers/bin/python", help="Python with nutpie and PyMC")
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="by default all")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to use")
    options = parser.parse_args()
    os.environ |= ONE_CORE
    os.sched_setaffinity(0, {options.core})
    contenders = list(commands(options.peers))
    for problem in options.problem or PROBLEMS:
        race(problem, contenders, options.rounds)


if __name__ == "__main__":
    main()
