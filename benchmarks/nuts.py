"""Effective draws per CPU second of NUTS in bayeslab and of its peers, on one core, compilation excluded.

    python benchmarks/nuts.py --rounds 5 --peers .tools/peers/bin/python

Every sampler is a process of its own, which compiles first and then draws four chains of 1,000 + 1,000 once a round.
A peer that is not installed is skipped. README.md says what is measured.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable

from problems import PROBLEMS
from race import HERE, Command, arguments, pin, race, report

RACES = ["linear_regression", "normal_gamma"]
OURS = [
    *("bayeslab", "bayeslab, statistics", "bayeslab, statistics, diagonal", "bayeslab, whole fit"),
    *("NumPyro MCMC.run", "NumPyro, one jit", "NumPyro, one jit, dense"),
]
PEERS = {"nutpie": "nutpie", "nutpie, low rank": "nutpie", "PyMC": "pymc", "JAGS": None}


def commands(peers: str) -> Iterable[Command]:
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


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peers", default=".tools/peers/bin/python", help="Python with nutpie and PyMC")
    parser.add_argument("--problem", choices=RACES, action="append", help="by default all")
    options = parser.parse_args()
    pin(options.core)
    contenders = list(commands(options.peers))
    for problem in options.problem or RACES:
        report(problem, race(contenders, problem, PROBLEMS[problem](), options.rounds), "nutpie")


if __name__ == "__main__":
    main()
