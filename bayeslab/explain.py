"""explain(): what a program is and what the data make of it, as text and as HTML."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from bayeslab.bind import bind
from bayeslab.collapse import eliminated
from bayeslab.plan import planned, rows
from bayeslab.program import Bound, Data, Frozen, Program, Slot, name_of, precision
from bayeslab.terms import terms

COLUMNS = ("site", "is", "prior", "support", "shape", "children", "conditional", "law")


@dataclass(frozen=True)
class Explanation:
    """A table, one row a site in program order, and notes. Printed as text; notebooks show it as HTML."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        table = [COLUMNS, *self.rows]
        widths = [max(len(row[i]) for row in table) for i in range(len(COLUMNS))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([self.title, "", lines[0], rule, *lines[1:], *(["", *self.notes] if self.notes else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str) -> str:
            style = "text-align:left;padding:2px 12px 2px 0"
            return "<tr>" + "".join(f'<{tag} style="{style}">{escape(c)}</{tag}>' for c in cells) + "</tr>"

        head, body = row(COLUMNS, "th"), "".join(row(r, "td") for r in self.rows)
        notes = "".join(f"<div>{escape(note)}</div>" for note in self.notes)
        return f"<div><b>{escape(self.title)}</b><table>{head}{body}</table>{notes}</div>"


def explain(model: Program, data: Data) -> Explanation:
    """The sites of `model` as `data` bind it, and how each will be handled; nothing is fitted.

    conditional: the family of p(site | all other sites), found by differentiation, or why there is none. law: how far
    log joint minus log conditional is from a constant, relative to its terms; 1e-8 is the most that passes.
    Raises what `bind` raises.
    """
    with precision():
        bound = bind(model, data)
        module = (getattr(model, "__module__", None) or "").rpartition(".")[2]
        table = tuple(tuple(row) for row in rows(bound))
        return Explanation(f"{module}.{name_of(model)}({_inputs(bound)})", table, tuple(_notes(bound)))


def _inputs(bound: Bound) -> str:
    """Arguments as the program sees them: arrays by shape, numbers and settings by value."""

    def shown(leaf: Any) -> str:
        if isinstance(leaf, Frozen):
            return f"array {leaf.value.shape}" if isinstance(leaf.value, np.ndarray) else type(leaf.value).__name__
        if not isinstance(leaf, Slot):
            return repr(leaf) if isinstance(leaf, int | str | bool) else getattr(leaf, "__name__", type(leaf).__name__)
        value = bound.arrays[leaf.entry]
        return f"{float(value):g}" if value.ndim == 0 else f"array {value.shape}"

    return ", ".join(f"{a.name}={', '.join(map(shown, a.leaves)) or None}" for a in bound.settings)


def _notes(bound: Bound) -> list[str]:
    frozen = [
        argument.name
        for argument in bound.settings
        if any(isinstance(leaf, Frozen) and isinstance(leaf.value, np.ndarray) for leaf in argument.leaves)
    ]
    notes = [f"argument '{name}': the program needs its values to run, so other values compile anew" for name in frozen]
    notes += [f"site '{n}': its support depends on latent sites and is checked at every point" for n in bound.guarded]
    notes += [f"site '{s.name}': improper prior; no draws from the prior" for s in bound.sites.values() if s.improper]
    notes += [f"site '{rule.site}' is integrated out: {rule.family}" for rule in eliminated(bound)]
    if bound.latent and (bound.observed or any(site.role == "factor" for site in bound.sites.values())):
        method = planned(bound)
        try:
            sampler = method.plan(bound)
        except ValueError as error:
            notes.append(f"no method applies: {error}")
        else:
            notes.append(f"without a method, fit uses {type(method).__name__}")
            for group in getattr(sampler, "groups", ()):
                rows = ", ".join(f"'{name}'" for name in group.terms if name in bound.observed)
                if rows:
                    notes.append(f"{group.described(bound, terms(bound).priors)} replace the rows of {rows}")
    return notes
