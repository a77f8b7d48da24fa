"""Effective draws per CPU second of the default on the hierarchical models of the catalogue beside JAGS, on one core.

    python benchmarks/hierarchies_jags.py --rounds 3 [--names growth_curves,schools]

README.md says what is measured.
"""

import json
import sys

import numpy as np

from race import HERE, arguments, jags_installed, pin, run_fresh
from tables import note, number, spread, table

sys.path.insert(0, str(HERE.parent / "tests" / "catalogue"))

COLUMNS = (
    "model",
    "method",
    "first fit, CPU s",
    "min ESS",
    "CPU s",
    "JAGS: min ESS",
    "CPU s",
    "ratio of ESS per CPU s",
)


def main() -> None:
    from hierarchies import HIERARCHIES

    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--names", default=",".join(HIERARCHIES))
    options = parser.parse_args()
    if not jags_installed():
        return
    pin(options.core)
    rows = []
    for name in options.names.split(","):
        if answer := raced(name, options.rounds):
            rows.append(row(name, answer))
            note("|", " | ".join(rows[-1]), "|", f"means within {answer['distance']:.2f} sd")
    table(COLUMNS, rows)


def raced(name: str, rounds: int) -> dict | None:
    """What hierarchy_contenders.py says, in a fresh process; nothing where it fails."""
    answer = run_fresh("hierarchy_contenders.py", name, rounds)
    if answer.returncode:
        note(f"{name} does not run: {answer.stderr.strip().splitlines()[-1]}")
        return None
    return json.loads(answer.stdout.splitlines()[-1])


def row(name: str, answer: dict) -> list[str]:
    """Medians over rounds, and the ratio of the efficiencies within a round."""
    (size, seconds), (other_size, other_seconds) = (np.transpose(answer["runs"][who]) for who in ("bayeslab", "JAGS"))
    medians = [number(np.median(each)) for each in (size, seconds, other_size, other_seconds)]
    return [
        name,
        answer["method"],
        number(answer["first"]),
        *medians,
        spread(size / seconds * other_seconds / other_size),
    ]


if __name__ == "__main__":
    main()
