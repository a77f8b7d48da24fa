"""CPU seconds of programs whose discrete sites meet: fields, networks, indicators, chains in a scan.

    python benchmarks/discrete.py --rounds 3

Every case has a fresh process each, on one core, without a cache of compiled programs. README.md says what is measured.
"""

import numpy as np

from race import answer_of, arguments, pin
from tables import note, number, spread, table

CASES = ("tree", "grid", "network", "indicators", "chessboard", "scan")
TITLES = {"tree": "tree of 1,000 nodes", "grid": "grid of 6 x 50", "network": "network of 37 nodes"}
GOALS = {"tree": "", "grid": "", "network": "below 15 / below 2"}


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    pin(options.core)
    runs: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    for done in range(options.rounds):
        for case, found in runs.items():
            found.append(answer_of("discrete_programs.py", case))
        note(f"{done + 1} of {options.rounds} rounds")

    def values(case: str, name: str) -> np.ndarray:
        return np.array([run[name] for run in runs[case]])

    rows = [
        [title, spread(values(case, "cold")), spread(values(case, "again")), f"{values(case, 'error').max():.0e}"]
        for case, title in TITLES.items()
    ]
    columns = ["log evidence", "first fit, CPU s", "again", "relative error", "goal"]
    table(columns, [[*row, GOALS[case]] for row, case in zip(rows, TITLES, strict=True)])
    times, errors = values("indicators", "cold"), values("indicators", "error")
    table(
        ["spike and slab, 200 rows, 40 features", "", "goal"],
        [
            ["fit, compiling included, CPU s", spread(times), "below 20"],
            ["largest error of an inclusion probability", number(errors.max()), "below 0.02"],
        ],
    )
    table(
        ["ratio within a round", "median", "goal"],
        [
            [
                "sweep of a chessboard of 64 x 64, bayeslab to NumPy",
                spread(values("chessboard", "bayeslab") / values("chessboard", "NumPy")),
                "at most 5",
            ],
            [
                "gradient of NUTS, 2,000 steps, a scan to `MarkovChain`",
                spread(values("scan", "scan") / values("scan", "chain")),
                "at most 1.2",
            ],
        ],
    )


if __name__ == "__main__":
    main()
