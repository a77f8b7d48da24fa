"""CPU seconds to plan and to compile Gibbs, and to compile NUTS, on programs of growing size; to plan on growing data.

    python benchmarks/planning.py --rounds 3

All have a fresh process each, on one core, without a cache of compiled programs. README.md says what is measured.
"""

import numpy as np

from race import answer_of, arguments, pin
from tables import note, number, spread, table

UNIT = 5
"""Sites in a group of the program."""
SITES = (5, 10, 20, 40)
COLUMNS = ("plan", "compile Gibbs", "compile NUTS")
PROGRAMS = ("linear regression, Exact", "mixture in space, EM", "hidden chain, EM")
ROWS = (1_000, 10_000, 100_000)


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    pin(options.core)
    sizes: dict[int, list[list[float]]] = {sites: [] for sites in SITES}
    large: dict[tuple[str, int], list[list[float]]] = {(name, rows): [] for name in PROGRAMS for rows in ROWS}
    for done in range(options.rounds):
        for sites, runs in sizes.items():
            runs.append(answer_of("groups.py", "gibbs", sites // UNIT) + answer_of("groups.py", "nuts", sites // UNIT))
        for (name, size), runs in large.items():
            runs.append(answer_of("rows.py", name, size))
        note(f"{done + 1} of {options.rounds} rounds")
    rows = []
    for sites, runs in sizes.items():
        plan, gibbs, nuts = np.transpose(runs)
        medians = (number(np.median(seconds)) for seconds in (plan, gibbs, nuts))
        rows.append([str(sites), *medians, spread((plan + gibbs) / nuts)])
    table(["sites", *COLUMNS, "Gibbs to NUTS"], rows)
    rows = []
    for name in PROGRAMS:
        times = [np.median(large[name, size], axis=0) for size in ROWS]
        rows.append([name, *(" / ".join(map(number, both)) for both in times)])
    table(["plan, first / again", *(f"{size:,} rows" for size in ROWS)], rows)


if __name__ == "__main__":
    main()
