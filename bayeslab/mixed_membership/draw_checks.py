"""Checks of draws of mixed membership, for which no full conditional is found and verified.

Sweeps carry the likelihood along and keep probabilities in single precision. So it is computed again in double
precision at some of the draws; and no draw may lie far below those before and after it: a step that accepts by the
posterior goes there once in the age of the universe.
"""

from collections.abc import Mapping

import numpy as np
from jax import Array
from scipy.optimize import brentq

from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.programs.program import Bound
from bayeslab.transforms.draw_checks import FalseConditional

NUM_CHECKED_DRAWS = 4
"""Number of draws at which the likelihood is computed again."""
MAX_CHECKED_COPIES = 10**8
"""Most copies in all these draws together, which bounds the time of the check."""
RELATIVE_ROUNDING = 16 * np.finfo(np.float32).eps
"""Rounding error of the log probability of a copy, over 1 plus its size: that of the shares and frequencies that it is
summed from, and that of its logarithm."""
NUM_NEIGHBOURS = 5
"""Number of draws before, and after, a draw whose medians it is compared with."""
MAX_FALL_PROBABILITY = 1e-12
"""Probability of a fall below which it is not believed, in all draws together."""
FALL_SAFETY_FACTOR = 1.5
"""Factor of the limit of falls: log densities are not Gamma variables to the end of their tails."""


def require_no_falls(log_likelihood: np.ndarray) -> None:
    """Raises FalseConditional where one draw lies far below its neighbours. log_likelihood: (chain, draw).

    A log density of d numbers, nearly Normal ones, is a constant less a Gamma variable of shape d / 2 and scale 1. The
    shape is the variance; the limit of falls is Chernoff's.
    """
    for chain, values in enumerate(log_likelihood):
        if len(values) <= 2 * NUM_NEIGHBOURS:
            return
        shape = max((1.4826 * np.median(abs(values - np.median(values)))) ** 2, 1.0)
        middles = np.median(np.lib.stride_tricks.sliding_window_view(values, NUM_NEIGHBOURS), axis=1)
        fall = (
            np.minimum(middles[: -NUM_NEIGHBOURS - 1], middles[NUM_NEIGHBOURS + 1 :])
            - values[NUM_NEIGHBOURS:-NUM_NEIGHBOURS]
        )
        draw = int(np.argmax(fall))
        if fall[draw] > _max_fall_nats(shape, log_likelihood.size):
            raise FalseConditional(
                f"draw {draw + NUM_NEIGHBOURS} of chain {chain} lies {fall[draw]:.3g} nats below those before and "
                "after it, where no step that accepts by the posterior goes, so the draws are not of the posterior; "
                "please report the data"
            )


def _max_fall_nats(shape: float, draws: int) -> float:
    """The fall in nats that is still believed: how far above its mean the largest of so many Gamma variables is with a
    probability of MAX_FALL_PROBABILITY, at most, times a factor."""
    log_odds = np.log(draws / MAX_FALL_PROBABILITY)
    return FALL_SAFETY_FACTOR * brentq(
        lambda x: x - shape * np.log1p(x / shape) - log_odds, 0.0, 1e3 * (log_odds + shape)
    )


def require_likelihood(
    roles: Membership, bound: Bound, samples: Mapping[str, Array | np.ndarray], log_likelihood: np.ndarray
) -> None:
    """Raises FalseConditional where the likelihood that sweeps carried along is not that of the draws.

    samples: (chain, draw, *site). log_likelihood: (chain, draw), origins summed over.
    """
    shape = roles.shape
    assert isinstance(shape, GenotypeShape)
    y = np.asarray(bound.observed[roles.observed])
    seen = np.asarray(bound.present.get(roles.observed, True)) & (y >= 0)
    draws = min(NUM_CHECKED_DRAWS, log_likelihood.size, MAX_CHECKED_COPIES // max(y.size, 1))
    indices = np.unique(np.linspace(0, log_likelihood.size - 1, draws).astype(int))
    flat = [np.asarray(samples[name]) for name in roles.probabilities]
    weights, components = (values.reshape(-1, *values.shape[2:]) for values in flat)
    for index in indices:
        p = np.einsum("ik,kla->ila", weights[index].astype(float), components[index].astype(float))
        of_copies = np.log(np.take_along_axis(p, np.where(seen, y, 0).astype(int), axis=2), where=seen, out=0.0 * y)
        gap, limit = (
            abs(of_copies.sum() - log_likelihood.flat[index]),
            RELATIVE_ROUNDING * (seen.sum() + abs(of_copies).sum()),
        )
        if not gap <= limit:
            raise FalseConditional(
                f"the log likelihood that was carried along differs from that of a draw by {gap:.3g} nats, where "
                f"rounding explains {limit:.2g}, so the draws are not of the posterior; please report the data"
            )
