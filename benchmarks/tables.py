"""Results as the documentation shows them: Markdown tables on the output, everything else beside it."""

import math
import sys
from collections.abc import Iterable, Sequence

import numpy as np


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, unless it is empty; the first column names the rows, and its heading says what of."""
    rows = list(rows)
    if rows:
        print(line(columns), "|---" * len(columns) + "|", *map(line, rows), "", sep="\n", flush=True)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def goals(rows: Iterable[tuple[str, Sequence[float], str]]) -> None:
    """Print ratios that have a goal: what to what, the ratio of every round, the goal."""
    table(["ratio within a round", "median", "goal"], [(name, spread(each), goal) for name, each, goal in rows])


def spread(values: Sequence[float] | np.ndarray) -> str:
    """The median over rounds, and if there are several the least and the most."""
    median = number(np.median(values))
    return median if len(values) == 1 else f"{median} ({number(np.min(values))} to {number(np.max(values))})"


def number(value: float) -> str:
    """Three digits, or all that are before the point; a time that never came is infinite."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-"
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, 2 - size)}f}"


def note(*words: object) -> None:
    """Print what belongs to no table: progress, what is skipped, whether values agree."""
    print(*words, file=sys.stderr, flush=True)
