"""An order in which the variables of a factor graph are summed over, and where everything is in memory.

Variables that are summed over in the same round do not need each other: they are one operation on arrays. What is left
of a variable, a message, is a table over those that it met; it stands in one vector behind the tables of the graph.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, zip_longest
from math import prod
from typing import Any, NamedTuple

import numpy as np

from bayeslab.distributions.factor_graphs.elimination_order import (
    MAX_ROUNDS_UNROLLED,
    NUM_WIDE_ROUNDS,
    Elimination,
    elimination_rounds,
)

ZERO = 0
"""The place of a zero in the vector; tables begin behind it."""
COST_OF_OPERATION = 10_000
"""Numbers that padding may cost where it saves an operation on arrays, which takes time to compile and to begin."""


class Batch(NamedTuple):
    """Variables that are summed over in one operation.

    variables: their numbers, (row,); the number of all variables stands for none. others: those that each meets
    (row, other). cards: how many values each of these has, the variable first (row, 1 + other). digits: all values of
    all of them (value, 1 + other), those of the variable slowest; the same for all rows.
    starts, strides: where the tables begin that are added up (row, table), and by how much a place moves with every
    digit (row, table, 1 + other). message: where messages go. exact: whether all digits are values of all rows.
    """

    variables: np.ndarray
    others: np.ndarray
    cards: np.ndarray
    digits: np.ndarray
    starts: np.ndarray
    strides: np.ndarray
    message: Any
    exact: bool

    @property
    def num_choices(self) -> int:
        """Values of the variables."""
        return int(self.digits[-1, 0]) + 1


class EliminationPlan:
    """How a factor graph is summed over; equal where all of it is.

    cards: how many values each variable has. scopes: the variables of every table, which has these axes.
    batches: in order. loop: batches of equal shapes, one for every step of a loop, stacked; None where there is none.
    roots: places of the messages that are numbers. length: of the vector.
    """

    def __init__(
        self,
        cards: tuple[int, ...],
        scopes: tuple[tuple[int, ...], ...],
        batches: tuple[Batch, ...],
        loop: Batch | None,
        roots: np.ndarray,
        length: int,
    ) -> None:
        self.cards, self.scopes, self.batches, self.loop, self.roots = cards, scopes, batches, loop, roots
        self.length = length
        self.table_sizes = [prod(cards[variable] for variable in scope) for scope in scopes]
        self.table_starts = np.cumsum([ZERO + 1, *self.table_sizes])
        self._key = cards, scopes

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, EliminationPlan) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def num_numbers(self) -> int:
        """How many numbers all tables have."""
        return int(sum(self.table_sizes))


class _Table(NamedTuple):
    """A table in the vector. scope: its variables. start: its place. strides: of each variable."""

    scope: tuple[int, ...]
    start: int
    strides: tuple[int, ...]


@lru_cache(maxsize=64)
def elimination_plan(cards: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]) -> EliminationPlan:
    """How a factor graph is summed over."""
    rounds = elimination_rounds(cards, scopes)
    turn = {step.variable: number for number, steps in enumerate(rounds) for step in steps}
    sources: dict[int, list[_Table]] = {variable: [] for variable in range(len(cards))}
    roots: list[int] = []
    end = ZERO + 1

    def add(scope: tuple[int, ...], start: int, strides: Sequence[int]) -> None:
        if scope:
            sources[min(scope, key=lambda each: (turn[each], each))].append(_Table(scope, start, tuple(strides)))
        else:
            roots.append(start)

    for scope in scopes:
        own = [cards[variable] for variable in scope]
        add(scope, end, [prod(own[1 + place :]) for place in range(len(scope))])
        end += prod(own)
    num_unrolled = len(rounds) if len(rounds) <= MAX_ROUNDS_UNROLLED else NUM_WIDE_ROUNDS
    batches, looped = [], []
    tail = [step for steps in rounds[num_unrolled:] for step in steps]
    widest = _padded_sizes(tail, cards)
    loop_sizes = (max(widest),) * len(widest)
    rows = max(map(len, rounds[num_unrolled:]), default=0)
    for number, steps in enumerate(rounds):
        unrolled = number < num_unrolled
        for group in _groups(steps, cards, sources) if unrolled else [steps]:
            sizes = _padded_sizes(group, cards) if unrolled else loop_sizes
            if unrolled:
                batches.append(_batch(group, cards, sources, end, sizes, (len(group), _num_tables(group, sources))))
            else:
                looped.append((steps, end))
            for row, step in enumerate(group):
                # messages of a batch have as many axes as the widest, of which these are the first
                strides = [prod(sizes[2 + place :]) for place in range(len(step.others))]
                add(step.others, end + row * prod(sizes[1:]), strides)
            end += (len(group) if unrolled else rows) * prod(sizes[1:])
    loop = None
    if looped:
        shape = rows, _num_tables(tail, sources)
        steps_of_loop = [_batch(steps, cards, sources, start, loop_sizes, shape) for steps, start in looped]
        stacked = [np.stack(each) for each in zip(*(step[:-1] for step in steps_of_loop), strict=True)]
        loop = Batch._make([*stacked, False])
        loop = loop._replace(digits=loop.digits[0])
    return EliminationPlan(cards, scopes, tuple(batches), loop, np.array(roots, np.int32), end)


def _groups(
    steps: Sequence[Elimination], cards: Sequence[int], sources: dict[int, list[_Table]]
) -> list[list[Elimination]]:
    """The eliminations of a round in groups, each of which is one operation: those of equal numbers of values and about
    as many tables, and groups of different ones together where padding costs less than one more operation."""

    def kind(step: Elimination) -> tuple[Any, ...]:
        tables = len(sources[step.variable])
        return len(step.others), cards[step.variable], tuple(cards[other] for other in step.others), tables.bit_length()

    def cost(group: Sequence[Elimination]) -> int:
        return len(group) * _num_tables(group, sources) * prod(_padded_sizes(group, cards))

    groups: list[list[Elimination]] = []
    for _, alike in groupby(sorted(steps, key=kind), key=kind):
        group = list(alike)
        if groups and cost(groups[-1] + group) <= cost(groups[-1]) + cost(group) + COST_OF_OPERATION:
            groups[-1] += group
        else:
            groups.append(group)
    return groups


def _num_tables(steps: Sequence[Elimination], sources: dict[int, list[_Table]]) -> int:
    """The largest number of tables that a variable of these is in."""
    return max(1, max(len(sources[step.variable]) for step in steps))


def _padded_sizes(steps: Sequence[Elimination], cards: Sequence[int]) -> tuple[int, ...]:
    """The largest number of values of any of the variables, and of the first, the second ... that these meet."""
    sizes = [[cards[each] for each in (step.variable, *step.others)] for step in steps]
    return tuple(max(axis) for axis in zip_longest(*sizes, fillvalue=1)) or (1,)


def _batch(
    steps: Sequence[Elimination],
    cards: Sequence[int],
    sources: dict[int, list[_Table]],
    message: int,
    sizes: tuple[int, ...],
    shape: tuple[int, int],
) -> Batch:
    """The operation of some eliminations. sizes: how many digits there are of every axis. shape: (row, table)."""
    rows, tables = shape
    width = len(sizes) - 1
    variables = np.full(rows, len(cards), np.int32)
    others = np.full((rows, width), len(cards), np.int32)
    own = np.ones((rows, 1 + width), np.int32)
    starts = np.full(shape, ZERO, np.int32)
    strides = np.zeros((rows, tables, 1 + width), np.int32)
    for row, step in enumerate(steps):
        axes = (step.variable, *step.others)
        variables[row], others[row, : len(step.others)] = step.variable, step.others
        own[row, : len(axes)] = [cards[each] for each in axes]
        for place, table in enumerate(sources[step.variable]):
            starts[row, place] = table.start
            for variable, stride in zip(table.scope, table.strides, strict=True):
                strides[row, place, axes.index(variable)] = stride
    digits = np.stack(np.unravel_index(np.arange(prod(sizes)), sizes), axis=-1).astype(np.int32)
    return Batch(variables, others, own, digits, starts, strides, np.int32(message), bool((own == sizes).all()))
