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
    print(f"{'sites':>6}" + "".join(f"{name:>16}" for name in COLUMNS) + f"{'Gibbs to NUTS':>16}")
    for sites in SITES:
        found = np.array([spent("gibbs", sites) + spent("nuts", sites) for _ in range(options.rounds)])
        medians = "".join(f"{seconds:16.2f}" for seconds in np.median(found, axis=0))
        ratio = np.median(found[:, :2].sum(1) / found[:, 2])
        print(f"{sites:6}{medians}{ratio:16.2f}", flush=True)


if __name__ == "__main__":
    main()
