"""How many peaks a marginal has: more than one, and a mean with a standard deviation describes no draw.

A density estimate with Silverman's bandwidth for the effective sample size; two of its maxima count as peaks where the
density between them falls below half of the lower one, by more than five standard errors of the estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CELLS = 512
DEPTH = 0.5  # of the lower peak, where the valley has to fall below
ERRORS = 5.0
ROUGHNESS = 0.5 / np.sqrt(np.pi)  # of the Normal kernel: its integral squared


def peaks(draws: Array, ess: float) -> list[float]:
    """The places of the peaks of one parameter's draws, in order. ess: how many independent draws they are worth."""
    from scipy.ndimage import gaussian_filter1d

    low, high = np.quantile(draws, [0.25, 0.75])
    spread = min(draws.std(), (high - low) / 1.349) or draws.std()
    if not (spread > 0 and ess >= 10):
        return [float(np.mean(draws))]
    width = 0.9 * spread * ess**-0.2
    edges = np.linspace(draws.min() - 3 * width, draws.max() + 3 * width, CELLS + 1)
    if (cell := edges[1] - edges[0]) > width:  # tails so long that the bulk is a few cells wide
        edges = np.linspace(low - 8 * spread, high + 8 * spread, CELLS + 1)
        cell = edges[1] - edges[0]
    count, _ = np.histogram(draws, edges)
    density = gaussian_filter1d(count / (draws.size * cell), width / cell, mode="constant")
    error = np.sqrt(density * ROUGHNESS / (ess * width))
    return [float(edges[place] + cell / 2) for place in _separate(density, error)]


def _separate(density: Array, error: Array) -> list[int]:
    """Maxima with a true valley to every neighbour that is kept; the higher of two without one stays."""
    inner = density[1:-1]
    maxima = [int(place) + 1 for place in np.flatnonzero((inner > density[:-2]) & (inner >= density[2:]))]
    kept: list[int] = []
    for place in maxima:
        while kept and not _valley(density, error, kept[-1], place) and density[kept[-1]] <= density[place]:
            kept.pop()
        if not kept or _valley(density, error, kept[-1], place):
            kept.append(place)
    return kept or [int(np.argmax(density))]


def _valley(density: Array, error: Array, left: int, right: int) -> bool:
    bottom = left + int(np.argmin(density[left : right + 1]))
    lower = min(left, right, key=lambda place: density[place])
    gap = density[lower] - density[bottom]
    return bool(density[bottom] < DEPTH * density[lower] and gap > ERRORS * np.hypot(error[lower], error[bottom]))
