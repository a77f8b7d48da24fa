"""Effective draws per CPU second of NUTS in bayeslab and of its peers, on one core, compilation excluded.

    python benchmarks/nuts.py --rounds 5 --peers .tools/peers/bin/python

Every sampler is a process of its own, which compiles first and then draws four chains of 1,000 + 1,000 once a round.
A peer that is not installed is skipped. README.md says what is measured.
"""

import sys
from collections.abc import Iterable

from problems import PROBLEMS
from race import HERE, Command, Runs, arguments, installed, jags_installed, pin, race, relative, report
from tables import spread, table

RACES = ["linear_regression", "normal_gamma"]
OURS = [
    *("bayeslab", "bayeslab, statistics", "bayeslab, statistics, diagonal", "bayeslab, whole fit"),
    *("NumPyro MCMC.run", "NumPyro, one jit", "NumPyro, one jit, dense"),
]
PEERS = {"nutpie": "nutpie", "nutpie, low rank": "nutpie", "PyMC": "pymc"}
JUDGED = OURS[:3]
GOALS = [
    ("linear_regression", "nutpie", "at least 30"),
    ("normal_gamma", "nutpie", "above 1"),
    ("normal_gamma", "JAGS", "above 1"),
    ("normal_gamma", "NumPyro, one jit", "above 1"),
]


def commands(peers: str) -> Iterable[Command]:
    """Every contender that is installed, and how to start it."""
    for name in OURS:
        yield name, [sys.executable, str(HERE / "contenders.py")]
    for name, package in PEERS.items():
        if installed(name, peers, package):
            yield name, [peers, str(HERE / "peers.py")]
    if jags_installed():
        yield "JAGS", [sys.executable, str(HERE / "peers.py")]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peers", default=".tools/peers/bin/python", help="Python with nutpie and PyMC")
    parser.add_argument("--problem", choices=RACES, action="append", help="by default all")
    options = parser.parse_args()
    pin(options.core)
    contenders = list(commands(options.peers))
    found: dict[str, Runs] = {}
    for problem in options.problem or RACES:
        found[problem] = race(contenders, problem, PROBLEMS[problem](), options.rounds)
        report(problem, found[problem], "nutpie")
    table(["ratio within a round", *JUDGED, "goal"], judged(found))


def judged(found: dict[str, Runs]) -> Iterable[list[str]]:
    for problem, against, goal in GOALS:
        runs = found.get(problem, {})
        if against in runs:
            ratios = [spread(relative(runs, name, against)) for name in JUDGED]
            yield [f"{problem}, to {against}", *ratios, goal]


if __name__ == "__main__":
    main()
