"""Distributions that NumPyro lacks."""

from bayeslab.distributions.enumerated import Enumerated
from bayeslab.distributions.joint_normal import JointNormal

__all__ = ["Enumerated", "JointNormal"]
