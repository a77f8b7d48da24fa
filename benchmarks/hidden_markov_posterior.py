"""Effective draws per CPU second from the posterior of a hidden Markov chain, on one core, compilation excluded.

    python benchmarks/hidden_markov_posterior.py --rounds 3 --peers .tools/hmm/bin/python

Three states, 2,000 steps. The states of every draw are put in the order of their means, for all contenders alike; the
ESS is the smallest over means, standard deviations and moves. README.md says what is measured.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from problems import PROBLEMS
from race import HERE, Command, Runs, arguments, ess, pin, report, start
from tables import note

PROBLEM = "hidden_chain"
OURS = ["bayeslab, Gibbs", "bayeslab, NUTS", "NumPyro, scan"]


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--peers", default=".tools/hmm/bin/python", help="Python with dynamax and NumPyro")
    options = parser.parse_args()
    pin(options.core)
    found: Runs = {}
    with tempfile.TemporaryDirectory() as folder:
        running = start(commands(options.peers), PROBLEM, PROBLEMS[PROBLEM](), Path(folder))
        for seed in range(1, options.rounds + 1):
            for contender in running:
                draws, seconds = contender.draw(seed)
                draws = ordered(draws)
                found.setdefault(contender.name, []).append((min(map(ess, draws.values())), seconds))
                note(f"{contender.name:20}", np.round(draws["mu"].mean((0, 1)), 3))
        for contender in running:
            contender.close()
    report(PROBLEM, found, "NumPyro, scan")


def commands(peers: str) -> Iterable[Command]:
    for name in OURS:
        yield name, [sys.executable, str(HERE / "contenders.py")]
    yield "NumPyro, dynamax", [peers, str(HERE / "contenders.py")]


def ordered(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Means, standard deviations and moves, the states of every draw in the order of their means."""
    order = np.argsort(draws["mu"], -1)
    moves = np.take_along_axis(draws["moves"], order[..., None], -2)
    return {
        "mu": np.take_along_axis(draws["mu"], order, -1),
        "sd": np.take_along_axis(draws["tau"], order, -1) ** -0.5,
        "moves": np.take_along_axis(moves, order[..., None, :], -1),
    }


if __name__ == "__main__":
    main()
