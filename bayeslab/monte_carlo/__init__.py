"""The Monte Carlo methods of the lectures, beside `Gibbs` and `NUTS`: weights, resampling, rejection, random walks,
slices, tempering. Each is a method of `fit`.
"""

import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used

from bayeslab.monte_carlo.annealed import AnnealedImportance
from bayeslab.monte_carlo.importance import SIR, ImportanceSampling
from bayeslab.monte_carlo.metropolis import Independence, MetropolisHastings, Proposal, RandomWalk
from bayeslab.monte_carlo.parallel import ParallelTempering
from bayeslab.monte_carlo.rejection import RejectionSampling
from bayeslab.monte_carlo.sequential import SMC
from bayeslab.monte_carlo.slices import Slice
from bayeslab.monte_carlo.weighted_bounds import importance_weighted_bounds

__all__ = [
    "SIR",
    "SMC",
    "AnnealedImportance",
    "ImportanceSampling",
    "Independence",
    "MetropolisHastings",
    "ParallelTempering",
    "Proposal",
    "RandomWalk",
    "RejectionSampling",
    "Slice",
    "importance_weighted_bounds",
]
