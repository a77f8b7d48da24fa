"""The terms that a field reaches, as a function of its elements, whole and taken apart."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.sum_of_parts import SumOfParts, sum_of_parts
from bayeslab.elimination.terms import Term, sum_of_terms
from bayeslab.programs.program import Bound, Values


def field_density(
    field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> Callable[[Array], Array]:
    """The terms that a field reaches, summed, as a function of indices of choices (size,)."""
    reached = [term for term in log_joint_terms if not term.depends.isdisjoint(field.names)]

    def density(indices: Array) -> Array:
        return sum_of_terms(reached, bound, values | field.named(indices))

    return density


def field_parts(field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values) -> SumOfParts:
    """The terms that a field reaches, taken apart, as functions of indices of choices (size,)."""
    start = jnp.zeros(field.size, jnp.int32)
    taken = sum_of_parts(field_density(field, log_joint_terms, bound, values), start)
    shapes = tuple(weight.shape for weight in taken.weights)
    assert shapes == tuple(part.shape for part in field.parts), "a program has the same parts whenever it is traced"
    return taken
