"""explain(): what a program is and what the data make of it, as text and as HTML."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from bayeslab.bind import bind
from bayeslab.program import Bound, Data, Frozen, Program, Site, Slot, precision

COLUMNS = ("site", "is", "distribution", "shape", "plates", "support")


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
    """The sites of `model` as `data` bind it: observed, latent or missing, shapes, plates and supports.

    Raises what `bind` raises. Nothing is fitted.
    """
    with precision():
        bound = bind(model, data)
        name = getattr(model, "__qualname__", getattr(model, "__name__", type(model).__name__))
        module = getattr(model, "__module__", "").rpartition(".")[2]
        rows = tuple(_row(site, bound) for site in bound.sites.values())
        return Explanation(f"{module}.{name}({_inputs(bound)})", rows, tuple(_notes(bound)))


def _row(site: Site, bound: Bound) -> tuple[str, ...]:
    plates = ", ".join(f"{plate.name} {plate.size}" for plate in site.plates)
    role = site.role
    if site.name in bound.present:
        present = np.asarray(bound.present[site.name])
        role = f"observed, {int((~present).sum())} of {present.size} missing"
    return site.name, role, site.family, str(site.shape), plates, site.support


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
        a.name
        for a in bound.settings
        if any(isinstance(x, Frozen) and isinstance(x.value, np.ndarray) for x in a.leaves)
    ]
    notes = [f"argument '{name}': the program needs its values to run, so other values compile anew" for name in frozen]
    notes += [f"site '{n}': its support depends on latent sites and is checked at every point" for n in bound.guarded]
    notes += [f"site '{s.name}': improper prior; no draws from the prior" for s in bound.sites.values() if s.improper]
    return notes
