"""A program whose latent sites are all discrete, as named elements and tables over them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from bayeslab.distributions.factor_graphs.factor_graph import elimination_plan
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.table_reading import plan_of
from bayeslab.graphical_models.missing_elements import (
    SiteLayout,
    layouts_of,
    with_latent_leaves,
    with_missing_elements_alone,
)
from bayeslab.programs.binding import bind_changed, suggestion, unwrap_partial
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.program import Bound, Data, Program, precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all, partial_once
from bayeslab.results.datatree import coordinates, dimensions
from bayeslab.transforms.whole_field import rule_of_all_elements, tables_of_all_elements


class DiscreteProgram(NamedTuple):
    """All discrete elements of a program, and what its log joint says of them.

    field: their structure. names: the name of every element, "z" for that of a site which has one, else as "z[0, 3]".
    scopes, tables: functions of a few elements each, an array with an axis for each, whose sum is the log joint, but
    for `constant`. dims, coords: of the sites and what the data call their positions. layouts, shapes: where the
    elements are in the sites, and the shapes of these. left_out: sites with missing elements that have too many values,
    and that no other site depends on.
    """

    field: Field
    names: tuple[str, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]
    constant: float
    dims: dict[str, list[str]]
    coords: dict[str, Any]
    layouts: dict[str, SiteLayout]
    shapes: dict[str, tuple[int, ...]]
    left_out: tuple[str, ...]

    @property
    def cards(self) -> tuple[int, ...]:
        """How many values every element has, and every total of elements after them."""
        totals = () if self.field.totals is None else self.field.totals.cards
        return (*map(int, self.field.cards), *totals)

    @property
    def values(self) -> list[tuple[int, ...]]:
        """The values of every element, in the order of the axes of tables."""
        choices = zip(self.field.choices, self.field.sizes, strict=True)
        return [own for own, size in choices for _ in range(size)]

    def place(self, name: str) -> int:
        """The number of an element. Raises ValueError for a name that is none, or of one that the data hold."""
        if (site := name.partition("[")[0]) in self.left_out:
            raise ValueError(
                f"the missing elements of '{site}' have no table, being continuous or of too many values, and no other "
                "site depends on them, so the program is without them; bl.predict draws them after a fit"
            )
        if name not in self.names:
            known = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise ValueError(
                f"'{name}' is no discrete latent element; these are {known}.{suggestion(name, self.names)}"
            )
        if (place := self.names.index(name)) in self.observed:
            raise ValueError(f"'{name}' is observed: the data say {self.observed[place]}")
        return place

    @property
    def observed(self) -> dict[int, int]:
        """The values of elements that the data hold, by number: of sites of which others are missing."""
        pairs = [
            (element, layout.known[place])
            for layout in self.layouts.values()
            for element, place in zip(layout.elements, layout.places, strict=True)
        ]
        return {element: int(value) for element, value in pairs if not np.isnan(value)}

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
                element = self.place(name)
                known[element] = np.asarray(value).item()
                continue
            array = np.asarray(value, float)
            layout, shape = self.layouts[name], self.shapes[name]
            if array.shape != shape and array.size != len(layout.known):
                raise ValueError(f"'{name}' is given with shape {array.shape}, but site '{name}' has shape {shape}")
            values = array.ravel()
            for place in np.flatnonzero(~np.isnan(values) & ~np.isnan(layout.known)):
                raise ValueError(f"element {int(place)} of '{name}' is observed: the data say {layout.known[place]:g}")
            known |= {e: values[place] for e, place in layout.latent if not np.isnan(values[place])}
        return known

    def flat(self) -> np.ndarray:
        """All numbers of all tables, one after another."""
        return np.concatenate([np.zeros(0), *(table.ravel() for table in self.tables)])

    def plan(self, *more: tuple[int, ...]) -> Any:
        """How the elements are summed over. more: scopes behind those of the program."""
        return elimination_plan(self.cards, (*self.scopes, *more))


def discrete_program(model: Program, data: Data, given: Mapping[str, Any] | None = None) -> DiscreteProgram:
    """The discrete elements and tables of a program and its data.

    given: more that is known of elements, see `DiscreteProgram.with_evidence`.
    Raises ValueError where a latent site is continuous, or the elements meet in too large a table.
    """
    with precision_scope():
        bound, field = _elements(model, data)
        entries = unwrap_partial(getattr(model, "model", model), read_entries(data))[1]
        plan = plan_of(field)
        [(numbers, constant)] = evaluate_all([partial_once(_numbers_and_constant, field)], bound)
        parts = np.split(numbers, np.cumsum(plan.table_sizes)[:-1]) if plan.scopes else []
        shapes = [tuple(plan.cards[each] for each in scope) for scope in plan.scopes]
        arrays = tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
        whole = replace(bound, gaps={})
        dims, coords = dimensions(whole, entries), dict(coordinates(whole, entries))
        layouts, site_shapes = layouts_of(field, bound), {name: whole.sites[name].shape for name in field.names}
        names = element_names(layouts, site_shapes)
        left_out = tuple(site for site in bound.present if site in bound.sites and whole_site(site) == site)
        program = DiscreteProgram(
            field, names, plan.scopes, arrays, float(constant), dims, coords, layouts, site_shapes, left_out
        )
        return program.with_evidence(given or {})


def _numbers_and_constant(field: Field, bound: Bound) -> tuple[Array, Array]:
    """All numbers of all tables of a program, one after another, and what does not depend on its elements."""
    tables = tables_of_all_elements(field, bound)
    return tables.planned_numbers, tables.constant


def element_names(layouts: Mapping[str, SiteLayout], shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """A name for every element, with its position in the whole site where this has several."""
    names: list[str] = []
    for site, layout in layouts.items():
        if len(layout.known) == 1:
            names.append(site)
            continue
        positions = zip(*np.unravel_index(layout.places, shapes[site]), strict=True)
        names += [f"{site}[{', '.join(map(str, position))}]" for position in positions]
    return tuple(names)


def _elements(model: Program, data: Data) -> tuple[Bound, Field]:
    """The Bound and the field of all discrete elements, of missing elements alone where all would be too many.

    Raises ValueError where these are too many, too.
    """
    bound = bind_changed(model, data, with_latent_leaves)
    try:
        rule = rule_of_all_elements(bound)
    except ValueError:
        if not (alone := bind_changed(model, data, with_missing_elements_alone)).gaps:
            raise
        bound, rule = alone, rule_of_all_elements(alone)
    assert rule.field is not None
    return bound, rule.field
