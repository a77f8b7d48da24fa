"""Effective draws per CPU second of Gibbs and Exact beside JAGS and plain NumPy, on one core, compilation excluded.

    python benchmarks/gibbs.py --rounds 5

Gibbs and JAGS draw four chains of 200 + 1,000; Exact and NumPy draw 100,000 times from the posterior itself. README.md
says what is measured.
"""

import sys

from problems import PROBLEMS
from race import HERE, arguments, jags_installed, pin, race, relative, report
from tables import goals

GIBBS, EXACT, JAGS, NUMPY = "bayeslab, Gibbs", "bayeslab, Exact", "JAGS, 200 + 1,000", "NumPy, exact posterior"
GOALS = {"linear_regression": 5, "normal_gamma": 2, "normal_wishart": 5}
"""Problem -> how many times the efficiency of JAGS Gibbs is to reach."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--problem", choices=GOALS, action="append", help="by default all")
    options = parser.parse_args()
    pin(options.core)
    commands = [(name, [sys.executable, str(HERE / "contenders.py")]) for name in (GIBBS, EXACT, NUMPY)]
    if jags_installed():
        commands.append((JAGS, [sys.executable, str(HERE / "peers.py")]))
    rows = []
    for problem in options.problem or GOALS:
        found = race(commands, problem, PROBLEMS[problem](), options.rounds)
        report(problem, found, JAGS)
        ratios = [
            ("Gibbs to JAGS", GIBBS, JAGS, f"at least {GOALS[problem]}"),
            ("NumPy to Exact", NUMPY, EXACT, "at most 5"),
        ]
        rows += [
            (f"{problem}, {ratio}", relative(found, name, against), goal)
            for ratio, name, against, goal in ratios
            if {name, against} <= found.keys()
        ]
    goals(rows)


if __name__ == "__main__":
    main()
