"""Fits of the hierarchical models of the catalogue with no method named, or with NUTS(), against their references.

    python benchmarks/hierarchies.py [--names growth_curves,schools] [--method NUTS] [--keys 5]

One row a model: the method, CPU seconds of the first call, which compiles, and of a later one, and over all keys the
smallest ESS and the largest R-hat of a quantity, its mean's largest distance from the reference in posterior
deviations, and how many fits `diagnose` complains of.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "catalogue"))

import bayeslab as bl
from hierarchies import HIERARCHIES, Hierarchy, values_of
from tables import note, number, table

COLUMNS = (
    "model",
    "method",
    "explain",
    "first call",
    "later",
    "smallest ESS",
    "largest R-hat",
    "|error| / sd",
    "complaints",
)
METHODS = {"default": None, "NUTS": bl.NUTS()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default=",".join(HIERARCHIES))
    parser.add_argument("--method", choices=METHODS, default="default")
    parser.add_argument("--keys", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name in options.names.split(","):
        try:
            rows.append(row(HIERARCHIES[name], METHODS[options.method], options.keys))
        except Exception as error:
            rows.append([name, f"{type(error).__name__}: {str(error)[:80]}", *["-"] * 7])
        note("|", " | ".join(rows[-1]), "|")
    table(COLUMNS, rows)


def row(entry: Hierarchy, method: bl.NUTS | None, keys: int) -> list[str]:
    """The row of a model. Complaints and means that are off are also noted one by one."""
    began = time.process_time()
    bl.explain(entry.program, entry.data)
    explained = time.process_time() - began
    seconds, sizes, r_hats, errors, complaints = [], [], [], [], 0
    for key in range(keys):
        began = time.process_time()
        tree = bl.fit(key, entry.program, entry.data, method, progress=False)
        seconds.append(time.process_time() - began)
        complaint = bl.diagnose(tree)
        complaints += bool(complaint)
        for line in complaint.splitlines():
            note(f"  {entry.name}, key {key}: {line}")
        for quantity, right in entry.right.items():
            values = values_of(tree["posterior"], quantity)
            size, r_hat = agreement(values)
            error = abs(values.mean() - right.mean) / right.sd
            if error > 0.1 and error > 4 * np.hypot(size**-0.5, right.error / right.sd):
                note(f"  {entry.name}, key {key}: mean of {quantity} is {values.mean():.4g}, right is {right.mean:.4g}")
            sizes.append(size)
            r_hats.append(r_hat)
            errors.append(error)
    later = number(np.mean(seconds[1:])) if keys > 1 else "-"
    worst = (f"{min(sizes):.0f}", f"{max(r_hats):.3f}", f"{max(errors):.3f}")
    times = (number(explained), number(seconds[0] + explained), later)
    return [entry.name, tree.attrs["method"], *times, *worst, f"{complaints} of {keys}"]


def agreement(values: np.ndarray) -> tuple[float, float]:
    """The effective sample size for the mean, and R-hat, of draws (chain, draw); those of one chain are independent."""
    from arviz_stats import ess, rhat

    return (values.size, 1.0) if len(values) == 1 else (float(ess(values, method="mean")), float(rhat(values)))


if __name__ == "__main__":
    main()
