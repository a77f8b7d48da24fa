"""Discrete elements that meet, as a factor graph: which of them enter one part of the log joint.

A field is found for some terms and some sites; what it holds is structure, a function of the program, the shapes of its
data and those arguments that say who meets whom. Numbers are read off the terms wherever they are needed: parts of the
log joint at a few configurations, one for every choice of elements that do not meet (`parts_at`).
"""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from hashlib import sha256
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.factor_graphs.running_totals import PartTotal, RunningTotals
from bayeslab.distributions.factor_graphs.totals_distribution import TotalsGraph
from bayeslab.distributions.markov.scored.chain_layout import ChainLayout
from bayeslab.programs.program import Values


class Chains(NamedTuple):
    """The structure of elements that are chains.

    functions: for every part of the log joint, for each of its elements, a number: elements of equal numbers are the
    same function of their scopes, each at its own step.
    """

    layout: ChainLayout
    functions: tuple[np.ndarray, ...]


CONSTANT, MIXED = -1, -2
"""What an element of a part has in place of the index of a scope: none, and several."""


class Field:
    """The structure of discrete elements that meet; equal where all of it is.

    names, shapes: of the sites. choices: of the elements of each site.
    scopes: sets of elements that a function of the log joint has, each once.
    parts: for every part of the log joint, for each of its elements, the index of its scope, CONSTANT or MIXED.
    mixed: the scopes of parts of which an element is a sum of several functions.
    chain: how its elements are chains, where they are. eps: of the lowest precision in which any part is computed.
    totals: how elements are added up where functions of many depend on that alone. last_totals: by the index of such a
    scope its place among these, and a choice of each of its elements for every value of the last total.
    with_totals: the field whose tables are read by totals, where those of this one are too large.
    changed_rows: where Normal sites are integrated out, the rows of their precision that change with every element
    (element, row), where these are few.
    """

    chain: Chains | None = None
    changed_rows: np.ndarray | None = None
    totals: RunningTotals | None = None
    last_totals: Mapping[int, tuple[int, np.ndarray]] = MappingProxyType({})
    with_totals: "Field | None" = None
    eps: float = float(np.finfo(float).eps)

    def __init__(
        self,
        names: tuple[str, ...],
        shapes: tuple[tuple[int, ...], ...],
        choices: tuple[tuple[int, ...], ...],
        scopes: tuple[tuple[int, ...], ...],
        parts: tuple[np.ndarray, ...],
        mixed: tuple[tuple[int, ...], ...],
    ) -> None:
        self.names, self.shapes, self.choices, self.scopes, self.parts = names, shapes, choices, scopes, parts
        self.mixed = mixed
        arrays = b"".join(part.tobytes() + repr(part.shape).encode() for part in parts)
        self._digest = sha256(repr((names, shapes, choices, scopes, mixed)).encode() + arrays).hexdigest()

    def as_chains(self, chain: Chains) -> "Field":
        """The field, whose elements are chains."""
        field = self._with_numbers(chain.functions)
        field.chain = chain
        return field

    def by_totals(self, part_totals: Mapping[int, PartTotal]) -> "Field":
        """The field, with the totals that functions depend on, by the indices of their scopes."""
        totals = RunningTotals([each.total for each in part_totals.values()], self.size)
        field = self._with_numbers([np.frombuffer(totals.digest.encode(), np.uint8), np.array(list(part_totals))])
        field.totals = totals
        places = enumerate(part_totals.items())
        field.last_totals = {index: (place, each.representatives) for place, (index, each) in places}
        return field

    def with_changed_rows(self, rows: np.ndarray) -> "Field":
        """The field, with the rows of a precision that change with every element (element, row)."""
        field = self._with_numbers([rows])
        field.changed_rows = rows
        return field

    def _with_numbers(self, arrays: Sequence[np.ndarray]) -> "Field":
        """A copy that differs where these arrays do."""
        field = copy(self)
        numbers = b"".join(each.tobytes() for each in arrays)
        field._digest = sha256(self._digest.encode() + numbers).hexdigest()
        return field

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Field) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def totals_graph(self) -> TotalsGraph | None:
        """The elements as independent ones that are weighed by their totals; None where they meet in other ways too."""
        if self.totals is None or self.mixed:
            return None
        added = [variable for total in self.totals.totals for variable in total.variables]
        singles = all(len(scope) == 1 for number, scope in enumerate(self.scopes) if number not in self.last_totals)
        if not singles or len(set(added)) < len(added):
            return None
        last = {number: self.size + place for number, (place, _) in self.last_totals.items()}
        tables = [last.get(number, scope[0]) for number, scope in enumerate(self.scopes)]
        return TotalsGraph(tuple(map(int, self.cards)), tuple(tables), self.totals)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many elements each site has."""
        return tuple(map(prod, self.shapes))

    @property
    def size(self) -> int:
        """How many elements there are."""
        return sum(self.sizes)

    @cached_property
    def cards(self) -> np.ndarray:
        """How many choices each element has, (size,)."""
        return np.repeat(np.array([len(each) for each in self.choices], np.int32), self.sizes)

    @cached_property
    def neighbours(self) -> list[set[int]]:
        """For every element those that it meets."""
        meets: list[set[int]] = [set() for _ in range(self.size)]
        for scope in {*self.scopes, *self.mixed}:
            for element in scope:
                meets[element].update(scope)
        return [others - {element} for element, others in enumerate(meets)]

    @cached_property
    def colours(self) -> np.ndarray:
        """A colour for every element, (size,): elements that meet have different ones, as on a chessboard."""
        colours = np.full(self.size, -1, np.int32)
        for element in _breadth_first(self.neighbours):
            taken = {colours[other] for other in self.neighbours[element]}
            colours[element] = next(colour for colour in range(self.size) if colour not in taken)
        return colours

    def named(self, indices: Array) -> Values:
        """The values of all sites, from indices of choices (size,)."""
        values, start = {}, 0
        for name, shape, choices, size in zip(self.names, self.shapes, self.choices, self.sizes, strict=True):
            own = indices[start : start + size].reshape(shape)
            if _is_range(choices):
                values[name] = own + choices[0] if choices[0] else own
            else:
                values[name] = jnp.asarray(choices)[own]
            start += size
        return values

    def joined(self, values: Values) -> Array:
        """Indices of choices (size,), from values of all sites."""
        pieces = []
        for name, choices in zip(self.names, self.choices, strict=True):
            own = values[name].ravel()
            # a search is a loop in compiled code, and there may be many sites
            if _is_range(choices):
                indices = jnp.clip(own - choices[0], 0, len(choices) - 1)
            else:
                indices = jnp.searchsorted(jnp.asarray(choices), own)
            pieces.append(indices.astype(jnp.int32))
        return jnp.concatenate(pieces)


def _is_range(choices: tuple[int, ...]) -> bool:
    """Whether choices are consecutive numbers."""
    return choices == tuple(range(choices[0], choices[0] + len(choices)))


def _breadth_first(neighbours: Sequence[set[int]]) -> list[int]:
    """All elements, from one to those that it meets, so that what can be drawn in two colours is."""
    order, seen = [], [False] * len(neighbours)
    for start in range(len(neighbours)):
        queue = [] if seen[start] else [start]
        seen[start] = True
        for element in queue:
            for other in sorted(neighbours[element]):
                if not seen[other]:
                    seen[other] = True
                    queue.append(other)
        order += queue
    return order
