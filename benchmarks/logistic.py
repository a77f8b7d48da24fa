"""Effective draws per CPU second of logistic regression: NUTS and Polya-Gamma Gibbs sampling, on one core.

    python benchmarks/logistic.py --rounds 3

As `nuts.py`; Gibbs sampling has 200 draws of warm-up. README.md says what is measured.
"""

import sys

from problems import PROBLEMS
from race import HERE, arguments, pin, race, report

RACES = ["tumours", "simulated_classes"]
CONTENDERS = [
    *("bayeslab", "bayeslab, Polya-Gamma", "polyagamma, by hand"),
    *("NumPyro, one jit", "NumPyro, one jit, dense"),
]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--problem", choices=RACES, action="append", help="by default all")
    options = parser.parse_args()
    pin(options.core)
    commands = [(name, [sys.executable, str(HERE / "contenders.py")]) for name in CONTENDERS]
    for problem in options.problem or RACES:
        report(problem, race(commands, problem, PROBLEMS[problem](), options.rounds), "NumPyro, one jit, dense")


if __name__ == "__main__":
    main()
