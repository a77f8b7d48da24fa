"""Sums of functions of a few discrete elements each, by number: which elements the functions have, and nothing else."""

from collections.abc import Callable

import numpy as np

Scope = frozenset[int]
"""The elements that a function depends on."""
Sum = frozenset[Scope]
"""The scopes of functions that are added up; empty for a constant."""
MAX_SCOPES = 300_000
"""Scopes of one value, at most; beyond, it is one function of all its elements."""


class SumTable:
    """Sums by number, and what operations make of them; the constant is number 0."""

    def __init__(self) -> None:
        self.sums: list[Sum] = [frozenset()]
        self.numbers: dict[Sum, int] = {frozenset(): 0}
        self.remembered: dict[tuple[str, tuple[int, ...] | frozenset[int]], int] = {}

    def number(self, scopes: Sum) -> int:
        """The number of a sum."""
        if scopes not in self.numbers:
            self.numbers[scopes] = len(self.sums)
            self.sums.append(scopes)
        return self.numbers[scopes]

    def add(self, rows: np.ndarray) -> np.ndarray:
        """The sums of rows of sums (row, sum)."""
        return self._each("add", rows, lambda sums: frozenset().union(*sums))

    def merge(self, rows: np.ndarray) -> np.ndarray:
        """One function of all that is in a row."""
        return self._each("merge", rows, _merged)

    def product(self, rows: np.ndarray) -> np.ndarray:
        """The products of rows of two sums (row, 2), an order of the two that matters to no one."""
        return self._each("product", rows, _product, ordered=True)

    def _each(
        self, name: str, rows: np.ndarray, combine: Callable[[list[Sum]], Sum], ordered: bool = False
    ) -> np.ndarray:
        if rows.shape[1] == 0 or not rows.any():
            return np.zeros(len(rows), np.int32)
        rows = np.sort(rows, axis=1)
        first, inverse = distinct_rows(rows)
        numbers = np.empty(len(first), np.int32)
        for place, row in enumerate(rows[first].tolist()):
            key = name, tuple(row) if ordered else frozenset(row)
            if key not in self.remembered:
                self.remembered[key] = self.number(combine([self.sums[each] for each in key[1]]))
            numbers[place] = self.remembered[key]
        return numbers[inverse]


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of distinct rows, and for every row the place of the one that it equals."""
    rows = np.ascontiguousarray(rows)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse


def _merged(sums: list[Sum]) -> Sum:
    scope: Scope = frozenset().union(*(each for one in sums for each in one))
    return frozenset({scope}) if scope else frozenset()


def _product(sums: list[Sum]) -> Sum:
    first, second = sums
    if not first or not second:
        return first | second
    if len(first) * len(second) > MAX_SCOPES:
        return _merged(sums)
    return frozenset(a | b for a in first for b in second)
