"""Distributions that NumPyro lacks."""

from bayeslab.distributions.enumerated import Enumerated
from bayeslab.distributions.joint_normal import JointNormal
from bayeslab.distributions.markov_chain import MarkovChain

__all__ = ["Enumerated", "JointNormal", "MarkovChain"]
