"""A program whose latent sites are all discrete, as named elements and tables over them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.factor_graphs.factor_graph import elimination_plan
from bayeslab.elimination.discrete.fields import Field
from bayeslab.programs.binding import bind, suggestion, unwrap_partial
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.program import Bound, Data, Program, precision_scope
from bayeslab.results.datatree import coordinates, dimensions
from bayeslab.transforms.whole_field import rule_of_all_elements, tables_of_all_elements


class DiscreteProgram(NamedTuple):
    """All discrete elements of a program, and what its log joint says of them.

    field: their structure. names: the name of every element, "z" for that of a site which has one, else as "z[0, 3]".
    scopes, tables: functions of a few elements each, an array with an axis for each, whose sum is the log joint, but
    for `constant`. dims, coords: of the sites and what the data call their positions. observed: the values of elements
    that the data hold, by number: of sites of which others are missing. left_out: sites with missing elements that no
    other site depends on.
    """

    field: Field
    names: tuple[str, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]
    constant: float
    dims: dict[str, list[str]]
    coords: dict[str, Any]
    observed: dict[int, int]
    left_out: tuple[str, ...]

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
        """The number of an element. Raises ValueError for a name that is none, or of one that the data hold."""
        if (site := name.partition("[")[0]) in self.left_out:
            raise ValueError(
                f"no other site depends on the missing elements of '{site}', so the program is without them; "
                "bl.predict draws them after a fit"
            )
        if name not in self.names:
            known = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise ValueError(
                f"'{name}' is no discrete latent element; these are {known}.{suggestion(name, self.names)}"
            )
        if (place := self.names.index(name)) in self.observed:
            raise ValueError(f"'{name}' is observed: the data say {self.observed[place]}")
        return place

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
                value = int(value) if float(value).is_integer() else value
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
            known |= {self.place(self.names[e]): v for e, v in zip(elements, array.ravel(), strict=True) if v == v}
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
        names, observed = element_names(field, bound), _observed_elements(field, bound)
        left_out = tuple(site for site in bound.present if site in bound.sites and whole_site(site) == site)
        constant = float(tables.constant)
        program = DiscreteProgram(field, names, plan.scopes, arrays, constant, dims, coords, observed, left_out)
        return program.with_evidence(given or {})


def element_names(field: Field, bound: Bound) -> tuple[str, ...]:
    """A name for every element, with its position in the whole site where only missing ones are latent."""
    names: list[str] = []
    for site, shape, size in zip(field.names, field.shapes, field.sizes, strict=True):
        places: Sequence[tuple[int, ...]] = list(np.ndindex(*shape))
        if site in bound.gaps:
            whole = np.shape(bound.observed[given_part(site)])
            places = list(zip(*np.unravel_index(np.asarray(bound.gaps[site]).ravel(), whole), strict=True))
        elif size == 1:
            places = []
        names += [f"{site}[{', '.join(map(str, place))}]" for place in places] or [site]
    return tuple(names)


def _observed_elements(field: Field, bound: Bound) -> dict[int, int]:
    """The values of elements that the data hold, of sites of which others are missing."""
    observed: dict[int, int] = {}
    start = 0
    for site, size in zip(field.names, field.sizes, strict=True):
        if site in bound.imputed and site not in bound.gaps:
            values = np.asarray(bound.observed[given_part(site)]).ravel()
            present = np.broadcast_to(np.asarray(bound.present[given_part(site)]), values.shape).ravel()
            observed |= {start + int(place): int(values[place]) for place in np.flatnonzero(present)}
        start += size
    return observed
