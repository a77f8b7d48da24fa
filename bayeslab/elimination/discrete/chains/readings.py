"""How the parts of the log joint of chains are read: at which values of which members, and where these stand."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from bayeslab.distributions.markov.scored.chain_layout import ChainLayout
from bayeslab.elimination.discrete.fields import CONSTANT, Field


class Pattern(NamedTuple):
    """Functions of equal scopes: of these members at one step, and of those at the next.

    first, second: places of the sites in the joint state. functions: which elements of a part they are (function,).
    chains, steps: where they are, by the chain and by the earlier step (function,).
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    functions: np.ndarray
    chains: np.ndarray
    steps: np.ndarray


class PartReading(NamedTuple):
    """How one part is read. constants: which of its elements are functions of nothing. patterns: of the others, and
    whether all steps of all chains have the same function."""

    constants: np.ndarray | None
    patterns: tuple[tuple[Pattern, bool], ...]


@lru_cache(maxsize=64)
def readings_of(field: Field) -> tuple[PartReading, ...]:
    """How every part of the log joint of a field of chains is read."""
    assert field.chain is not None
    layout, readings = field.chain.layout, []
    num_chains, num_steps, _ = layout.elements.shape
    for part, functions in zip(field.parts, field.chain.functions, strict=True):
        patterns = []
        for pattern in patterns_of(field, layout, part):
            combinations = num_values(layout, pattern.first) * num_values(layout, pattern.second)
            everywhere = len(pattern.functions) == num_chains * (num_steps - 1) == len(set(rows_of(pattern, num_steps)))
            same = len(np.unique(functions.ravel()[pattern.functions])) == 1
            patterns.append((pattern, bool(pattern.second) and everywhere and same and 2 * combinations <= num_steps))
        constants = np.flatnonzero(part.ravel() == CONSTANT).astype(np.int32)
        readings.append(PartReading(constants if len(constants) else None, tuple(patterns)))
    return tuple(readings)


def rows_of(pattern: Pattern, num_steps: int) -> list[int]:
    """For every function of a pattern the number of its chain and step, one after the other."""
    return (pattern.chains * num_steps + pattern.steps).tolist()


def num_values(layout: ChainLayout, members: Sequence[int]) -> int:
    """How many values some members have together."""
    return prod(layout.cards[member] for member in members)


def values_of(layout: ChainLayout, members: Sequence[int]) -> np.ndarray:
    """All values of some members (value, member), the first slowest."""
    cards = [layout.cards[member] for member in members]
    return np.indices(cards).reshape(len(cards), -1).T.astype(np.int32)


def value_of_state(layout: ChainLayout, members: Sequence[int]) -> np.ndarray:
    """For every joint state the number of the value of some members, (state,)."""
    cards = [layout.cards[member] for member in members]
    digits = layout.digits[:, list(members)]
    return np.ravel_multi_index(tuple(digits.T), cards) if members else np.zeros(layout.num_states, int)


def patterns_of(field: Field, layout: ChainLayout, part: np.ndarray) -> list[Pattern]:
    """The elements of one part of the log joint, by the members that they are functions of; constants are left out."""
    places = np.empty((field.size, 3), int)
    places[layout.elements.ravel()] = np.indices(layout.elements.shape).reshape(3, -1).T
    flat, places_of = part.ravel(), dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int, int]]]()
    for index in np.flatnonzero(flat != CONSTANT):
        scope = places[list(field.scopes[flat[index]])]
        step = int(scope[:, 1].min())
        first = tuple(sorted(int(m) for _, t, m in scope if t == step))
        second = tuple(sorted(int(m) for _, t, m in scope if t > step))
        places_of.setdefault((first, second), []).append((int(index), int(scope[0, 0]), step))
    return [Pattern(*key, *np.array(rows).T) for key, rows in places_of.items()]
