"""The solvers: ways to compute with a Gaussian process, which its argument `solver` takes.

`Dense()` and `StateSpace()` are exact, `HilbertSpace(num_basis)` and `inducing_points(x, num_points)` approximate.
"""

from bayeslab.gaussian_processes.dense import Dense
from bayeslab.gaussian_processes.hilbert_space import HilbertSpace
from bayeslab.gaussian_processes.inducing_points import InducingPoints, inducing_points
from bayeslab.gaussian_processes.state_space.solver import StateSpace

__all__ = ["Dense", "HilbertSpace", "InducingPoints", "StateSpace", "inducing_points"]
