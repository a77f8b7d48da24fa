"""Prior-data conflict: a site whose posterior is where its prior hardly is, as of data in other units than the prior.

M. Evans and H. Moshonov (2006), Checking for prior-data conflict.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.elimination.terms import Prior, terms
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.wrapped_distributions import innermost_distribution

MAX_CONFLICT_PROBABILITY = 1e-8
"""The prior probability of a value, or one farther out, below which prior and data are in conflict: that of 5.7
standard deviations of a Normal."""

SCIPY_DISTRIBUTIONS = {
    "Beta": ("beta", lambda d: (d.concentration1, d.concentration0)),
    "Cauchy": ("cauchy", lambda d: (d.loc, d.scale)),
    "Exponential": ("expon", lambda d: (0.0, 1 / d.rate)),
    "Gamma": ("gamma", lambda d: (d.concentration, 0.0, 1 / d.rate)),
    "HalfCauchy": ("halfcauchy", lambda d: (0.0, d.scale)),
    "HalfNormal": ("halfnorm", lambda d: (0.0, d.scale)),
    "InverseGamma": ("invgamma", lambda d: (d.concentration, 0.0, d.rate)),
    "Laplace": ("laplace", lambda d: (d.loc, d.scale)),
    "LogNormal": ("lognorm", lambda d: (d.scale, 0.0, np.exp(d.loc))),
    "Logistic": ("logistic", lambda d: (d.loc, d.scale)),
    "Normal": ("norm", lambda d: (d.loc, d.scale)),
    "StudentT": ("t", lambda d: (d.df, d.loc, d.scale)),
}
"""Distributions whose tails SciPy has: the name there, and a function that returns the arguments, of which the last two
are location and scale."""


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
        and prior.kind.__name__ in SCIPY_DISTRIBUTIONS
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
    from scipy import stats

    mean = np.asarray(drawn, float).mean((0, 1))
    distribution = innermost_distribution(prior)
    family, arguments = SCIPY_DISTRIBUTIONS[type(distribution).__name__]
    with np.errstate(all="ignore"):
        frozen = getattr(stats, family)(*arguments(distribution))
        tail = np.log(2) + np.minimum(frozen.logcdf(mean), frozen.logsf(mean))
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
