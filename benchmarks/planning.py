"""CPU seconds to plan and to compile Gibbs, and to compile NUTS, on programs of growing size.

    python benchmarks/planning.py --rounds 3

Gibbs and NUTS have a fresh process each, on one core, without a cache of compiled programs. README.md says what is
measured.
"""

import json
import os
import subprocess
import sys

import numpy as np

from race import HERE, arguments, pin
from tables import note, number, spread, table

UNIT = 5
"""Sites in a group of the program."""
SITES = (5, 10, 20, 40)
COLUMNS = ("plan", "compile Gibbs", "compile NUTS")


def spent(verb: str, sites: int) -> list[float]:
    """CPU seconds of every step in a fresh process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    command = [sys.executable, str(HERE / "groups.py"), verb, str(sites // UNIT)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def main() -> None:
    options = arguments(__doc__, rounds=3).parse_args()
    pin(options.core)
    found: dict[int, list[list[float]]] = {sites: [] for sites in SITES}
    for done in range(options.rounds):
        for sites, runs in found.items():
            runs.append(spent("gibbs", sites) + spent("nuts", sites))
        note(f"{done + 1} of {options.rounds} rounds")
    rows = []
    for sites, runs in found.items():
        plan, gibbs, nuts = np.transpose(runs)
        medians = (number(np.median(seconds)) for seconds in (plan, gibbs, nuts))
        rows.append([str(sites), *medians, spread((plan + gibbs) / nuts)])
    table(["sites", *COLUMNS, "Gibbs to NUTS"], rows)


if __name__ == "__main__":
    main()
