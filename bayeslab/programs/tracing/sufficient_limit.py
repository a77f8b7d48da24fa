"""The least limit beyond which a count has next to no mass, from its log probability at a few values."""

import numpy as np

CANDIDATES = tuple(2**power for power in range(4, 13))
"""Limits that are tried."""
LOG_MASS_BEYOND = float(np.log(1e-12))
"""The log of the share of the probability of a count that may be beyond its limit."""
GRID = np.array(sorted({0, 1, 2, 4, 8, *(c + step for c in CANDIDATES for step in (-1, 0))}))
"""Values at which counts are looked at."""


def sufficient_limit(profile: np.ndarray) -> int | None:
    """Twice the least candidate that holds the mass at nearly all points; None where even the largest does not.

    profile: the log joint with one element of a count at each value, (point, element, value). Beyond a value the mass
    is at most that of a geometric series with the ratio there.
    """
    grid = GRID.tolist()
    profile = np.where(np.isnan(profile), -np.inf, profile)
    top, place = profile.max(-1), profile.argmax(-1)
    needed, holding = np.full(top.shape, 2 * CANDIDATES[-1]), np.isfinite(top)
    for candidate in CANDIDATES[::-1]:
        last, before = profile[..., grid.index(candidate)], profile[..., grid.index(candidate - 1)]
        with np.errstate(invalid="ignore", divide="ignore"):
            log_ratio = np.where(np.isfinite(before), last - before, -np.inf)
            log_beyond = last - np.log(-np.expm1(np.minimum(log_ratio, 0.0))) - top
        is_small = (log_ratio < 0) & (np.isneginf(last) | (log_beyond < LOG_MASS_BEYOND))
        holding &= is_small & (grid.index(candidate) > place)
        needed = np.where(holding, candidate, needed)
    by_point = needed.max(axis=1)[np.isfinite(top).all(axis=1)]
    fitting = by_point[by_point <= CANDIDATES[-1]]
    if len(fitting) * 2 < len(by_point) or not len(fitting):
        return None
    return min(2 * int(fitting.max()), CANDIDATES[-1])
