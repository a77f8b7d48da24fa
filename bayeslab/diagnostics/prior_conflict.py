"""Prior-data conflict: a site whose posterior is where its prior hardly is, as of data in other units than the prior.

M. Evans and H. Moshonov (2006), Checking for prior-data conflict.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jax import Array
from numpyro.distributions import Distribution
from scipy import special

from bayeslab.elimination.terms import Prior, terms
from bayeslab.programs.program import Bound, innermost_distribution
from bayeslab.programs.tracing.compilation import evaluate_all

MAX_CONFLICT_PROBABILITY = 1e-8
"""The prior probability of a value, or one farther out, below which prior and data are in conflict: that of 5.7
standard deviations of a Normal."""
Tails = tuple[np.ndarray, np.ndarray]
"""Logarithms of the probabilities of a value or less, and of a value or more."""


def describe_prior_conflict(bound: Bound, draws: Mapping[str, Array | np.ndarray]) -> str:
    """A sentence on the site whose posterior mean is least probable under its prior, or nothing.

    draws: (chain, draw, *site). Only sites of families with known tails whose priors depend on no other site count.
    """
    bound = bound.plain
    priors = [
        prior
        for name, prior in terms(bound).priors.items()
        if name in draws
        and name not in bound.imputed
        and not prior.depends
        and not prior.discrete
        and prior.kind.__name__ in LOG_TAILS
    ]
    distributions = evaluate_all([_prior_distribution(prior) for prior in priors], bound)
    candidates = [
        _least_probable_element(prior.name, fn, draws[prior.name])
        for prior, fn in zip(priors, distributions, strict=True)
    ]
    least, name, value = min(candidates, default=(0.0, "", 0.0))
    if least >= np.log(MAX_CONFLICT_PROBABILITY):
        return ""
    return (
        f"{name} is near {value:.3g}, and its prior has a probability of {np.exp(max(least, -700)):.0e} there and "
        "beyond; if prior and data are on different scales, standardise the data or give the prior their scale"
    )


def _least_probable_element(name: str, prior: Distribution, drawn: Array | np.ndarray) -> tuple[float, str, float]:
    """For the element of a site whose mean is least probable under the prior: the log probability of that mean or one
    farther out, the name of the element, and the mean."""
    mean = np.asarray(drawn, float).mean((0, 1))
    tail = np.log(2) + np.minimum(*log_tails(innermost_distribution(prior), mean))
    if tail.shape != mean.shape or not np.isfinite(mean).all() or np.isnan(tail).any() or not tail.size:
        return 0.0, "", 0.0
    index = np.unravel_index(np.argmin(tail), tail.shape)
    label = f"{name}[{', '.join(map(str, index))}]" if index else name
    return float(tail[index]), label, float(mean[index])


@lru_cache(maxsize=256)
def _prior_distribution(prior: Prior) -> Callable[[Any], Distribution]:
    """The distribution of a prior that depends on no site, as a function of the Bound; the same one for the same
    prior, so that it is compiled once."""
    return lambda bound: prior.distribution(bound, {})


def log_tails(distribution: Distribution, x: np.ndarray) -> Tails:
    """The tails of a distribution of a family of `LOG_TAILS` at values inside of its support.

    `scipy.stats` has the same functions, and takes a second to load, which the first fit of a process would wait for.
    """
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
