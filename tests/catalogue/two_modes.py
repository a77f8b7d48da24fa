"""A program in two dimensions whose posterior has two modes of different weight, and its evidence by a grid."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import logsumexp
from scipy.stats import norm

PRIOR = (0.5, 1.5)
NOISE = 0.5
DATA = {"y": np.array([2.4, 3.1, 2.0])}


def product(num_rows: int = 3) -> None:
    """Draw a () and b (), and y (row,), about their product: (a, b) and (-a, -b) explain it equally well."""
    a = numpyro.sample("a", dist.Normal(*PRIOR))
    b = numpyro.sample("b", dist.Normal(*PRIOR))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(a * b, NOISE))


def grid_answers(y: Any = DATA["y"], points: int = 1601, width: float = 9.0) -> dict[str, float]:
    """The log evidence, the share of the mode with a > 0, and mean and sd of a, by a sum over a grid."""
    axis = np.linspace(-width, width, points)
    a, b = axis[:, None], axis[None, :]
    log_joint = norm.logpdf(a, *PRIOR) + norm.logpdf(b, *PRIOR)
    log_joint = log_joint + sum(norm.logpdf(each, a * b, NOISE) for each in np.asarray(y))
    total = logsumexp(log_joint)
    weights = np.exp(log_joint - total)
    mean = float((weights * a).sum())
    return {
        "log_evidence": float(total + 2 * np.log(axis[1] - axis[0])),
        "share": float(weights[axis > 0].sum()),
        "mean": mean,
        "sd": float(np.sqrt((weights * (a - mean) ** 2).sum())),
    }
