"""CPU milliseconds of the computations of hidden Markov models beside dynamax and hmmlearn, on one core.

    python benchmarks/hidden_markov.py --rounds 5 --peers .tools/hmm/bin/python

Every contender is a process that compiles first and reports its fastest of several calls; see README.md.
"""

import json
import os
import subprocess
import sys

import numpy as np

from race import HERE, arguments, installed, pin
from tables import note, number, spread, table

PAIRS = [("bayeslab", "dynamax"), ("bayeslab, float64", "hmmlearn, float64")]
"""Who is compared, in one precision and in the other."""

Times = dict[str, dict[str, float]]
"""Problem -> computation -> milliseconds."""


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--peers", default=".tools/hmm/bin/python", help="Python with dynamax and hmmlearn")
    options = parser.parse_args()
    pin(options.core)
    contenders: dict[str, str] = {}
    for ours, theirs in PAIRS:
        contenders[ours] = sys.executable
        if installed(theirs, options.peers, theirs.partition(",")[0]):
            contenders[theirs] = options.peers
    found: dict[str, list[Times]] = {name: [] for name in contenders}
    for done in range(options.rounds):
        for name, python in contenders.items():
            found[name].append(timed(name, python))
        note(f"{done + 1} of {options.rounds} rounds")
    pairs = [[name for name in pair if name in found] for pair in PAIRS]
    for problem, computations in found["bayeslab"][0].items():
        columns = [problem]
        for ours, *theirs in pairs:
            columns += [f"{ours}, ms", *(each for name in theirs for each in (f"{name}, ms", f"ratio to {ours}"))]
        rows = [[one, *(cell for pair in pairs for cell in cells(pair, found, problem, one))] for one in computations]
        table(columns, rows)


def timed(name: str, python: str) -> Times:
    """What a fresh process of a contender takes."""
    library, _, dtype = name.partition(", ")
    environment = os.environ | {"JAX_ENABLE_X64": "1" if dtype else "0"}
    command = [python, str(HERE / "recursions.py"), library, dtype or "float32"]
    return json.loads(subprocess.check_output(command, env=environment, text=True).splitlines()[-1])


def cells(pair: list[str], found: dict[str, list[Times]], problem: str, computation: str) -> list[str]:
    """Milliseconds of bayeslab; then, if the other ran, those of the other and its ratio to bayeslab in every round."""
    ours, *theirs = ([run[problem].get(computation, np.nan) for run in found[name]] for name in pair)
    row = [number(np.median(ours))]
    for times in theirs:
        known = not np.isnan(times).any()
        row += [number(np.median(times)), spread(np.divide(times, ours))] if known else ["", ""]
    return row


if __name__ == "__main__":
    main()
