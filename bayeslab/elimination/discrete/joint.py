"""The joint conditional of discrete elements that meet: tables read off the log joint, summed over one after another.

A part of the log joint that one function of a few elements makes is looked at with all their values, for all parts at
once: elements of one colour take their values together. A part that is a sum of several functions, as a square of a sum
is, is taken apart by differences from a configuration in which every element has its first value.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution
from bayeslab.distributions.factor_graphs.totals_distribution import TotalsDistribution
from bayeslab.elimination.discrete.field_parts import field_parts
from bayeslab.elimination.discrete.fields import CONSTANT, MIXED, Field
from bayeslab.elimination.discrete.sum_of_parts import weighted
from bayeslab.elimination.discrete.table_reading import plan_of, reading_of
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Bound, Values

NUMBERS_PER_BATCH = 10**7
"""Numbers of all parts, at all configurations that are looked at together, at most."""

MAX_CONFIGURATIONS_FOLDED = 2**12
"""Configurations at most that the compiler may compute with itself, for which it takes seconds where they are many."""


class Tables(NamedTuple):
    """What the log joint says of the elements of a field: the sum of all tables and a constant."""

    field: Field
    numbers: Array
    constant: Array

    @property
    def joint(self) -> FactorDistribution | TotalsDistribution:
        """The distribution of the elements, over indices of choices (size,)."""
        if (graph := self.field.totals_graph) is not None:
            return TotalsDistribution(self.numbers, graph)
        return FactorDistribution(self.planned_numbers, plan_of(self.field), totals=self.field.totals)

    @property
    def planned_numbers(self) -> Array:
        """The numbers of all tables that the plan of an elimination has: those by which totals grow, too."""
        if self.field.totals is None:
            return self.numbers
        return jnp.concatenate([self.numbers, jnp.asarray(self.field.totals.numbers, self.numbers.dtype)])


def joint_tables(field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values) -> Tables:
    """The tables of a field at values of the other sites."""
    reading = reading_of(field)
    taken = field_parts(field, log_joint_terms, bound, values)
    kinds = np.concatenate([np.zeros(0, np.int32), *(part.ravel() for part in field.parts)])
    cards, size = jnp.asarray(field.cards), max(len(kinds), field.size, 1)

    def at(indices: Array) -> Array:
        return weighted(taken.parts(indices), taken.weights)

    def at_assignment(assignment: Array) -> Array:
        return at(jnp.minimum(assignment[field.colours], cards - 1).astype(jnp.int32))

    numbers = _mapped(at_assignment, jnp.asarray(reading.assignments), size)
    constant = taken.constant + numbers[0][np.flatnonzero(kinds == CONSTANT).astype(np.int32)].sum()
    single = np.flatnonzero(kinds >= 0).astype(np.int32)
    by_scope = jnp.zeros((len(numbers), max(len(field.scopes), 1)), numbers.dtype)
    by_scope = by_scope.at[:, kinds[single]].add(numbers[:, single])
    tables = by_scope[reading.rows, reading.columns]
    if reading.differences is not None:
        mixed = np.flatnonzero(kinds == MIXED).astype(np.int32)
        shifts = reading.differences

        def at_change(change: tuple[Array, Array]) -> Array:
            indices = jnp.zeros(field.size + 1, jnp.int32).at[change[0]].set(change[1])
            return at(indices[:-1])[mixed].sum()

        totals = _mapped(at_change, (jnp.asarray(shifts.elements), jnp.asarray(shifts.digits)), size)
        tables = jnp.concatenate([tables, (totals[shifts.places] * shifts.signs).sum(-1)])
        constant += totals[0]
    return Tables(field, tables, constant)


def joint_conditional(
    field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> tuple[FactorDistribution | TotalsDistribution, Array]:
    """The joint conditional of a field, over indices of choices (size,), and its log evidence."""
    tables = joint_tables(field, log_joint_terms, bound, values)
    joint = tables.joint
    return joint, joint.log_partition + tables.constant


def _mapped(function, arguments, size: int) -> Array:  # type: ignore[no-untyped-def]
    """A function of many arguments, as many at once as there is room for. size: numbers that one takes."""
    count = len(jax.tree.leaves(arguments)[0])
    if count > MAX_CONFIGURATIONS_FOLDED:
        arguments = jax.lax.optimization_barrier(arguments)
    if count * size <= NUMBERS_PER_BATCH:
        return jax.vmap(function)(arguments)
    return jax.lax.map(function, arguments, batch_size=max(NUMBERS_PER_BATCH // size, 1))
