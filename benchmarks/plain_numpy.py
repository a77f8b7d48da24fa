"""Draws from the exact posteriors of the problems, as one would write them by hand, vectorised over draws."""

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular

Arrays = dict[str, np.ndarray]


def linear_regression(rng: Generator, x: np.ndarray, y: np.ndarray, size: int) -> Arrays:
    """One Cholesky factor serves all draws."""
    features = x.shape[1]
    precision = x.T @ x + 0.1 * np.eye(features)
    factor = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, x.T @ y)
    residual = np.sum((y - x @ mean) ** 2) + 0.1 * mean @ mean
    tau = rng.standard_gamma(2.0 + len(y) / 2, size) / (1.0 + residual / 2)
    spread = solve_triangular(factor, np.eye(features), lower=True)
    w = mean + rng.standard_normal((size, features)) @ spread / np.sqrt(tau)[:, None]
    return {"tau": tau, "w": w}


def normal_gamma(rng: Generator, y: np.ndarray, size: int) -> Arrays:
    rows, mean = len(y), y.mean()
    rate = 2.0 + (np.sum((y - mean) ** 2) + rows / (1 + rows) * mean**2) / 2
    tau = rng.standard_gamma(2.0 + rows / 2, size) / rate
    mu = np.sum(y) / (1 + rows) + rng.standard_normal(size) / np.sqrt((1 + rows) * tau)
    return {"tau": tau, "mu": mu}


def normal_wishart(rng: Generator, y: np.ndarray, mu0: np.ndarray, scale: np.ndarray, size: int) -> Arrays:
    """Bartlett's factor (row, column, draw): precision = (L A) (L A)', mu = mean + (L A)^-T normal."""
    rows, features = y.shape
    residual, distance = y - y.mean(0), y.mean(0) - mu0
    shift = rows / (1 + rows) * np.outer(distance, distance)
    factor = np.linalg.cholesky(np.linalg.inv(np.linalg.inv(scale) + residual.T @ residual + shift))
    bartlett = np.zeros((features, features, size))
    u = rng.standard_normal((features, size))
    for i in reversed(range(features)):
        bartlett[i, i] = np.sqrt(rng.chisquare(7.0 + rows - i, size))
        bartlett[i, :i] = rng.standard_normal((i, size))
        u[i] /= bartlett[i, i]
        u[:i] -= bartlett[i, :i] * u[i]
    root = np.einsum("ij,jks->sik", factor, bartlett, optimize=True)
    spread = solve_triangular(factor, u / np.sqrt(1 + rows), lower=True, trans=1)
    return {"precision": root @ root.mT, "mu": ((mu0 + y.sum(0)) / (1 + rows)) + spread.T}


POSTERIORS = {
    "linear_regression": linear_regression,
    "normal_gamma": normal_gamma,
    "normal_wishart": normal_wishart,
}
