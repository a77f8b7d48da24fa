"""What is wrong with the result of a particle filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xarray import DataTree

MAX_MEAN_K_HAT = 0.7
"""The largest k-hat of the ratios of a guide, averaged over steps and runs: Vehtari et al. (2024), arXiv:1507.02646."""
MAX_K_HAT_OF_STEP = 1.0
"""The largest k-hat of one step, averaged over runs: above it ratios have no mean."""
MAX_LOG_EVIDENCE_SD = 1.0
"""The largest standard deviation of log evidences between runs whose mean can be told."""


def is_filtered(tree: Any) -> bool:
    """Whether a tree is the result of a particle filter."""
    return "filter_stats" in getattr(tree, "children", {})


def filter_problems(tree: DataTree) -> Iterator[str]:
    """All complaints about a filter, worst first.

    Where a guide is far too narrow the filter is wrong in the same way in every run, so that runs agree. The tail of
    the ratios that correct the guide tells.
    """
    stats = tree["filter_stats"].to_dataset()
    total = stats["log_increment"].values.cumsum(1)
    lost = np.isneginf(total)
    if lost.any():
        run, step = np.argwhere(lost)[0]
        number = int(lost.any(1).sum())
        yield (f"No particle: in {number} of {len(lost)} runs no particle allows what is observed (run {run}, "
               f"step {step}); check the data there, take more particles, or a guide that looks at them.")  # fmt: skip
    if "k_hat" in stats and not np.isnan(k_hat := np.maximum(stats["k_hat"].values, 0.0)).all():
        of_steps = np.nanmean(k_hat, 0)
        mean, worst = float(of_steps.mean()), int(of_steps.argmax())
        if mean > MAX_MEAN_K_HAT or of_steps[worst] > MAX_K_HAT_OF_STEP:
            yield (f"Guide: k-hat of its ratios is {mean:.2f} on average and {of_steps[worst]:.2f} in step {worst}: "
                   "it is narrower than the states are; the evidence and its error are wrong; widen it.")  # fmt: skip
    sd = tree.attrs.get("log_evidence_sd", np.nan)
    if sd > MAX_LOG_EVIDENCE_SD:
        yield (f"Evidence: its logs have standard deviation {sd:.2f} between runs, above {MAX_LOG_EVIDENCE_SD:g}; take "
               "more particles, or a guide.")  # fmt: skip
