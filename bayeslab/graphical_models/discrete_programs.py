"""A program whose latent sites are all discrete, as named elements and tables over them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.factor_graph import elimination_plan
from bayeslab.elimination.discrete.fields import Field
from bayeslab.programs.binding import bind, suggestion, unwrap_partial
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Data, Program, precision_scope
from bayeslab.results.datatree import coordinates, dimensions
from bayeslab.transforms.whole_field import rule_of_all_elements, tables_of_all_elements


class DiscreteProgram(NamedTuple):
    """All discrete elements of a program, and what its log joint says of them.

    field: their structure. names: the name of every element, "z" for that of a site which has one, else as "z[0, 3]".
    scopes, tables: functions of a few elements each, an array with an axis for each, whose sum is the log joint, but
    for `constant`. dims, coords: of the sites and what the data call their positions.
    """

    field: Field
    names: tuple[str, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]
    constant: float
    dims: dict[str, list[str]]
    coords: dict[str, Any]

    @property
    def cards(self) -> tuple[int, ...]:
        """How many values every element has."""
        return tuple(map(int, self.field.cards))

    @property
    def values(self) -> list[tuple[int, ...]]:
        """The values of every element, in the order of the axes of tables."""
        choices = zip(self.field.choices, self.field.sizes, strict=True)
        return [own for own, size in choices for _ in range(size)]

    def place(self, name: str) -> int:
        """The number of an element. Raises ValueError for a name that is none."""
        if name not in self.names:
            known = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise ValueError(
                f"'{name}' is no discrete latent element; these are {known}.{suggestion(name, self.names)}"
            )
        return self.names.index(name)

    def elements_of(self, site: str) -> range:
        """The numbers of the elements of a site."""
        place = self.field.names.index(site)
        start = sum(self.field.sizes[:place])
        return range(start, start + self.field.sizes[place])

    def with_evidence(self, given: Mapping[str, Any]) -> "DiscreteProgram":
        """The program with tables that exclude all values of some elements but one.

        given: the value of an element by its name, or an array of those of a site, NaN where one is not known.
        Raises ValueError for a name that is none, a wrong shape, or a value that the element cannot have.
        """
        scopes, tables = list(self.scopes), list(self.tables)
        for element, value in self._evidence(given).items():
            values = self.values[element]
            if value not in values:
                raise ValueError(f"'{self.names[element]}' is given as {value}, but its values are {list(values)}")
            scopes.append((element,))
            tables.append(np.where(np.array(values) == value, 0.0, -np.inf))
        return self._replace(scopes=tuple(scopes), tables=tuple(tables))

    def _evidence(self, given: Mapping[str, Any]) -> dict[int, Any]:
        """The known values by the numbers of elements."""
        known = {}
        for name, value in given.items():
            if name not in self.field.names:
                known[self.place(name)] = np.asarray(value).item()
                continue
            array = np.asarray(value, float)
            shape = self.field.shapes[self.field.names.index(name)]
            elements = self.elements_of(name)
            if array.shape != shape and array.size != len(elements):
                raise ValueError(f"'{name}' is given with shape {array.shape}, but site '{name}' has shape {shape}")
            known |= {e: v for e, v in zip(elements, array.ravel().tolist(), strict=True) if not np.isnan(v)}
        return known

    def flat(self) -> Array:
        """All numbers of all tables, one after another."""
        return jnp.asarray(np.concatenate([np.zeros(0), *(table.ravel() for table in self.tables)]))

    def plan(self, *more: tuple[int, ...]) -> Any:
        """How the elements are summed over. more: scopes behind those of the program."""
        return elimination_plan(self.cards, (*self.scopes, *more))


def discrete_program(model: Program, data: Data, given: Mapping[str, Any] | None = None) -> DiscreteProgram:
    """The discrete elements and tables of a program and its data.

    given: more that is known of elements, see `DiscreteProgram.with_evidence`.
    Raises ValueError where a latent site is continuous, or the elements meet in too large a table.
    """
    with precision_scope():
        bound = bind(model, data)
        entries = unwrap_partial(getattr(model, "model", model), read_entries(data))[1]
        field = rule_of_all_elements(bound).field
        assert field is not None
        tables = tables_of_all_elements(field, bound)
        plan, numbers = tables.plan, np.asarray(tables.numbers)
        parts = np.split(numbers, np.cumsum(plan.table_sizes)[:-1]) if plan.scopes else []
        shapes = [tuple(plan.cards[each] for each in scope) for scope in plan.scopes]
        arrays = tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
        dims, coords = dimensions(bound, entries), dict(coordinates(bound, entries))
        program = DiscreteProgram(
            field, element_names(field), plan.scopes, arrays, float(tables.constant), dims, coords
        )
        return program.with_evidence(given or {})


@lru_cache(maxsize=64)
def element_names(field: Field) -> tuple[str, ...]:
    """A name for every element."""
    names: list[str] = []
    for site, shape, size in zip(field.names, field.shapes, field.sizes, strict=True):
        places = [", ".join(map(str, place)) for place in np.ndindex(*shape)]
        names += [site] if size == 1 else [f"{site}[{place}]" for place in places]
    return tuple(names)
