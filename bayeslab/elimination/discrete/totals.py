"""Which parts of a log joint depend on many discrete elements by their totals alone.

`z.sum() == 6`, `(z == 1).any()` and a Normal around `weights @ z` take one value for each total, not for each of the
2^n configurations. Operations are followed from such a part back to the elements: where all ways lead through sums (or
through products, largest and smallest values, `any` and `all`) of functions of one element each, which depend on
nothing but the program and its arguments, the values of these functions say which totals there are.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayeslab.distributions.factor_graphs.running_totals import PartTotal, RunningTotal
from bayeslab.elimination.discrete.scopes import ScopeFinder
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.programs.tracing.flat_program import Constant, Operation, operations_before, run_operations

MIN_CONFIGURATIONS = 2**10
"""Configurations of the elements of a part from which totals are looked for."""
MAX_TOTALS = 2**10
"""Totals that some elements may have, at most, and elements that are multiplied with a matrix."""
MAX_MOVES = 10**6
"""Numbers that say how one total grows, at most."""
MAX_ADDED = 10**7
"""Numbers that say what each choice of each element adds to the results of a product with a matrix, at most."""
DIGITS = 9
"""Digits behind the point to which totals are told apart."""

REDUCTIONS: dict[str, tuple[np.ufunc, Any]] = {
    "reduce_sum": (np.add, 0.0),
    "reduce_prod": (np.multiply, 1.0),
    "reduce_max": (np.maximum, -np.inf),
    "reduce_min": (np.minimum, np.inf),
    "reduce_or": (np.maximum, 0.0),
    "reduce_and": (np.minimum, 1.0),
}
"""How an operation combines what it reduces, and what it makes of nothing."""


class _Reduced(NamedTuple):
    """What a reduction makes of functions of single elements.

    members: of every result. elements, places: of every function its element, and the result that it enters. values: at
    each choice of its element (choice, function). start: what all else adds (result,). combine, nothing: how.
    """

    members: list[frozenset[int]]
    elements: np.ndarray
    places: np.ndarray
    values: np.ndarray
    start: np.ndarray
    combine: np.ufunc
    nothing: float

    def added(self, elements: Sequence[int], places: Sequence[int]) -> np.ndarray:
        """What each choice of some elements adds to some results (element, choice, result)."""
        rows = np.full(1 + max(int(self.elements.max(initial=0)), *elements), -1)
        columns = np.full(len(self.members), -1)
        rows[list(elements)], columns[list(places)] = np.arange(len(elements)), np.arange(len(places))
        chosen = np.flatnonzero((columns[self.places] >= 0) & (rows[self.elements] >= 0))
        added = np.full((len(self.values), len(elements), len(places)), self.nothing)
        for choice, value in enumerate(self.values):
            where = rows[self.elements[chosen]], columns[self.places[chosen]]
            self.combine.at(added[choice], where, value[chosen])
        return added.swapaxes(0, 1)


def is_wide(cards: np.ndarray, elements: Sequence[int]) -> bool:
    """Whether some elements have so many configurations that their totals are looked for."""
    return prod(float(cards[element]) for element in elements) >= MIN_CONFIGURATIONS


class TotalFinder:
    """Finds the totals that parts depend on.

    finder: has followed the scopes of elements through a program. number: of these elements among its values. cards:
    how many choices each has.
    """

    def __init__(self, finder: ScopeFinder, number: int, cards: np.ndarray) -> None:
        self.finder, self.program, self.number, self.cards = finder, finder.program, number, cards
        self._by_part: dict[int, list[_Reduced] | None] = {}
        self._by_elements: dict[tuple[int, tuple[int, ...]], PartTotal | None] = {}

    def total_of(self, part: int, elements: tuple[int, ...]) -> PartTotal | None:
        """The total that the function of some elements in a part depends on; None where it depends on more, or where
        the elements are few."""
        if not is_wide(self.cards, elements):
            return None
        if part not in self._by_part:
            self._by_part[part] = self._reductions_behind(part)
        reductions, key = self._by_part[part], (part, elements)
        if key not in self._by_elements:
            self._by_elements[key] = None if reductions is None else self._running_total(reductions, elements)
        return self._by_elements[key]

    def _members(self, number: int) -> list[frozenset[int]]:
        """The elements that every element of a value depends on."""
        of_sum = {int(each): frozenset().union(*self.finder.table.sums[each]) for each in np.unique(self._sums(number))}
        return [of_sum[int(each)] for each in self._sums(number).ravel()]

    def _sums(self, number: int) -> np.ndarray:
        return self.finder.sums[number]

    def _is_reached(self, operand: Any) -> bool:
        return not isinstance(operand, Constant) and operand in self.finder.sums

    def _reductions_behind(self, part: int) -> list[_Reduced] | None:
        """The reductions through which all ways lead from the elements to a part."""
        wanted, found = {part}, []
        for operation in reversed(self.program.operations):
            if wanted.isdisjoint(operation.outputs):
                continue
            reached = [each for each in operation.inputs if self._is_reached(each)]
            reduces = operation.name in REDUCTIONS or operation.name == "dot_general"
            if reduces and len(reached) == 1 and all(len(own) <= 1 for own in self._members(reached[0])):
                found.append((operation, reached[0]))
            else:
                wanted |= set(reached)
        if self.number in wanted:
            return None
        reductions = [self._reduced(*each) for each in found]
        return None if not reductions or None in reductions else [each for each in reductions if each is not None]

    def _reduced(self, operation: Operation, operand: int) -> _Reduced | None:
        """What every element adds to the results of a reduction; None where that is not known."""
        [output] = operation.outputs
        members = self._members(output)
        if operation.name == "dot_general":
            return self._contracted(output, members)
        values = self._values(operand, np.repeat(np.arange(self.cards.max())[:, None], len(self.cards), 1))
        if values is None:
            return None
        combine, nothing = REDUCTIONS[operation.name]
        axes = tuple(operation.params["axes"])
        places = np.expand_dims(np.arange(len(members)).reshape(operation.shapes[0]), axes)
        places = np.broadcast_to(places, operation.input_shapes[0]).ravel()
        own = np.array([next(iter(each), -1) for each in self._members(operand)])
        start, is_fixed = np.full(len(members), nothing), own < 0
        values = values.reshape(len(values), -1)
        combine.at(start, places[is_fixed], values[0, is_fixed])
        moving = ~is_fixed
        return _Reduced(members, own[moving], places[moving], values[:, moving], start, combine, nothing)

    def _contracted(self, output: int, members: list[frozenset[int]]) -> _Reduced | None:
        """What every element adds to the sums of a product with a matrix, by differences from the first choices."""
        size, num_choices = len(self.cards), int(self.cards.max())
        if size > MAX_TOTALS or size * num_choices * len(members) > MAX_ADDED:
            return None
        configurations = np.zeros((1 + size * (num_choices - 1), size), int)
        for row, (element, choice) in enumerate(np.ndindex(size, num_choices - 1)):
            configurations[1 + row, element] = min(choice + 1, self.cards[element] - 1)
        values = self._values(output, configurations)
        if values is None:
            return None
        values = values.reshape(len(values), -1)
        changes = (values[1:] - values[0]).reshape(size, num_choices - 1, len(members)).swapaxes(0, 1)
        added = np.concatenate([np.zeros((1, size, len(members))), changes]).reshape(num_choices, -1)
        elements, places = (each.ravel() for each in np.indices((size, len(members))))
        return _Reduced(members, elements, places, added, values[0], np.add, 0.0)

    def _values(self, number: int, configurations: np.ndarray) -> np.ndarray | None:
        """A value at some configurations (configuration, element); None where it depends on other sites or on data."""
        operations = operations_before(self.program, number)
        needed = {each for one in operations for each in one.inputs if not isinstance(each, Constant)} | {number}
        made = {each for one in operations for each in one.outputs}
        known = {each: self.finder.known[each] for each in needed - made if each in self.finder.known}
        if needed - made - known.keys() - {self.number}:
            return None

        def value(indices: Any) -> Any:
            return run_operations(operations, known | {self.number: indices})[number]

        limits = self.cards - 1
        indices = jnp.asarray(np.minimum(configurations, limits), jnp.int32)
        run = jax.jit(lambda each: jax.lax.map(value, each), compiler_options=UNOPTIMISED_OPTIONS)
        return np.asarray(run(indices), float)

    def _running_total(self, reductions: Sequence[_Reduced], elements: tuple[int, ...]) -> PartTotal | None:
        """How totals grow from element to element, and a configuration with each of the last ones."""
        own = set(elements)
        starts, added, combines = [], [], []
        for reduction in reductions:
            inside = [place for place, members in enumerate(reduction.members) if members and members <= own]
            if inside:
                starts.append(reduction.start[inside])
                added.append(reduction.added(elements, inside))
                combines.append(reduction.combine)
        totals = {_rounded(np.concatenate(starts)): 0} if starts else {}
        if not totals:
            return None
        ways: list[dict[int, list[int]]] = [{0: []}]
        moves, num_moves = [], 0
        for index, element in enumerate(elements):
            after: dict[tuple[float, ...], int] = {}
            move = np.zeros((len(totals), int(self.cards[element])), np.int32)
            way: dict[int, list[int]] = {}
            for total, before in totals.items():
                for choice in range(move.shape[1]):
                    own_added = [each[index, choice] for each in added]
                    reached = _rounded(_combined(combines, np.array(total), own_added))
                    state = after.setdefault(reached, len(after))
                    way.setdefault(state, [*ways[-1][before], choice])
                    move[before, choice] = state
            num_moves += move.size
            if len(after) > MAX_TOTALS or num_moves > MAX_MOVES:
                return None
            moves.append(move)
            totals = after
            ways.append(way)
        representatives = np.array([ways[-1][state] for state in range(len(totals))], np.int32)
        return PartTotal(RunningTotal(elements, tuple(moves)), representatives)


def _combined(combines: Sequence[np.ufunc], total: np.ndarray, added: Sequence[np.ndarray]) -> np.ndarray:
    """A total after one more element. added: what this adds, by reduction."""
    before = np.split(total, np.cumsum([len(each) for each in added])[:-1])
    return np.concatenate([combine(*pair) for combine, *pair in zip(combines, before, added, strict=True)])


def _rounded(total: np.ndarray) -> tuple[float, ...]:
    """Numbers as a key, without the errors of their sums."""
    return tuple((np.round(total, DIGITS) + 0.0).tolist())
