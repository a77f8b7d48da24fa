"""Priors whose sites may have a Normal or a truncated Normal conditional, and families of flat ones."""

import numpyro.distributions as dist

from bayeslab.distributions.mixing.truncated_normal import TruncatedNormal

NORMAL_PRIORS = (
    dist.Normal,
    dist.MultivariateNormal,
    dist.LowRankMultivariateNormal,
    dist.MatrixNormal,
    dist.GaussianRandomWalk,
    dist.GaussianStateSpace,
    dist.CAR,
)
"""Priors whose conditionals are Normal."""
TRUNCATED_NORMAL_PRIORS = (
    dist.HalfNormal,
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
    dist.Uniform,
    TruncatedNormal,
)
"""Priors whose conditionals are truncated Normals."""

FLAT_FAMILIES = {
    "real": ("Normal",),
    "positive": ("Gamma", "InverseGamma"),
    "nonnegative": ("Gamma", "InverseGamma"),
    "unit interval": ("Beta",),
    "simplex": ("Dirichlet",),
}
"""Families whose members could be the conditional of a site that is flat, and improper, over a support."""
