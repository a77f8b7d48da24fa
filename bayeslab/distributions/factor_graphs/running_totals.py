"""Totals of many discrete variables as further variables of a factor graph, one after each variable that is added.

A factor that depends on sixty variables by how many of them are one has sixty variables in its scope, but sixty-one
values. With s_i for the total of the first i variables, tables over (s_{i-1}, x_i, s_i) say how it grows, and the
factor is a table over the last one.
"""

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class RunningTotal(NamedTuple):
    """How the values of some variables are added up, one after the other.

    variables: their numbers. moves: for every variable an array (total before, value) of totals after it, by number;
    there is one total before the first.
    """

    variables: tuple[int, ...]
    moves: tuple[np.ndarray, ...]

    @property
    def cards(self) -> tuple[int, ...]:
        """How many totals there may be after each variable."""
        return (*(len(move) for move in self.moves[1:]), int(self.moves[-1].max()) + 1)


class PartTotal(NamedTuple):
    """A running total that a function depends on.

    representatives: for every value of the last total one value of each of its variables that leads there.
    """

    total: RunningTotal
    representatives: np.ndarray

    @property
    def key(self) -> bytes:
        """Equal for equal totals of the same variables."""
        return b"".join(move.tobytes() for move in self.total.moves)


class RunningTotals:
    """Some totals, whose variables are numbered behind `num_variables` others; equal where all of it is."""

    def __init__(self, totals: Sequence[RunningTotal], num_variables: int) -> None:
        self.totals, self.num_variables = tuple(totals), num_variables
        moves = b"".join(move.astype(np.int32).tobytes() for total in totals for move in total.moves)
        kinds = repr(([(total.variables, [move.shape for move in total.moves]) for total in totals], num_variables))
        self.digest = sha256(kinds.encode() + moves).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunningTotals) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def cards(self) -> tuple[int, ...]:
        """How many values each of the totals may have."""
        return tuple(card for total in self.totals for card in total.cards)

    @property
    def num_numbers(self) -> int:
        """How many numbers the tables have that say how totals grow."""
        pairs = [pair for total in self.totals for pair in zip(total.moves, total.cards, strict=True)]
        return sum(move.size * card for move, card in pairs)

    @cached_property
    def last(self) -> tuple[int, ...]:
        """The number of the last variable of each total."""
        lengths = [len(total.variables) for total in self.totals]
        return tuple(int(end) - 1 for end in self.num_variables + np.cumsum(lengths))

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """The scopes of the tables that say how totals grow."""
        scopes: list[tuple[int, ...]] = []
        for total, last in zip(self.totals, self.last, strict=True):
            first = last + 1 - len(total.variables)
            for place, variable in enumerate(total.variables):
                before = (first + place - 1,) if place else ()
                scopes.append((*before, variable, first + place))
        return tuple(scopes)

    @cached_property
    def numbers(self) -> np.ndarray:
        """All numbers of these tables: zero where the total after a variable is the right one, else minus infinity."""
        tables = []
        for total in self.totals:
            for move, card in zip(total.moves, total.cards, strict=True):
                tables.append(np.where(move[..., None] == np.arange(card), 0.0, -np.inf).ravel())
        return np.concatenate(tables)

    def extended(self, value: Array) -> Array:
        """Values of all variables, from those of the first ones (variable,)."""
        length = max(len(total.variables) for total in self.totals)
        sizes = np.max([move.shape for total in self.totals for move in total.moves], axis=0)
        variables = np.zeros((length, len(self.totals)), np.int32)
        moves = np.zeros((length, len(self.totals), *sizes), np.int32)
        is_step = np.zeros((length, len(self.totals)), bool)
        for column, total in enumerate(self.totals):
            variables[: len(total.variables), column] = total.variables
            is_step[: len(total.variables), column] = True
            for row, move in enumerate(total.moves):
                moves[row, column, : move.shape[0], : move.shape[1]] = move

        def step(before: Array, arrays: tuple[Array, Array]) -> tuple[Array, Array]:
            move, chosen = arrays
            after = move[jnp.arange(len(self.totals)), before, value[chosen]]
            return after, after

        start = jnp.zeros(len(self.totals), jnp.int32)
        _, states = jax.lax.scan(step, start, (jnp.asarray(moves), jnp.asarray(variables)))
        places = np.flatnonzero(is_step.T).astype(np.int32)
        return jnp.concatenate([value, states.T.ravel()[places].astype(value.dtype)])
