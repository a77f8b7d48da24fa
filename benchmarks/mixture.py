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
            for contender in running:
                draws, seconds = contender.draw(seed)
                found.setdefault(contender.name, []).append(1e3 * seconds / draws["mu"].shape[1])
        for contender in running:
            contender.close()
    print(f"\n{options.rows} rows{'':26}ms a sweep")
    for name, times in found.items():
        print(f"{name:30}{np.median(times):16.3f}")
    print("\nratios within a round")
    for name, against, target in RATIOS:
        if {name, against} <= found.keys():
            ratio = np.median(np.array(found[name]) / np.array(found[against]))
            print(f"{f'{name} to {against}':44}{ratio:9.2f}   target: {target}")


if __name__ == "__main__":
    main()
