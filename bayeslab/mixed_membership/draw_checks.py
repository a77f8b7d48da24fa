"""A watch over draws of mixed membership, which no conditional is read for.

Sweeps carry the likelihood along and keep probabilities in single precision. So it is computed again in double
precision at some of the draws; and no draw may lie far below those before and after it: a step that accepts by the
posterior goes there once in the age of the universe.
"""

from collections.abc import Mapping

import numpy as np
from jax import Array
from scipy.optimize import brentq

from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.programs.program import Bound
from bayeslab.transforms.draw_checks import FalseConditional

DRAWS = 4
"""At which the likelihood is computed again."""
MOST = 10**8
"""Copies in all draws from which it is not."""
ROUNDING = 16 * np.finfo(np.float32).eps
"""Of the log probability of a copy: of the shares and frequencies that it is summed from, and of its logarithm."""
AROUND = 5
"""Draws before and after one, whose medians it is held against."""
RARE = 1e-12
"""The probability of a fall that is not believed, in all draws together."""
SPARE = 1.5
"""Times that: log densities are not Gamma variables to the end of their tails."""


def require_no_falls(log_likelihood: np.ndarray) -> None:
    """Raises FalseConditional where one draw lies far below its neighbours. log_likelihood: (chain, draw).

    A log density of d numbers, nearly Normal ones, is a constant less a Gamma variable of shape d / 2 and scale 1. The
    shape is the variance; the limit of falls is Chernoff's.
    """
    for chain, values in enumerate(log_likelihood):
        if len(values) <= 2 * AROUND:
            return
        shape = max((1.4826 * np.median(abs(values - np.median(values)))) ** 2, 1.0)
        middles = np.median(np.lib.stride_tricks.sliding_window_view(values, AROUND), axis=1)
        fall = np.minimum(middles[: -AROUND - 1], middles[AROUND + 1 :]) - values[AROUND:-AROUND]
        draw = int(np.argmax(fall))
        if fall[draw] > _limit(shape, log_likelihood.size):
            raise FalseConditional(
                f"draw {draw + AROUND} of chain {chain} lies {fall[draw]:.3g} nats below those before and after "
                "it, where no step that accepts by the posterior goes, so the draws are not of the posterior; please "
                "report the data"
            )


def _limit(shape: float, draws: int) -> float:
    """How far a Gamma variable is above its mean with a probability of RARE for so many of them, at most."""
    log_odds = np.log(draws / RARE)
    return SPARE * brentq(lambda x: x - shape * np.log1p(x / shape) - log_odds, 0.0, 1e3 * (log_odds + shape))


def require_likelihood(
    found: Membership, bound: Bound, samples: Mapping[str, Array | np.ndarray], log_likelihood: np.ndarray
) -> None:
    """Raises FalseConditional where the likelihood that sweeps carried along is not that of the draws.

    samples: (chain, draw, *site). log_likelihood: (chain, draw), origins summed over.
    """
    shape = found.shape
    assert isinstance(shape, Shape)
    y = np.asarray(bound.observed[found.observed])
    seen = np.asarray(bound.present.get(found.observed, True)) & (y >= 0)
    draws = min(DRAWS, log_likelihood.size, MOST // max(y.size, 1))
    places = np.unique(np.linspace(0, log_likelihood.size - 1, draws).astype(int))
    flat = [np.asarray(samples[name]) for name in found.probabilities]
    weights, components = (each.reshape(-1, *each.shape[2:]) for each in flat)
    for place in places:
        p = np.einsum("ik,kla->ila", weights[place].astype(float), components[place].astype(float))
        of_copies = np.log(np.take_along_axis(p, np.where(seen, y, 0).astype(int), axis=2), where=seen, out=0.0 * y)
        gap, limit = abs(of_copies.sum() - log_likelihood.flat[place]), ROUNDING * (seen.sum() + abs(of_copies).sum())
        if not gap <= limit:
            raise FalseConditional(
                f"the log likelihood that was carried along differs from that of a draw by {gap:.3g} nats, where "
                f"rounding explains {limit:.2g}, so the draws are not of the posterior; please report the data"
            )
