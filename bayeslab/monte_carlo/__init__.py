"""The Monte Carlo methods of the lectures, beside `Gibbs` and `NUTS`: weights, resampling, rejection, random walks, slices,
tempering. Each is a method of `fit`.
"""

from bayeslab.monte_carlo.importance import SIR, ImportanceSampling

__all__ = ["SIR", "ImportanceSampling"]
