"""Posterior moments of linear models with Normal coefficients given some scales, by dense algebra and cubature.

The coefficients are integrated out; the scales are by the trapezoidal rule over their logarithms.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Moments = dict[str, tuple[float, float]]
Scales = list[np.ndarray]
LogPrior = Callable[[np.ndarray], np.ndarray]


class Linear(NamedTuple):
    """A linear model with Normal coefficients given scales (point,).

    design: (row, coefficient). mean, variance: of the coefficients, (coefficient,) and (point, coefficient).
    noise: the standard deviation of the rows, (point,) or (row,). logs: grids of the logarithms of scales, with the log
    prior of each of these, not normalised. read: quantity -> weights of coefficients, or which scale it is.
    """

    y: np.ndarray
    design: np.ndarray
    mean: np.ndarray
    variance: Callable[[Scales], np.ndarray]
    noise: Callable[[Scales], np.ndarray]
    logs: Sequence[tuple[np.ndarray, LogPrior]]
    read: Mapping[str, np.ndarray | int]


def moments_of(model: Linear) -> Moments:
    """Means and standard deviations of the quantities."""
    grids = [grid.ravel() for grid in np.meshgrid(*(grid for grid, _ in model.logs), indexing="ij")] or [np.zeros(1)]
    log_prior = sum((prior(grid) for grid, (_, prior) in zip(grids, model.logs, strict=False)), np.zeros(len(grids[0])))
    linear = [name for name, how in model.read.items() if not isinstance(how, int)]
    weights = np.array([model.read[name] for name in linear]).reshape(-1, model.design.shape[1]).T
    logs, means, variances = [], [], []
    for points in np.array_split(np.arange(len(log_prior)), len(log_prior) // 1000 + 1):
        scales = [np.exp(grid[points]) for grid in grids]
        log, mean, variance = given_scales(model, scales, weights)
        logs.append(log + log_prior[points])
        means.append(mean)
        variances.append(variance)
    log = np.concatenate(logs)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    require_inside(weight.reshape([len(grid) for grid, _ in model.logs]))
    columns = dict(zip(linear, zip(np.concatenate(means).T, np.concatenate(variances).T, strict=True), strict=True))
    columns |= {name: (np.exp(grids[how]), 0.0) for name, how in model.read.items() if isinstance(how, int)}
    return {name: mixed(weight, *columns[name]) for name in model.read}


def given_scales(model: Linear, scales: Scales, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """The log evidence (point,), and means and variances (point, quantity) of weighted sums of the coefficients."""
    noise, prior = model.noise(scales), 1 / model.variance(scales)
    rows = noise[:, None] if noise.shape == scales[0].shape else np.broadcast_to(noise, (len(scales[0]), len(noise)))
    rows = np.broadcast_to(rows, (len(rows), len(model.y)))
    target = model.y - model.design @ model.mean
    if np.ptp(rows, axis=1).max() == 0:
        products = (model.design.T @ model.design) / rows[:, :1, None] ** 2
    else:
        products = np.einsum("rc,pr,rd->pcd", model.design, rows**-2.0, model.design)
    precision = products + prior[:, :, None] * np.eye(prior.shape[1])
    factor = np.linalg.cholesky(precision)
    right = (model.design.T @ (target[:, None] / rows.T**2)).T
    solved = np.linalg.solve(
        precision, np.concatenate([right[:, :, None], np.broadcast_to(weights, (len(right), *weights.shape))], -1)
    )
    shift = solved[:, :, 0]
    log = np.log(prior).sum(1) / 2 - np.log(rows).sum(1) - np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
    log -= ((target / rows) ** 2).sum(1) / 2 - (right * shift).sum(1) / 2
    return log, (model.mean + shift) @ weights, np.einsum("cq,pcq->pq", weights, solved[:, :, 1:])


def mixed(weight: np.ndarray, mean: np.ndarray, variance: np.ndarray | float) -> tuple[float, float]:
    """Mean and standard deviation of a mixture."""
    centre = (weight * mean).sum()
    return centre, np.sqrt((weight * (variance + (mean - centre) ** 2)).sum())


def require_inside(weight: np.ndarray) -> None:
    """Checks that a grid goes as far as there is any weight."""
    for axis in range(weight.ndim):
        ends = np.moveaxis(weight, axis, 0)
        share = ends[0].sum(), ends[-1].sum()
        assert max(share) < 1e-4, f"the grid ends too early on axis {axis}: {share}"


def one_of(position: int, size: int) -> np.ndarray:
    """The weights of one coefficient."""
    return np.eye(size)[position]


def gamma(shape: float, rate: float) -> LogPrior:
    """Of the logarithm of a standard deviation, whose precision has a Gamma prior; the others likewise."""
    return lambda log: -2 * shape * log - rate * np.exp(-2 * log)


def half_normal(scale: float) -> LogPrior:
    return lambda log: log - np.exp(2 * log) / (2 * scale**2)


def half_cauchy(scale: float) -> LogPrior:
    return lambda log: log - np.log1p(np.exp(2 * log) / scale**2)


def exponential(rate: float) -> LogPrior:
    return lambda log: log - rate * np.exp(log)


def uniform(high: float) -> LogPrior:
    return lambda log: np.where(np.exp(log) < high, log, -np.inf)


def variances(*blocks: tuple[int | None, float, int]) -> Callable[[Scales], np.ndarray]:
    """Variances of coefficients, (point, coefficient). blocks: (which scale or None, a factor, how many)."""

    def given(scales: Scales) -> np.ndarray:
        ones = np.ones(len(scales[0]))
        parts = [
            np.repeat(((ones if which is None else scales[which]) * factor)[:, None] ** 2, number, 1)
            for which, factor, number in blocks
        ]
        return np.concatenate(parts, 1)

    return given
