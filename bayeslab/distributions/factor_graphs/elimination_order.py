"""An order in which variables of a factor graph are summed over, in rounds of those that do not need each other."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import prod
from typing import NamedTuple

MAX_ROUNDS_UNROLLED = 8
"""Rounds that are written out in compiled code, at most; the narrow ones that follow are a loop."""
NUM_WIDE_ROUNDS = 4
"""Rounds that are written out before a loop."""
COST_OF_ROUND = 2000
"""Numbers that could be read and written while one round of a loop begins and ends."""
MAX_TABLE = 2**18
"""Numbers of one table that arises when a variable is summed over, at most."""


class _TooWide(ValueError):
    """An order of elimination has led to a table that is too large."""

    def __init__(self, size: float) -> None:
        self.size = size
        super().__init__(f"summing over them would take a table of {size:.2g} numbers, more than {MAX_TABLE}")


class Elimination(NamedTuple):
    """One variable and those that it meets when it is summed over."""

    variable: int
    others: tuple[int, ...]


def elimination_size(cards: Sequence[int], order: Sequence[Elimination]) -> tuple[int, int]:
    """The size of the largest table of an order of elimination, and of all together."""
    sizes = [cards[step.variable] * prod(cards[other] for other in step.others) for step in order]
    return max(sizes, default=1), sum(sizes)


def elimination_rounds(
    cards: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Elimination, ...], ...]:
    """An order of elimination, in rounds: the narrowest, or a wider one of fewer rounds where that costs less.

    Raises ValueError where every order that was found leads to a table of more than MAX_TABLE numbers.
    """
    found = _rounds_or_width(cards, scopes)
    if isinstance(found, tuple):
        return found
    raise _TooWide(found)


@lru_cache(maxsize=64)
def _rounds_or_width(
    cards: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Elimination, ...], ...] | float:
    """The order in rounds, or the numbers of a table that is too large: either takes its time to find."""
    try:
        return _cheapest_rounds(cards, scopes)
    except _TooWide as refusal:
        return refusal.size


def _cheapest_rounds(
    cards: tuple[int, ...], scopes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Elimination, ...], ...]:
    """The order in rounds; raises _TooWide where there is none."""
    widest = max((prod(cards[variable] for variable in scope) for scope in scopes), default=1)
    if widest > MAX_TABLE:
        raise _TooWide(widest)
    meets: list[set[int]] = [set() for _ in cards]
    for scope in scopes:
        for variable in scope:
            meets[variable].update(scope)
    meets = [others - {variable} for variable, others in enumerate(meets)]
    narrow = _narrowest_order(cards, [set(others) for others in meets])
    parallel = []
    for size in (0, max(cards, default=1) ** 3):
        with suppress(_TooWide):
            parallel.append(_parallel_rounds(cards, [set(others) for others in meets], size))
    level: dict[int, int] = {}
    place = {step.variable: number for number, step in enumerate(narrow)}
    for step in narrow:
        own = level.setdefault(step.variable, 0)
        if step.others:
            first = min(step.others, key=place.__getitem__)
            level[first] = max(level.get(first, 0), own + 1)
    ordered = sorted(narrow, key=lambda step: level[step.variable])
    rounds = [tuple(steps) for _, steps in groupby(ordered, key=lambda step: level[step.variable])]
    best = min([rounds, *parallel], key=lambda each: _cost(cards, each))
    return tuple(best)


def _cost(cards: Sequence[int], rounds: Sequence[Sequence[Elimination]]) -> int:
    """Numbers that an order of elimination touches, with those that are there to make steps of a loop alike."""
    written = len(rounds) if len(rounds) <= MAX_ROUNDS_UNROLLED else NUM_WIDE_ROUNDS
    tail = rounds[written:]
    total = elimination_size(cards, [step for steps in rounds[:written] for step in steps])[1]
    if tail:
        width = max(len(step.others) for steps in tail for step in steps)
        size = max(cards[each] for steps in tail for step in steps for each in (step.variable, *step.others)) ** (
            1 + width
        )
        total += len(tail) * (COST_OF_ROUND + max(map(len, tail)) * size)
    return total


def _narrowest_order(cards: Sequence[int], meets: list[set[int]]) -> list[Elimination]:
    """Variables in the order of least fill: the one whose elimination lets the fewest others meet."""

    def key(variable: int) -> tuple[int, int, int]:
        others = meets[variable]
        fill = sum(len(others) - 1 - len(others & meets[other]) for other in others) // 2
        return fill, cards[variable] * prod(cards[other] for other in others), variable

    order, left = [], set(range(len(cards)))
    queue = [key(variable) for variable in left]
    heapify(queue)
    while queue:
        entry = heappop(queue)
        variable = entry[-1]
        if variable not in left:
            continue
        if (current := key(variable)) > entry:
            heappush(queue, current)
            continue
        if current[1] > MAX_TABLE:
            raise _TooWide(current[1])
        others = _eliminate(variable, meets)
        left.remove(variable)
        order.append(Elimination(variable, others))
        for other in others:
            heappush(queue, key(other))
    return order


def _parallel_rounds(cards: Sequence[int], meets: list[set[int]], allowed: int) -> list[tuple[Elimination, ...]]:
    """Rounds of variables that do not meet, those with the smallest tables first, as large as any so far.

    allowed: the size of tables that are small.
    """
    left, rounds = set(range(len(cards))), []
    while left:
        sizes = {each: cards[each] * prod(cards[other] for other in meets[each]) for each in left}
        allowed = max(allowed, min(sizes.values()))
        if allowed > MAX_TABLE:
            raise _TooWide(allowed)
        blocked: set[int] = set()
        steps = []
        for variable in sorted((each for each in left if sizes[each] <= allowed), key=lambda each: (sizes[each], each)):
            if variable not in blocked:
                blocked |= {variable, *meets[variable]}
                steps.append(variable)
        rounds.append(tuple(Elimination(variable, _eliminate(variable, meets)) for variable in steps))
        left -= set(steps)
    return rounds


def _eliminate(variable: int, meets: list[set[int]]) -> tuple[int, ...]:
    """Let those that a variable meets meet each other, without it."""
    others = meets[variable]
    for other in others:
        meets[other] |= others
        meets[other] -= {other, variable}
    return tuple(sorted(others))
