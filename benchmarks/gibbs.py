"""Effective draws per CPU second of Gibbs and Exact beside JAGS and plain NumPy, on one core, compilation excluded.

    python benchmarks/gibbs.py --rounds 5

Gibbs and JAGS draw four chains of 200 + 1,000; Exact and NumPy draw 100,000 times from the posterior itself. README.md
says what is measured.
"""

import shutil
import sys

from problems import PROBLEMS
from race import HERE, arguments, pin, race, relative, report

GIBBS, EXACT, JAGS, NUMPY = "bayeslab, Gibbs", "bayeslab, Exact", "JAGS, 200 + 1,000", "NumPy, exact posterior"
GOALS = {"linear_regression": 5, "normal_gamma": 2, "normal_wishart": 5}
"""Problem -> how many times the efficiency of JAGS Gibbs is to reach."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--problem", choices=GOALS, action="append", help="by default all")
    options = parser.parse_args()
    pin(options.core)
    commands = [(name, [sys.executable, str(HERE / "contenders.py")]) for name in (GIBBS, EXACT, NUMPY)]
    if shutil.which("jags"):
        commands.append((JAGS, [sys.executable, str(HERE / "peers.py")]))
    else:
        print("JAGS is not installed: skipped")
    for problem in options.problem or GOALS:
        found = race(commands, problem, PROBLEMS[problem](), options.rounds)
        report(problem, found, JAGS)
        if {GIBBS, JAGS} <= found.keys():
            print(f"Gibbs to JAGS  {relative(found, GIBBS, JAGS):7.2f}   target: at least {GOALS[problem]}")
        if {EXACT, NUMPY} <= found.keys():
            print(f"NumPy to Exact {relative(found, NUMPY, EXACT):7.2f}   target: at most 5")


if __name__ == "__main__":
    main()
