"""Draws of discrete elements that meet, each given all others; those that do not meet in one step.

What the log joint says of an element are the parts that it enters. Elements of one colour do not meet, so the parts at
every choice of all of them at once are those at every choice of each.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions import Enumerated
from bayeslab.elimination.discrete.field_parts import field_parts
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.sum_of_parts import SumOfParts, weighted
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Bound, Values

MAX_COLOURS_UNROLLED = 6
"""Steps of a sweep that are written out, at most; more are a loop."""
MAX_CHOICES_UNROLLED = 8
"""Choices of elements that are written out, at most, where there are many elements; more are a loop."""
MAX_NUMBERS_AT_ALL_CHOICES = 1_000
"""Numbers of all parts, at most, that are computed at all choices by one piece of code, which compiles sooner."""
NUMBERS_PER_BATCH = 10**7
"""Numbers of all parts, at all configurations that are looked at together, at most."""


class Step(NamedTuple):
    """The elements of one colour.

    elements: their numbers (element,). entered: places among all numbers of all parts that each enters, padded
    (element, place), or None where one is changed at a time.
    """

    elements: np.ndarray
    entered: np.ndarray | None


def draw_elements(
    key: Array, field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values, indices: Array
) -> Array:
    """Indices of choices (size,) after one sweep: every element was drawn given the newest values of all others."""
    parts = field_parts(field, log_joint_terms, bound, values)
    uniform = jax.random.uniform(key, (field.size,))

    def drawn(indices: Array, elements: Array, log_probs: Array) -> Array:
        new = Enumerated(possible(log_probs), jnp.arange(log_probs.shape[-1])).from_uniform(uniform[elements])
        return indices.at[elements].set(new.astype(indices.dtype))

    def step(state: tuple[Array, Array], element: Array) -> tuple[tuple[Array, Array], None]:
        indices, total = state
        choices, totals = choices_of_one(field, parts, indices, element, total)
        place = Enumerated(possible(totals), jnp.arange(len(totals))).from_uniform(uniform[element])
        return (indices.at[element].set(choices[place]), totals[place]), None

    if len(steps_of(field)) > MAX_COLOURS_UNROLLED:
        order = np.concatenate([each.elements for each in steps_of(field)])
        start = indices, total_of(parts, indices)
        return jax.lax.scan(step, start, jnp.asarray(order))[0][0]
    for each in steps_of(field):
        indices = drawn(indices, jnp.asarray(each.elements), log_probs_of_step(field, parts, indices, each))
    return indices


def total_of(parts: SumOfParts, indices: Array) -> Array:
    """The log joint at a configuration, but for a constant."""
    return weighted(parts.parts(indices), parts.weights).sum()


def choices_of_one(
    field: Field, parts: SumOfParts, indices: Array, element: Array, total: Array
) -> tuple[Array, Array]:
    """All choices of one element (choice,), the current one first, and the log joint at each, all else as it is.

    total: the log joint at the current one, which is not computed again.
    """
    choices, exists = choices_from_current(field, indices, element)
    totals = jax.vmap(lambda choice: total_of(parts, indices.at[element].set(choice)))(choices[1:])
    return choices, jnp.where(exists, jnp.concatenate([total[None], totals]), -jnp.inf)


def choices_from_current(field: Field, indices: Array, element: Array) -> tuple[Array, Array]:
    """All choices of one element (choice,), the current one first, and which there are: others have more choices."""
    steps, card = jnp.arange(int(field.cards.max())), jnp.asarray(field.cards)[element]
    return ((indices[element] + steps) % card).astype(indices.dtype), steps < card


def possible(log_probs: Array) -> Array:
    """Log probabilities, even where no choice is possible: a start may be there, draws are not."""
    none = jnp.isneginf(log_probs).all(-1, keepdims=True)
    return jnp.where(none, 0.0, log_probs)


def log_probs_of_step(field: Field, parts: SumOfParts, indices: Array, step: Step) -> Array:
    """What the log joint says of the choices of some elements that do not meet (element, choice), but for constants."""
    if step.entered is None:
        return one_at_a_time(field, parts, indices, jnp.asarray(step.elements))
    cards = field.cards[step.elements]
    number = int(cards.max())

    def said(choice: Array) -> Array:
        moved = indices.at[step.elements].set(jnp.minimum(choice, jnp.asarray(cards) - 1).astype(indices.dtype))
        numbers = weighted(parts.parts(moved), parts.weights)
        return jnp.append(numbers, 0.0)[step.entered].sum(-1)

    if sum(part.size for part in field.parts) <= MAX_NUMBERS_AT_ALL_CHOICES:
        log_probs = jax.vmap(said, out_axes=-1)(jnp.arange(number))
    elif number <= MAX_CHOICES_UNROLLED:
        log_probs = jnp.stack([said(jnp.asarray(choice)) for choice in range(number)], axis=-1)
    else:
        log_probs = jax.lax.map(said, jnp.arange(number)).T
    return jnp.where(jnp.arange(number) < cards[:, None], log_probs, -jnp.inf)


def one_at_a_time(field: Field, parts: SumOfParts, indices: Array, elements: Array) -> Array:
    """The log joint at every choice of one element after the other, all else as it is (element, choice)."""
    number = int(field.cards.max())
    cards = jnp.asarray(field.cards)[elements]

    def total(at: tuple[Array, Array]) -> Array:
        element, choice = at
        return weighted(parts.parts(indices.at[element].set(choice)), parts.weights).sum()

    choices = jnp.minimum(jnp.arange(number), cards[:, None] - 1).astype(indices.dtype)
    pairs = jnp.broadcast_to(elements[:, None], choices.shape).ravel(), choices.ravel()
    size = sum(weight.size for weight in parts.weights) + field.size
    if size * len(pairs[0]) <= NUMBERS_PER_BATCH:
        totals = jax.vmap(total)(pairs)
    else:
        totals = jax.lax.map(total, pairs, batch_size=max(NUMBERS_PER_BATCH // size, 1))
    log_probs = totals.reshape(choices.shape)
    return jnp.where(jnp.arange(number) < cards[:, None], log_probs, -jnp.inf)


@lru_cache(maxsize=64)
def steps_of(field: Field) -> tuple[Step, ...]:
    """The steps of a sweep."""
    entered = _places_of_elements(field)
    is_mixed = np.zeros(field.size, bool)
    for scope in field.mixed:
        is_mixed[list(scope)] = True
    steps = []
    for colour in range(int(field.colours.max(initial=-1)) + 1):
        elements = np.flatnonzero(field.colours == colour).astype(np.int32)
        steps.append(
            Step(elements, None if is_mixed[elements].any() else _padded([entered[e] for e in elements], field))
        )
    return tuple(steps)


def _places_of_elements(field: Field) -> list[list[int]]:
    """For every element the places, among all numbers of all parts, of those that it enters."""
    places: list[list[int]] = [[] for _ in range(field.size)]
    flat = np.concatenate([part.ravel() for part in field.parts]) if field.parts else np.zeros(0, int)
    for place in np.flatnonzero(flat >= 0):
        for element in field.scopes[flat[place]]:
            places[element].append(int(place))
    return places


def _padded(rows: Sequence[Sequence[int]], field: Field) -> np.ndarray:
    """Rows of places, filled up with that of a zero behind all parts."""
    width, end = max(map(len, rows)), sum(part.size for part in field.parts)
    return np.array([[*row, *[end] * (width - len(row))] for row in rows], np.int32).reshape(len(rows), width)
