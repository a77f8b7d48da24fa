"""At which configurations the log joint is looked at for the tables of a field, and which numbers these have."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, product
from math import prod
from typing import NamedTuple

import numpy as np

from bayeslab.distributions.factor_graphs.factor_graph import EliminationPlan, elimination_plan
from bayeslab.elimination.discrete.fields import Field

MAX_CONFIGURATIONS = 2**16
"""Configurations at which the log joint is looked at for one conditional, at most."""
MAX_NUMBERS_OF_TOTALS = 4 * 10**6
"""Numbers of all tables by which totals grow, at most."""


class Differences(NamedTuple):
    """How tables of mixed parts are made of values of their sum.

    elements, digits: what differs from the first values in every configuration, padded with a dummy (configuration,
    element). places, signs: for every number of these tables, of which configurations it is the signed sum.
    """

    elements: np.ndarray
    digits: np.ndarray
    places: np.ndarray
    signs: np.ndarray


class Reading(NamedTuple):
    """How the tables of a field are read off its parts.

    assignments: for every configuration a choice of every colour (configuration, colour).
    rows, columns: for every number of the first tables its configuration, and its scope.
    differences: for mixed parts; None where there are none.
    """

    assignments: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    differences: Differences | None


@lru_cache(maxsize=64)
def reading_of(field: Field) -> Reading:
    """How the tables of a field are read.

    Raises ValueError where summing over its elements, or reading their tables, takes too many numbers.
    """
    if field.totals_graph is None:
        plan_of(field)
    assignments, rows, columns = assignments_of(field)
    closure = _closure(field)
    return Reading(assignments, rows, columns, _differences(field, closure) if closure else None)


@lru_cache(maxsize=64)
def plan_of(field: Field) -> EliminationPlan:
    """How the elements of a field are summed over, and totals of them behind them.

    Its tables are those of the scopes of the field, of mixed parts, and those by which totals grow.
    Raises ValueError where it takes too many numbers.
    """
    cards, scopes, totals = tuple(map(int, field.cards)), list(field.scopes), field.totals
    if totals is None:
        return elimination_plan(cards, (*scopes, *_closure(field)))
    if totals.num_numbers > MAX_NUMBERS_OF_TOTALS:
        raise ValueError(f"tables of totals would have {totals.num_numbers} numbers, more than {MAX_NUMBERS_OF_TOTALS}")
    for number, (place, _) in field.last_totals.items():
        scopes[number] = (totals.last[place],)
    return elimination_plan((*cards, *totals.cards), (*scopes, *_closure(field), *totals.scopes))


def _closure(field: Field) -> list[tuple[int, ...]]:
    """All sets of elements that a mixed part joins."""
    return sorted({part for scope in field.mixed for n in range(1, len(scope) + 1) for part in combinations(scope, n)})


@lru_cache(maxsize=64)
def assignments_of(field: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Configurations in which the elements of every scope take all values, and where each number of a table is.

    Raises ValueError where these are too many.
    """
    colours, cards = field.colours, field.cards
    num_colours = int(colours.max(initial=-1)) + 1
    most = [int(cards[colours == colour].max()) for colour in range(num_colours)]
    by_values = [scope for number, scope in enumerate(field.scopes) if number not in field.last_totals]
    needed = {tuple(sorted(int(colours[element]) for element in scope)) for scope in by_values}
    largest: list[tuple[int, ...]] = []
    for colour_set in sorted(needed, key=len, reverse=True):
        if not any(set(colour_set) <= set(other) for other in largest):
            largest.append(colour_set)
    total = sum(prod(most[colour] for colour in colour_set) for colour_set in largest)
    of_totals = _configurations_of_totals(field, num_colours)
    total += sum(len(block) for block in {block.tobytes(): block for block in of_totals.values()}.values())
    if total > MAX_CONFIGURATIONS:
        raise ValueError(f"the log joint would be looked at in {total} configurations, more than {MAX_CONFIGURATIONS}")
    blocks, starts, end = [np.zeros((0, num_colours), np.int32)], {}, 0
    for colour_set in largest:
        own = np.array(list(product(*(range(most[colour]) for colour in colour_set))), np.int32)
        block = np.zeros((len(own), num_colours), np.int32)
        block[:, colour_set] = own
        starts[colour_set] = end
        end += len(block)
        blocks.append(block)
    if end == 0 and not field.last_totals:
        blocks.append(np.zeros((1, num_colours), np.int32))
    home = {one: next(other for other in largest if set(one) <= set(other)) for one in needed}
    rows: list[np.ndarray] = [np.zeros(0, int)]
    columns: list[np.ndarray] = [np.zeros(0, int)]
    starts_of_totals: dict[bytes, int] = {}
    for number, scope in enumerate(field.scopes):
        own_colours = [int(colours[element]) for element in scope]
        if number in field.last_totals:
            block = of_totals[number]
            if block.tobytes() not in starts_of_totals:  # groups that are alike are looked at together
                starts_of_totals[block.tobytes()] = end
                blocks.append(block)
                end += len(block)
            rows.append(starts_of_totals[block.tobytes()] + np.arange(len(block)))
            columns.append(np.full(len(block), number))
            continue
        colour_set = home[tuple(sorted(own_colours))]
        strides = {c: prod(most[d] for d in colour_set[place + 1 :]) for place, c in enumerate(colour_set)}
        digits = np.indices([cards[element] for element in scope]).reshape(len(scope), -1)
        rows.append(starts[colour_set] + np.array([strides[c] for c in own_colours]) @ digits)
        columns.append(np.full(digits.shape[1], number))
    return np.concatenate(blocks), np.concatenate(rows).astype(np.int32), np.concatenate(columns).astype(np.int32)


def _configurations_of_totals(field: Field, num_colours: int) -> dict[int, np.ndarray]:
    """By the index of its scope, configurations (configuration, colour) in which a total takes all its values."""
    configurations = {}
    for number, (_, representatives) in field.last_totals.items():
        block = np.zeros((len(representatives), num_colours), np.int32)
        block[:, field.colours[list(field.scopes[number])]] = representatives
        configurations[number] = block
    return configurations


def _differences(field: Field, closure: Sequence[tuple[int, ...]]) -> Differences:
    """How tables over all sets of elements that a mixed part joins are made of its values at some configurations."""
    cards, widest = field.cards, max(map(len, closure))
    changes: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {((), ()): 0}
    total = 1 + sum(prod(int(cards[element]) - 1 for element in scope) for scope in closure)
    if total > MAX_CONFIGURATIONS:
        raise ValueError(f"the log joint would be looked at in {total} configurations, more than {MAX_CONFIGURATIONS}")
    for scope in closure:
        for digits in product(*(range(1, int(cards[element])) for element in scope)):
            changes[scope, digits] = len(changes)
    elements = np.full((len(changes), widest), field.size, np.int32)
    values = np.zeros((len(changes), widest), np.int32)
    for (scope, digits), row in changes.items():
        elements[row, : len(scope)], values[row, : len(scope)] = scope, digits
    places, signs = [], []
    for scope in closure:
        chosen = [each for n in range(len(scope) + 1) for each in combinations(range(len(scope)), n)]
        for digits in product(*(range(int(cards[element])) for element in scope)):
            place, sign = np.zeros(2**widest, np.int32), np.zeros(2**widest)
            if all(digits):
                for slot, each in enumerate(chosen):
                    place[slot] = changes[tuple(scope[i] for i in each), tuple(digits[i] for i in each)]
                    sign[slot] = (-1) ** (len(scope) - len(each))
            places.append(place)
            signs.append(sign)
    return Differences(elements, values, np.array(places), np.array(signs))
