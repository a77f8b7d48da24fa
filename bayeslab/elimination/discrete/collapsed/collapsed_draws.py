"""Draws of discrete elements, one after another, with jointly Normal sites integrated out.

Of the precision of the Normal sites, the rows that change with an element are made anew, and the others are kept.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from bayeslab.distributions import Enumerated
from bayeslab.elimination.discrete.collapsed.precision_rows import JointDensity, joint_density, precision_rows
from bayeslab.elimination.discrete.element_draws import choices_from_current, possible
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.rules import Rule
from bayeslab.elimination.terms import Term, sum_of_terms
from bayeslab.programs.program import Bound, Values


class Configuration(NamedTuple):
    """Choices of all elements, and the Normal sites given them.

    indices: of choices (element,). total: the log joint, Normal sites integrated out, but for a constant. precision:
    of the Normal sites (size, size). mean: theirs (size,).
    """

    indices: Array
    total: Array
    precision: Array
    mean: Array


class CollapsedElements(NamedTuple):
    """Discrete elements, and the Normal sites that are integrated out.

    density: of the terms that the Normal sites reach. others: the terms that the elements alone reach, of indices.
    rows: of the precision that change with every element (element, row).
    """

    field: Field
    density: JointDensity
    others: Callable[[Array], Array]
    rows: Array

    def at(self, indices: Array, precision: Array, near: Array) -> Configuration:
        """A configuration. near: values of the Normal sites, from which their mean is one step."""
        factor = jnp.linalg.cholesky(precision)
        log_density, slope = jax.value_and_grad(self.density)(near, indices)
        whitened = solve_triangular(factor, slope, lower=True)
        mean = near + solve_triangular(factor, whitened, lower=True, trans=1)
        log_integral = log_density + 0.5 * (whitened**2).sum() - jnp.log(jnp.diagonal(factor)).sum()
        return Configuration(indices, self.others(indices) + log_integral, precision, mean)

    def first(self, indices: Array, near: Array) -> Configuration:
        """A configuration, whose precision is made as a whole."""
        return self.at(indices, precision_rows(self.density, near, indices, jnp.eye(near.size)), near)

    def moved(self, now: Configuration, element: Array, choice: Array) -> Configuration:
        """The configuration with another choice of one element."""
        indices, rows = now.indices.at[element].set(choice), self.rows[element]
        directions = jax.nn.one_hot(rows, now.mean.size, dtype=now.mean.dtype)
        changed = precision_rows(self.density, now.mean, indices, directions)
        precision = now.precision.at[rows].set(changed).at[:, rows].set(changed.T)
        return self.at(indices, precision, now.mean)


def collapsed_elements(
    field: Field, normal: Rule, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> CollapsedElements:
    """The elements of a field with the sites of a rule integrated out. log_joint_terms: before that."""
    assert field.changed_rows is not None
    reached = normal.reached(log_joint_terms)
    alone = [term for term in log_joint_terms if term not in reached and not term.depends.isdisjoint(field.names)]

    def others(indices: Array) -> Array:
        return sum_of_terms(alone, bound, values | field.named(indices))

    density = joint_density(normal, field, log_joint_terms, bound, values)
    return CollapsedElements(field, density, others, jnp.asarray(field.changed_rows))


def residual_of_moves(elements: CollapsedElements, indices: Array, near: Array) -> Array:
    """How far the log joint, after every element has moved to its next choice, one after another, is from what it is
    there when the precision is made as a whole; relative to what changes."""
    cards = jnp.asarray(elements.field.cards)

    def move(now: Configuration, element: Array) -> tuple[Configuration, Array]:
        moved = elements.moved(now, element, ((now.indices[element] + 1) % cards[element]).astype(indices.dtype))
        return moved, jnp.abs(moved.total - now.total)

    last, changes = jax.lax.scan(move, elements.first(indices, near), jnp.arange(elements.field.size))
    whole = elements.first(last.indices, last.mean)
    entries = jnp.abs(last.precision - whole.precision).max() / jnp.abs(whole.precision).max()
    return jnp.maximum(jnp.abs(last.total - whole.total) / (1 + changes.sum()), entries)


def draw_collapsed_elements(key: Array, elements: CollapsedElements, indices: Array, near: Array) -> Array:
    """Indices of choices (element,) after one sweep: every element was drawn given the newest values of all others.

    near: values of the Normal sites (size,), from which their mean is one step.
    """
    field = elements.field
    uniform = jax.random.uniform(key, (field.size,))

    def step(now: Configuration, element: Array) -> tuple[Configuration, None]:
        choices, exists = choices_from_current(field, now.indices, element)
        moved = jax.vmap(lambda choice: elements.moved(now, element, choice))(choices[1:])
        totals = jnp.where(exists, jnp.concatenate([now.total[None], moved.total]), -jnp.inf)
        place = Enumerated(possible(totals), jnp.arange(len(totals))).from_uniform(uniform[element])
        return jax.tree.map(
            lambda old, new: jnp.where(place == 0, old, new[jnp.maximum(place - 1, 0)]), now, moved
        ), None

    return jax.lax.scan(step, elements.first(indices, near), jnp.arange(field.size))[0].indices
