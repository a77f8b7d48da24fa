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

NUM_GRID_CELLS = 512
"""The number of grid cells of a density estimate."""
MIN_RELATIVE_SPREAD = 1e-14
"""The spread of draws relative to their size up to which it is rounding."""
MAX_VALLEY_DENSITY_RATIO = 0.5
"""The share of the density at the lower of two peaks that the valley between them has to fall below."""
MIN_VALLEY_STANDARD_ERRORS = 5.0
"""The number of standard errors that the valley has to be below the lower peak."""
NORMAL_KERNEL_ROUGHNESS = 0.5 / np.sqrt(np.pi)
"""The roughness of the standard Normal kernel: the integral of its square."""


def find_peaks(draws: Array, ess: float) -> list[float]:
    """The values at the peaks of the density of one parameter's draws, in order. ess: of the draws."""
    from scipy.ndimage import gaussian_filter1d

    low, high = np.quantile(draws, [0.25, 0.75])
    spread = min(draws.std(), (high - low) / 1.349) or draws.std()
    if not (spread > MIN_RELATIVE_SPREAD * np.abs(draws).max() and ess >= 10):
        return [float(np.mean(draws))]
    width = 0.9 * spread * ess**-0.2
    edges = np.linspace(draws.min() - 3 * width, draws.max() + 3 * width, NUM_GRID_CELLS + 1)
    if (cell := edges[1] - edges[0]) > width:  # tails so long that the bulk is a few cells wide
        edges = np.linspace(low - 8 * spread, high + 8 * spread, NUM_GRID_CELLS + 1)
        cell = edges[1] - edges[0]
    count, _ = np.histogram(draws, edges)
    density = gaussian_filter1d(count / (draws.size * cell), width / cell, mode="constant")
    error = np.sqrt(density * NORMAL_KERNEL_ROUGHNESS / (ess * width))
    return [float(edges[position] + cell / 2) for position in _separated_maxima(density, error)]


def _separated_maxima(density: Array, error: Array) -> list[int]:
    """The positions of maxima with a true valley to each neighbour; of two without one, the higher is kept."""
    inside = density[1:-1]
    maxima = [int(position) + 1 for position in np.flatnonzero((inside > density[:-2]) & (inside >= density[2:]))]
    kept: list[int] = []
    for position in maxima:
        while kept and not _has_valley(density, error, kept[-1], position) and density[kept[-1]] <= density[position]:
            kept.pop()
        if not kept or _has_valley(density, error, kept[-1], position):
            kept.append(position)
    return kept or [int(np.argmax(density))]


def _has_valley(density: Array, error: Array, left: int, right: int) -> bool:
    """Whether there is a true valley between the maxima at two positions."""
    bottom = left + int(np.argmin(density[left : right + 1]))
    lower = min(left, right, key=lambda place: density[place])
    gap = density[lower] - density[bottom]
    return bool(
        density[bottom] < MAX_VALLEY_DENSITY_RATIO * density[lower]
        and gap > MIN_VALLEY_STANDARD_ERRORS * np.hypot(error[lower], error[bottom])
    )
