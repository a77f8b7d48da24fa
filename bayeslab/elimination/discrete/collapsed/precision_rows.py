"""Which rows of the precision of jointly Normal sites change with a discrete element.

An indicator of a regression changes the row and the column of its coefficient, and leaves all others as they are. So a
few products of the Hessian, in place of all, give the precision after a change.
"""

from collections.abc import Callable, Sequence
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.distributions.precision_structure import PrecisionStructure
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.scopes import follow_elements
from bayeslab.elimination.rules import Rule
from bayeslab.elimination.terms import Term, sum_of_terms
from bayeslab.programs.program import Bound, Values

MIN_SIZE = 8
"""Elements of the Normal sites from which on rows are told apart: the precision of fewer is sooner made anew."""
MAX_SHARE_OF_ROWS = 0.25
"""Share of all rows, at most, that an element changes."""

JointDensity = Callable[[Array, Array], Array]
"""What the log joint says of Normal sites and discrete elements: of one vector of the values of the former (size,), and
indices of choices of the latter (element,)."""


def joint_density(
    normal: Rule, field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> JointDensity:
    """The terms that Normal sites reach. normal: the rule that integrates them out."""
    reached = normal.reached(log_joint_terms)
    shape = normal.block.shape if isinstance(normal.block, StepStructure) else bound.sites[normal.sites[0]].shape

    def density(vector: Array, indices: Array) -> Array:
        value = vector if isinstance(normal.block, PrecisionStructure) else vector.reshape(shape)
        return sum_of_terms(reached, bound, values | normal.named(value) | field.named(indices))

    return density


def precision_rows(density: JointDensity, vector: Array, indices: Array, directions: Array) -> Array:
    """Some rows (row, size) of the precision. directions: unit vectors that say which (row, size)."""
    _, change = jax.linearize(lambda x: jax.grad(density)(x, indices), vector)
    return -jax.vmap(change)(directions)


def changed_rows(
    normal: Rule, field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> np.ndarray | None:
    """For every element of a field, the rows of the precision of Normal sites that change with it (element, row).

    The last of them is repeated where there are fewer than of other elements. All other entries of the precision are
    functions of other elements, in whatever way the program makes them. None where the elements change more than a
    few rows, so that nothing is won. values: of all latent sites; nothing but their shapes matters.
    """
    size = sum(prod(bound.sites[name].shape) for name in normal.sites)
    if size < MIN_SIZE:
        return None
    vector = jnp.zeros(size)
    others = {name: value for name, value in values.items() if name not in (*normal.sites, *field.names)}

    def precision(indices: Array, bound: Bound, others: Values) -> Array:
        density = joint_density(normal, field, log_joint_terms, bound, others)
        directions = jnp.asarray(np.eye(size))  # NumPy's, so that its zeros are constants of the trace
        return precision_rows(density, vector, indices, directions)

    followed = follow_elements(precision, field.size, bound, others, looks_for_zeros=True)
    table, sums = followed.finder.table, followed.sums
    entries = sums.get(followed.program.outputs[0], np.zeros((size, size), np.int32))
    changed = np.zeros((field.size, size, size), bool)
    for distinct in np.unique(entries):
        members = frozenset().union(*table.sums[distinct])
        changed[sorted(members)] |= entries == distinct
    rows = [_covering_rows(each | each.T) for each in changed]
    width = max(map(len, rows))
    if width > MAX_SHARE_OF_ROWS * size:
        return None
    return np.array([[*each, *[each[-1] if each else 0] * (width - len(each))] for each in rows], np.int32)


def _covering_rows(changed: np.ndarray) -> list[int]:
    """A few rows that, with the columns of the same numbers, hold all entries of a symmetric matrix that are set."""
    left, rows = changed.copy(), []
    while left.any():
        rows.append(int(np.argmax(left.sum(1))))
        left[rows[-1]] = left[:, rows[-1]] = False
    return rows
