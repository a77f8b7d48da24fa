"""The sparsity of the precision matrix of several arrays that are jointly Normal, and an order of elimination.

Elements of one array depend on each other, given all others, along its coupled axes alone. A tie of two arrays is a
pair of axes along which elements meet at equal positions alone, as effects in one plate do. Eliminating an array, a
block of Gaussian elimination, costs as much as it has positions on its uncoupled axes, so groups that are independent
given what is above them cost a time linear in their number.
"""

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from itertools import combinations_with_replacement
from math import prod
from typing import NamedTuple

MIN_ARRAYS, MAX_SIZE_OF_DENSE = 7, 64
"""Arrays from which on, and elements up to which, the precision is one matrix: many small steps take longer to compile,
and to run, than one of that size."""
Tie = tuple[int, int]
"""An axis of one array and an axis of another, along which elements meet at equal positions alone."""


class PrecisionStructure(NamedTuple):
    """The sparsity of a precision matrix.

    names: of the arrays. shapes: theirs. coupled: for every array, the axes along which its elements meet.
    ties: (first, second, their ties) for all pairs of arrays, by index, whose elements meet.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    coupled: tuple[tuple[int, ...], ...]
    ties: tuple[tuple[int, int, tuple[Tie, ...]], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many elements each array has."""
        return tuple(map(prod, self.shapes))

    @property
    def size(self) -> int:
        """How many elements all arrays have."""
        return sum(self.sizes)

    @property
    def is_dense(self) -> bool:
        """Whether arrays are many and small, so that they are eliminated at once."""
        return len(self.names) >= MIN_ARRAYS and self.size <= MAX_SIZE_OF_DENSE

    @property
    def factorised(self) -> "PrecisionStructure":
        """The structure by which the precision is factorised: one coupled array in place of many small ones."""
        if not self.is_dense:
            return self
        return PrecisionStructure((", ".join(self.names),), ((self.size,),), ((0,),), ())


class Neighbour(NamedTuple):
    """An array that meets the one that is eliminated.

    place: its index. ties: (axis of the eliminated array, axis of this one), the former uncoupled. free: axes of this
    one without a tie.
    """

    place: int
    ties: tuple[Tie, ...]
    free: tuple[int, ...]


class Step(NamedTuple):
    """The elimination of one array.

    place: its index. independent, coupled: its axes. neighbours: arrays that are eliminated later. size: its elements.
    cost: multiplications, about.
    """

    place: int
    independent: tuple[int, ...]
    coupled: tuple[int, ...]
    neighbours: tuple[Neighbour, ...]
    size: int
    cost: int


class Sparsity:
    """The sparsity of what is left of a precision matrix, as arrays are eliminated.

    ties: of pairs (first, second) with first < second. coupled: by array.
    """

    def __init__(self, structure: PrecisionStructure) -> None:
        self.shapes = structure.shapes
        self.coupled = {index: frozenset(axes) for index, axes in enumerate(structure.coupled)}
        self.ties = {(first, second): frozenset(ties) for first, second, ties in structure.ties}

    def copy(self) -> "Sparsity":
        """The same sparsity, to be changed apart from this one."""
        other = copy(self)
        other.coupled, other.ties = dict(self.coupled), dict(self.ties)
        return other

    def ties_from(self, index: int, other: int) -> frozenset[Tie]:
        """The ties of two arrays that meet, axes of the first one first; of one with itself, its uncoupled axes."""
        if index == other:
            return frozenset((axis, axis) for axis in range(len(self.shapes[index])) if axis not in self.coupled[index])
        pair = self.ties[min(index, other), max(index, other)]
        return pair if index < other else frozenset((second, first) for first, second in pair)

    def step(self, index: int) -> Step:
        """The elimination of an array."""
        shape, coupled = self.shapes[index], self.coupled[index]
        neighbours = []
        for other in sorted({name for pair in self.ties if index in pair for name in pair} - {index}):
            ties = tuple(sorted(tie for tie in self.ties_from(index, other) if tie[0] not in coupled))
            tied = {axis for _, axis in ties}
            free = tuple(axis for axis in range(len(self.shapes[other])) if axis not in tied)
            neighbours.append(Neighbour(other, ties, free))
        independent = tuple(axis for axis in range(len(shape)) if axis not in coupled)
        joint = prod(shape[axis] for axis in coupled)
        columns = 1 + sum(prod(self.shapes[each.place][axis] for axis in each.free) for each in neighbours)
        cost = prod(shape[axis] for axis in independent) * joint * (joint**2 + joint * columns + columns**2)
        return Step(index, independent, tuple(sorted(coupled)), tuple(neighbours), prod(shape), cost)

    def eliminate(self, step: Step) -> None:
        """Leave an array out: those that it meets meet each other afterwards."""
        self.ties = {pair: ties for pair, ties in self.ties.items() if step.place not in pair}
        del self.coupled[step.place]
        for first, second in combinations_with_replacement(step.neighbours, 2):
            if first.place == second.place:
                self.coupled[first.place] |= frozenset(first.free)
            else:
                shared = ties_after(first, second)
                pair = first.place, second.place
                self.ties[pair] = self.ties.get(pair, shared) & shared


def ties_after(first: Neighbour, second: Neighbour) -> frozenset[Tie]:
    """The ties that two neighbours of an array have in what its elimination adds to their block."""
    if first.place == second.place:
        return frozenset((axis, axis) for _, axis in first.ties)
    return frozenset((axis, other) for own, axis in first.ties for own_too, other in second.ties if own == own_too)


@lru_cache(maxsize=256)
def elimination_steps(structure: PrecisionStructure) -> tuple[Step, ...]:
    """The elimination of all arrays, in the cheaper one of two orders.

    In one, every step is the one that costs least, which is right for chains of arrays. In the other, the largest
    arrays go first: the groups of a hierarchy before what is above them, which would couple all groups.
    """
    orders = (_greedy_steps(structure, rank) for rank in (lambda step: step.cost, lambda step: -step.size))
    return min(orders, key=lambda steps: sum(step.cost for step in steps))


def _greedy_steps(structure: PrecisionStructure, rank: Callable[[Step], int]) -> tuple[Step, ...]:
    """The elimination of all arrays, at every step the one of least rank; of equal ones the last."""
    sparsity, steps = Sparsity(structure), []
    while sparsity.coupled:
        step = min((sparsity.step(index) for index in sorted(sparsity.coupled, reverse=True)), key=rank)
        sparsity.eliminate(step)
        steps.append(step)
    return tuple(steps)


def elimination_cost(structure: PrecisionStructure) -> int:
    """Multiplications that the elimination of all arrays takes, about."""
    if structure.is_dense:
        return structure.size**3
    return sum(step.cost for step in elimination_steps(structure))
