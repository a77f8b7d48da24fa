"""How strongly jointly Normal sites depend on each other, which decides how long trajectories through them are."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.points.likely_points import in_double_precision, likely_points
from bayeslab.verification.points.probe_points import Point

MAX_DECOMPOSED_SIZE = 1000
"""Elements of the sites, at most, whose correlations are decomposed: a second."""


def condition_number(bound: Bound, rules: Sequence[Rule], names: tuple[str, ...]) -> float:
    """The condition number of the correlations of jointly Normal sites, given all others at a likely point.

    Hamiltonian trajectories with a diagonal mass matrix take a number of steps that grows like its square root. 1 where
    the sites have too many elements to find it; infinite where the precision is singular at double precision.
    rules: of all sites that have one, each given all others.
    """
    if sum(prod(bound.sites[name].shape) for name in names) > MAX_DECOMPOSED_SIZE:
        return 1.0
    with jax.enable_x64(True):
        widened = in_double_precision(bound)
        points = likely_points(widened, rules)
        if not points:
            return 1.0
        [precision] = evaluate_all([_joint_precision(names)], points[0])
    return _condition_number_of_correlations(np.asarray(precision))


@lru_cache(maxsize=64)
def _joint_precision(names: tuple[str, ...]) -> Callable[[Point], Array]:
    """A function of a point: the precision (size, size) of all elements of some sites, minus the Hessian there."""

    def precision(point: Point) -> Array:
        bound, values = point
        flat, unravel = ravel_pytree({name: values[name] for name in names})
        reached = [term for term in terms(bound).terms if not term.depends.isdisjoint(names)]
        gradient = jax.grad(lambda x: sum_of_terms(reached, bound, values | unravel(x)))
        return -jax.vmap(jax.linearize(gradient, flat)[1])(jnp.eye(flat.size))

    return precision


def _condition_number_of_correlations(precision: np.ndarray) -> float:
    try:
        covariance = np.linalg.inv(precision)
    except np.linalg.LinAlgError:
        return inf
    variances = np.diagonal(covariance)
    if not (variances > 0).all():
        return inf
    scales = np.sqrt(variances)
    eigenvalues = np.linalg.eigvalsh(covariance / scales / scales[:, None])
    return float(eigenvalues[-1] / eigenvalues[0]) if eigenvalues[0] > 0 else inf
