"""How probable values as far out are under a distribution: the logarithms of both tails, far beyond where a probability
is zero in floating point for those families that have such formulas.

`scipy.stats` has the same functions, and takes a second to load, which the first fit of a process would wait for.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpyro.distributions import Distribution
from scipy import special

Tails = tuple[np.ndarray, np.ndarray]
"""Logarithms of the probabilities of a value or less, and of a value or more."""


def log_tails(distribution: Distribution, x: np.ndarray) -> Tails:
    """The tails of a distribution of a family of `LOG_TAILS` at values inside of its support."""
    with np.errstate(all="ignore"):
        return LOG_TAILS[type(distribution).__name__](distribution, np.asarray(x, float))


def _standardised(d: Any, x: np.ndarray) -> np.ndarray:
    return (x - np.asarray(d.loc)) / np.asarray(d.scale)


def _logs(below: np.ndarray, above: np.ndarray) -> Tails:
    return np.log(below), np.log(above)


def _normal(z: np.ndarray) -> Tails:
    return special.log_ndtr(z), special.log_ndtr(-z)


def _half_normal(z: np.ndarray) -> Tails:
    return np.log(special.erf(z / np.sqrt(2.0))), np.log(2.0) + special.log_ndtr(-z)


def _exponential(z: np.ndarray) -> Tails:
    return np.log(-np.expm1(-z)), -z


def _laplace(z: np.ndarray) -> Tails:
    near, far = np.log1p(-0.5 * np.exp(-np.abs(z))), np.log(0.5) - np.abs(z)
    return np.where(z < 0, far, near), np.where(z < 0, near, far)


LOG_TAILS: dict[str, Callable[[Any, np.ndarray], Tails]] = {
    "Beta": lambda d, x: _logs(
        special.betainc(d.concentration1, d.concentration0, x), special.betaincc(d.concentration1, d.concentration0, x)
    ),
    "Cauchy": lambda d, x: _logs(*(np.arctan2(1.0, s * _standardised(d, x)) / np.pi for s in (-1, 1))),
    "Exponential": lambda d, x: _exponential(x * d.rate),
    "Gamma": lambda d, x: _logs(
        special.gammainc(d.concentration, x * d.rate), special.gammaincc(d.concentration, x * d.rate)
    ),
    "HalfCauchy": lambda d, x: _logs(*(2 / np.pi * np.arctan2(*pair) for pair in ((x, d.scale), (d.scale, x)))),
    "HalfNormal": lambda d, x: _half_normal(x / d.scale),
    "InverseGamma": lambda d, x: _logs(
        special.gammaincc(d.concentration, d.rate / x), special.gammainc(d.concentration, d.rate / x)
    ),
    "Laplace": lambda d, x: _laplace(_standardised(d, x)),
    "LogNormal": lambda d, x: _normal(_standardised(d, np.log(x))),
    "Logistic": lambda d, x: (special.log_expit(_standardised(d, x)), special.log_expit(-_standardised(d, x))),
    "Normal": lambda d, x: _normal(_standardised(d, x)),
    "StudentT": lambda d, x: _logs(*(special.stdtr(d.df, s * _standardised(d, x)) for s in (1, -1))),
}
"""For every family whose tails are known a function of a distribution and values."""
