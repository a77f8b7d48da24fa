"""What draws of discrete elements one after another claim of the log joint, and what it says itself.

From one configuration to another, step by step of a sweep: whenever the elements of a step change, the log joint
changes by what their conditionals say, if these are right and the elements do not meet.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.discrete.element_draws import (
    MAX_COLOURS_UNROLLED,
    choices_of_one,
    log_probs_of_step,
    steps_of,
    total_of,
)
from bayeslab.elimination.discrete.field_parts import field_parts
from bayeslab.elimination.discrete.fields import MIXED, Field
from bayeslab.elimination.discrete.sum_of_parts import SumOfParts, weighted
from bayeslab.elimination.discrete.table_reading import assignments_of
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Bound, Values

NUM_CONFIGURATIONS = 4
"""Random configurations that are walked to, one after the other."""
MAX_NUMBERS_LOOKED_AT = 10**8
"""Numbers of all parts at all values of their elements, at most; more are not looked at."""
MAX_STEPS_WALKED = 64
"""Steps of a walk of single elements, at most: some of them where there are more, others in every walk."""


class Changes(NamedTuple):
    """Changes of every step of all walks, (walk, step).

    joint: of the log joint. conditional: by the conditionals. moved: the sum of all changes of parts without signs, and
    size: of all parts. excluded: whether values of some elements have made those of others impossible. indices: the
    last configuration.
    """

    joint: Array
    conditional: Array
    moved: Array
    size: Array
    excluded: Array
    indices: Array


def changes_of_elements(rule: Rule, log_joint_terms: Sequence[Term], bound: Bound, values: Values) -> Changes:
    """What a rule for draws of elements claims on walks from the configuration that values have."""
    field = rule.field
    assert field is not None
    parts = field_parts(field, log_joint_terms, bound, values)
    reached = rule.reached(log_joint_terms)
    joined = _joining_places(field)

    def densities(indices: Array) -> list[Array]:
        everything = values | field.named(indices)
        return [term.density(bound, everything) for term in reached]

    def change(indices: Array, new: Array, elements: Array, step: Array) -> tuple[Array, tuple[Array, ...]]:
        moved = indices.at[elements].set(new[elements])
        before, after = densities(indices), densities(moved)
        joint = sum((a.sum() - b.sum() for a, b in zip(after, before, strict=True)), jnp.zeros(()))
        distance = sum((jnp.abs(a - b).sum() for a, b in zip(after, before, strict=True)), jnp.zeros(()))
        size = sum((jnp.abs(a).sum() + jnp.abs(b).sum() for a, b in zip(after, before, strict=True)), jnp.zeros(()))
        excluded = jnp.isneginf(weighted(parts.parts(moved), parts.weights)[joined]).any()
        return moved, (joint, step.sum(), distance + jnp.abs(step).sum(), size, excluded)

    def walk_by_colours(indices: Array, new: Array) -> tuple[Array, tuple[Array, ...]]:
        changes = []
        for step in steps_of(field):
            log_probs = log_probs_of_step(field, parts, indices, step)
            rows, elements = jnp.arange(len(step.elements)), jnp.asarray(step.elements)
            claimed = log_probs[rows, new[elements]] - log_probs[rows, indices[elements]]
            indices, each = change(indices, new, elements, claimed)
            changes.append(each)
        return indices, tuple(jnp.stack(each) for each in zip(*changes, strict=True))

    def walk_by_elements(indices: Array, walk: tuple[Array, Array]) -> tuple[Array, tuple[Array, ...]]:
        new, order = walk

        def step(indices: Array, element: Array) -> tuple[Array, tuple[Array, ...]]:
            choices, totals = choices_of_one(field, parts, indices, element, total_of(parts, indices))
            claimed = totals[jnp.argmax(choices == new[element])] - totals[0]
            return change(indices, new, element[None], claimed[None])

        return jax.lax.scan(step, indices, order)

    rng = np.random.default_rng(0)
    targets = jnp.asarray(rng.integers(0, field.cards, (NUM_CONFIGURATIONS, field.size)), jnp.int32)
    if len(steps_of(field)) <= MAX_COLOURS_UNROLLED:
        indices, changes = jax.lax.scan(walk_by_colours, field.joined(values), targets)
    else:
        number = min(field.size, MAX_STEPS_WALKED)
        orders = np.stack([rng.permutation(field.size)[:number] for _ in range(NUM_CONFIGURATIONS)])
        indices, changes = jax.lax.scan(walk_by_elements, field.joined(values), (targets, jnp.asarray(orders)))
    joint, claimed, distance, total, excluded = changes
    excluded = excluded.any() | _is_excluded_anywhere(field, parts, joined)
    return Changes(joint, claimed, distance, total, excluded, indices)


def _is_excluded_anywhere(field: Field, parts: SumOfParts, joined: np.ndarray) -> Array:
    """Whether any values of the elements of one function exclude each other, where all can be looked at."""
    try:
        assignments = assignments_of(field)[0]
    except ValueError:
        return jnp.array(False)
    if len(assignments) * sum(part.size for part in field.parts) > MAX_NUMBERS_LOOKED_AT:
        return jnp.array(False)

    def excluded(assignment: Array) -> Array:
        indices = jnp.minimum(assignment[field.colours], field.cards - 1).astype(jnp.int32)
        return jnp.isneginf(weighted(parts.parts(indices), parts.weights)[joined]).any()

    return jax.lax.map(excluded, jnp.asarray(assignments)).any()


def _joining_places(field: Field) -> np.ndarray:
    """Places, among all numbers of all parts, of those that several elements enter."""
    flat = np.concatenate([part.ravel() for part in field.parts])
    several = np.array([len(scope) > 1 for scope in field.scopes] + [False, False])
    return np.flatnonzero((flat == MIXED) | ((flat >= 0) & several[flat])).astype(np.int32)
