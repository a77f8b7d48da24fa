"""Importance ratios of an approximation: how far its draws can be trusted."""

import numpy as np


def pareto_tail(log_ratios: np.ndarray, size: float) -> tuple[float, float]:
    """k-hat of ratios exp(log p - log q) at draws from q, and its standard error.

    size: of the log densities, which says what rounding is. Above 0.7 the approximation misses some of the posterior;
    minus infinity where all ratios are equal, as those of an exact posterior are, or the largest are, as where the
    likelihood is a constant or zero; NaN for fewer than 25 draws.
    See Vehtari et al. (2024), Pareto smoothed importance sampling, arXiv:1507.02646.
    """
    from arviz_stats.base import array_stats

    flat = np.sort(np.asarray(log_ratios).reshape(-1))
    if flat.size < 25 or np.isnan(flat).any():
        return np.nan, np.nan
    tail = min(flat.size / 5, 3 * np.sqrt(flat.size))
    largest = flat[-int(np.ceil(tail)) :]
    if np.isfinite(largest[0]) and np.ptp(largest) <= 1e3 * np.finfo(flat.dtype).eps * size:
        return -np.inf, 0.0
    with np.errstate(all="ignore"):
        k = float(array_stats.psislw(-flat)[1])
    return k, (1 + max(k, 0.0)) / np.sqrt(tail)


def largest_size(log_densities: np.ndarray) -> float:
    """The largest absolute value of log densities that are not those of zero."""
    return float(abs(np.where(np.isfinite(log_densities), log_densities, 0.0)).max())
