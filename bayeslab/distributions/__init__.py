"""Distributions that NumPyro lacks, or draws slowly."""

import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used

from bayeslab.distributions.enumerated import Enumerated
from bayeslab.distributions.factor_graphs.markov_random_field import MarkovRandomField
from bayeslab.distributions.factor_graphs.restricted_boltzmann import RestrictedBoltzmann
from bayeslab.distributions.gamma import Beta, Dirichlet, Gamma, InverseGamma, Wishart, WishartCholesky
from bayeslab.distributions.joint_normal import JointNormal
from bayeslab.distributions.linear_gaussian_chain import LinearGaussianChain
from bayeslab.distributions.markov.chain import MarkovChain
from bayeslab.distributions.markov.log_likelihoods import FactoredLogLikelihood
from bayeslab.distributions.markov.scored.linear_chain_crf import LinearChainCRF
from bayeslab.distributions.mixing.generalised_inverse_gaussian import GeneralisedInverseGaussian
from bayeslab.distributions.mixing.hinge import HingeLoss, hinge_factor
from bayeslab.distributions.mixing.polya_gamma import PolyaGamma
from bayeslab.distributions.mixing.truncated_normal import BernoulliProbit, TruncatedNormal
from bayeslab.distributions.padded_dirichlet import PaddedCategorical, PaddedDirichlet

__all__ = [
    "BernoulliProbit",
    "Beta",
    "Dirichlet",
    "Enumerated",
    "FactoredLogLikelihood",
    "Gamma",
    "GeneralisedInverseGaussian",
    "HingeLoss",
    "InverseGamma",
    "JointNormal",
    "LinearChainCRF",
    "LinearGaussianChain",
    "MarkovChain",
    "MarkovRandomField",
    "PaddedCategorical",
    "PaddedDirichlet",
    "PolyaGamma",
    "RestrictedBoltzmann",
    "TruncatedNormal",
    "Wishart",
    "WishartCholesky",
    "hinge_factor",
]
