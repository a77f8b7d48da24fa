"""Calibration of lectures by every method that applies: the page of the guide and its figures.

    .venv/bin/python benchmarks/calibration.py [--only MODEL ...] [--methods METHOD ...]

Each case draws parameters from the prior, data given them, and ranks the parameters among the draws of the method for
these data. Results are kept in docs/calibration.json, so that single cases can be run anew.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from xarray import DataTree

import bayeslab as bl
from bayeslab.plots import plot_calibration
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from calibration_cases import APPROXIMATIONS, CASES, LABELLED, METHODS, Case

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "calibration.json"
OPENING = """# Calibration of the lectures

For some models of every part of the course and every method, and for hierarchical models (the last rows, programs of
`tests/catalogue/hierarchies.py`) NUTS and Gibbs sampling: parameters are drawn from the prior, data from the model
given these, and the parameters are ranked among the draws that the method makes for the data. If the
method is right the ranks are uniform ([why](calibration_explained.md)). A method passes if no rank of any site leaves a
band that a right method leaves once in a hundred times, in any site. `make calibration` writes this page; numbers of
simulations are below. An empty cell was not run.

Models whose components have no order (hidden states, populations, topics, factors) are judged by what does not depend
on their names: sums of squares, who shares a component, expected frequencies, products of loadings. Their
approximations describe one order of components only and are not listed, but for mean field of factors. NUTS draws the
values of the process with unknown hyperparameters, factors, and Normal effects after it has integrated them out.
"""
BETWEEN = """
Exact answers, Gibbs sampling and NUTS have to be right, and are. The approximations are approximations: where they
fail, the details say how. A spread above one is a posterior that is too narrow, a middle above zero one that lies too
low.

![Ranks of Gibbs sampling for the linear regression, inside the band](figures/calibration_right.png)

![Ranks of Laplace's approximation for the same model, outside](figures/calibration_wrong.png)

## Details

p: of the worst element of all sites, times their number. Middle and spread: mean and standard deviation of the Normal
scores of its ranks. Would be seen: errors that fail with probability 0.9 in one element, as a shift of a Normal
posterior in its own sd, and as factors of its sd. s: seconds, compilation included, of the machine that wrote the
page.
"""
CLOSING = """
## What does not apply
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="models to run; the others keep their results")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), help="methods to run, by default all")
    parser.add_argument("--page", action="store_true", help="write the page from the results that are there")
    arguments = parser.parse_args()
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for case in CASES:
        if arguments.page or (arguments.only and case.name not in arguments.only):
            continue
        for method, row in rows(case, arguments.methods):
            kept[f"{case.name} {method}"] = row
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
            print(case.name, method, row, file=sys.stderr, flush=True)
    (DOCS / "calibration.md").write_text(page(kept))


def rows(case: Case, methods: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The verdict of every method that applies, of some, the others with their reason."""
    data = case.example
    reference = bl.fit(2, case.program, data, case.near, progress=False) if case.near else None
    for name, (number, method) in (METHODS | (LABELLED if case.quantities else {}) | case.methods).items():
        if name not in methods or (case.quantities and name in APPROXIMATIONS and name not in case.methods):
            continue
        try:
            with precision_scope():
                method.plan(Analysis(bl.bind(case.program, data)))
        except ValueError as error:
            yield name, {"reason": str(error)}
            continue
        began = time.perf_counter()
        checks = bl.sbc(
            *(1, case.program, data, method, number),
            quantities=case.quantities,
            given=reference,
            progress=False,
        )
        judged = [*case.quantities, *case.sites] or None
        table = bl.calibration_verdict(checks, var_names=judged)
        worst = table.isel(quantity=int(np.argmin(table["p_value"].values)))
        figure(checks, judged, f"{case.name}_{name}")
        yield (
            name,
            {
                "simulations": number,
                "draws": method.num_samples,
                "passes": table.attrs["passes"],
                "p_value": float(worst["p_value"]),
                "quantity": str(worst["quantity"].values),
                "middle": float(worst["middle"]),
                "spread": float(worst["spread"]),
                **{seen: table.attrs[seen] for seen in ("shift_seen", "narrow_seen", "wide_seen")},
                "seconds": time.perf_counter() - began,
            },
        )


SHOWN = {("linear_regression", "Gibbs"): "calibration_right", ("linear_regression", "Laplace"): "calibration_wrong"}


def figure(checks: DataTree, judged: list[str] | None, case: str) -> None:
    """Ranks of a right method and of one that is too narrow, for the page."""
    name = {f"{model}_{method}": name for (model, method), name in SHOWN.items()}.get(case)
    if name is not None:
        axes = plot_calibration(checks, judged)
        axes[0].figure.savefig(DOCS / "figures" / f"{name}.png", dpi=90)
        plt.close("all")


def page(kept: dict[str, dict[str, Any]]) -> str:
    """The page of the guide."""
    names = [case.name for case in CASES if any(f"{case.name} {method}" in kept for method in METHODS)]
    methods = list(METHODS)
    lines = [OPENING, "| model | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    lines += [
        f"| `{name}` | " + " | ".join(cell(kept.get(f"{name} {method}")) for method in methods) + " |" for name in names
    ]
    lines += [BETWEEN, "| model | method | simulations x draws | p | worst | middle | spread | would be seen | s |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for name in names:
        for method in methods:
            row = kept.get(f"{name} {method}")
            if row and "p_value" in row:
                lines.append(f"| `{name}` | {method} | {details(row)} |")
    refused = [(key, row["reason"]) for key, row in kept.items() if "reason" in row]
    lines += [CLOSING, *(f"- {key.replace(' ', ', ')}: {reason}" for key, reason in refused)]
    return "\n".join(lines) + "\n"


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if "reason" in row:
        return "does not apply"
    if row["passes"]:
        return "calibrated"
    if abs(row["middle"]) > abs(row["spread"] - 1):
        return "too low" if row["middle"] > 0 else "too high"
    return "too narrow" if row["spread"] > 1 else "too wide"


def details(row: dict[str, Any]) -> str:
    smallest = "below 1e-12" if row["p_value"] < 1e-12 else f"{row['p_value']:.2g}"
    seen = f"{row['shift_seen']:.2f} sd; {row['narrow_seen']:.2f}, {row['wide_seen']:.2f}"
    return (
        f"{row['simulations']:,} x {row['draws']} | {smallest} | {row['quantity']} | {row['middle']:.2f} | "
        f"{row['spread']:.2f} | {seen} | {row['seconds']:.0f}"
    )


if __name__ == "__main__":
    main()
