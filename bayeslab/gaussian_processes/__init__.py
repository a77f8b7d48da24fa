"""Gaussian processes: kernels, the distribution, and ways to compute with it, dense, in state space, by a basis.

A representation of a process g at its inputs, with prior mean 0, draws it and integrates it against a likelihood
exp(sum_i linear_i g_i - precision_i g_i^2 / 2), given as information pairs (precision, linear).
"""

import lazy_loader
import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used

from bayeslab.gaussian_processes.distribution import GaussianProcess

# kernels bring tinygp
__getattr__, _, _ = lazy_loader.attach(__name__, ["kernels", "solvers"])
__all__ = ["GaussianProcess", "kernels", "solvers"]
