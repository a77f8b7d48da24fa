"""Milliseconds for one sweep of Gibbs over a Gaussian mixture of three components, on one core, without compilation.

    python benchmarks/mixture.py --rounds 5

bayeslab beside a sweep written by hand in JAX and beside NumPyro's DiscreteGibbs, which visits one label after the
other. README.md says what is measured.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from problems import mixture
from race import HERE, arguments, pin, start
from tables import goals, note, spread, table

RUNNER, ALONE, HAND, DISCRETE = "bayeslab, runner", "bayeslab, sweeps alone", "by hand", "NumPyro DiscreteGibbs"
RATIOS = [
    (RUNNER, HAND, "at most 5"),
    (ALONE, HAND, "at most 5"),
    (DISCRETE, RUNNER, "at least 500"),
]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    pin(options.core)
    commands = [(name, [sys.executable, str(HERE / "sweeps.py")]) for name in (RUNNER, ALONE, HAND, DISCRETE)]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        running = start(commands, "mixture", mixture(options.rows), Path(folder))
        for seed in range(1, options.rounds + 1):
            note(f"round {seed} of {options.rounds}")
            for contender in running:
                draws, seconds = contender.draw(seed)
                found.setdefault(contender.name, []).append(1e3 * seconds / draws["mu"].shape[1])
        for contender in running:
            contender.close()
    table([f"{options.rows:,} rows", "ms a sweep"], [(name, spread(times)) for name, times in found.items()])
    goals(
        (f"{name}, to {against}", np.divide(found[name], found[against]), goal)
        for name, against, goal in RATIOS
        if {name, against} <= found.keys()
    )


if __name__ == "__main__":
    main()
