"""explain(): what a program is and what the data make of it, as text and as HTML."""

from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from bayeslab.diagnostics.impossible_data import forgotten_arguments, is_prior_alone
from bayeslab.elimination.terms import terms
from bayeslab.gaussian_processes.distribution import GaussianProcess, solver_of
from bayeslab.mixed_membership.methods import membership_at_size
from bayeslab.mixed_membership.recognition import Membership
from bayeslab.planning import plan
from bayeslab.program_graphs.drawing import ProgramGraph
from bayeslab.program_graphs.relations import relations_of
from bayeslab.programs.arguments import Slot, StaticValue, qualified_name
from bayeslab.programs.binding import bind
from bayeslab.programs.handlers.listed_values import place_of
from bayeslab.programs.program import Bound, Data, Program, Site, precision_scope
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.sampling.protocols import Sampler
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import elimination_rules
from bayeslab.verification.discrete_fields import FieldFinding
from bayeslab.verification.findings import Finding
from bayeslab.verification.points.probe_points import generic_points

COLUMNS = ("site", "is", "prior", "support", "shape", "children", "conditional", "law")
"""The headings of the table."""


@dataclass(frozen=True)
class Explanation:
    """A table, one row a site in program order, and notes. It is printed as text; notebooks show it as HTML, with the
    graph of the program.

    bound: the program and its data, of which the graph is made when it is shown.
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    bound: Bound = field(repr=False, compare=False)

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
        return f"<div><b>{escape(self.title)}</b><table>{head}{body}</table>{notes}{self._graph_html()}</div>"

    def _graph_html(self) -> str:
        """The graph of the program, or why there is none."""
        try:
            with precision_scope():
                return ProgramGraph(relations_of(self.bound.plain)).to_html()
        except ValueError as error:
            return f"<div>no graph: {escape(str(error))}</div>"


def explain(model: Program, data: Data) -> Explanation:
    """The sites of `model` as `data` bind it, and how each will be handled; nothing is fitted.

    conditional: the family of p(site | all other sites), found by differentiation, or why there is none. law: how far
    log joint minus log conditional is from a constant, relative to its terms; 1e-8 is the most that passes.
    Raises what `bind` raises.
    """
    with precision_scope():
        analysis = Analysis(bind(model, data))
        bound = analysis.bound
        module = (getattr(model, "__module__", None) or "").rpartition(".")[2]
        table = tuple(tuple(row) for row in rows(analysis))
        return Explanation(
            f"{module}.{qualified_name(model)}({_arguments_text(bound)})", table, tuple(_notes(analysis)), bound
        )


def _arguments_text(bound: Bound) -> str:
    """The arguments as the program sees them, as text: arrays by shape, numbers and settings by value."""

    def shown(leaf: Any) -> str:
        if isinstance(leaf, StaticValue):
            return f"array {leaf.value.shape}" if isinstance(leaf.value, np.ndarray) else type(leaf.value).__name__
        if not isinstance(leaf, Slot):
            return repr(leaf) if isinstance(leaf, int | str | bool) else getattr(leaf, "__name__", type(leaf).__name__)
        value = bound.arrays[leaf.entry]
        return f"{float(value):g}" if value.ndim == 0 else f"array {value.shape}"

    return ", ".join(f"{a.name}={', '.join(map(shown, a.leaves)) or None}" for a in bound.settings)


def _notes(analysis: Analysis) -> list[str]:
    """Sentences below the table: what is special about sites and arguments, and which method fits use."""
    bound = analysis.bound
    frozen = [
        argument.name
        for argument in bound.settings
        if any(isinstance(leaf, StaticValue) and hasattr(type(leaf.value), "__array__") for leaf in argument.leaves)
    ]
    notes = [f"argument '{name}': the program needs its values to run, so other values compile anew" for name in frozen]
    arrays = [name for name, held in bound.captured if hasattr(type(held.value), "__array__") and np.ndim(held.value)]
    if arrays:
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(arrays))
        notes.append(f"{names}: read from outside of the arguments, so constant; other values compile anew")
    notes += [f"site '{n}': its support depends on latent sites and is checked at every point" for n in bound.guarded]
    notes += [
        f"site '{name}': summed over up to {limit}, beyond which less than 1e-12 of its conditional was found"
        for name, limit in bound.limits
    ]
    notes += [
        f"site '{name}': '{place_of(name)}' says which of its {size:,} possible values it has"
        for name, size in bound.listed
    ]
    improper = [s.name for s in bound.sites.values() if s.improper and not s.learned]
    notes += [f"site '{name}': improper prior; no draws from the prior, no evidence" for name in improper]
    notes += [f"site '{name}': a numpyro.param, of which MAP, EM and SVI learn a point" for name in bound.learned]
    notes += [f"site '{rule.site}' is integrated out: {rule.family.name}" for rule in elimination_rules(bound)]
    if bound.latent and (bound.observed or any(site.role == "factor" for site in bound.sites.values())):
        try:
            method, sampler, why = plan(analysis)
        except ValueError as error:
            notes.append(f"no method applies: {error}")
        else:
            notes.append(f"without a method, fit uses {type(method).__name__}: {why}")
            notes += _statistics_notes(sampler, bound)
    elif is_prior_alone(bound):
        forgotten = forgotten_arguments(bound)
        notes.append(f"no site has a value, so the posterior is the prior{f': {forgotten}' if forgotten else ''}")
    return notes


def _statistics_notes(sampler: Sampler, bound: Bound) -> list[str]:
    """Sentences on the tables that the sampler has in place of the rows of observed sites."""
    notes = []
    for group in sampler.statistics:
        rows = ", ".join(f"'{name}'" for name in group.terms if name in bound.observed)
        if rows:
            notes.append(f"{group.described(bound, terms(bound).priors)} replace the rows of {rows}")
    return notes


class Row(NamedTuple):
    """One site, as text.

    shape: from the outermost dimension inwards, plates with their names.
    conditional: given all other sites. law: the residual of its proof.
    """

    site: str
    role: str
    distribution: str
    support: str
    shape: str
    children: str
    conditional: str
    law: str


def rows(analysis: Analysis) -> list[Row]:
    """One row a site, in program order."""
    bound = analysis.bound
    if (membership := membership_at_size(analysis)) is not None:
        return [_mixed_membership_row(site, bound, membership) for site in bound.sites.values()]
    try:
        findings = {finding.site: finding for finding in analysis.findings}
    except ValueError:  # the program cannot be taken apart
        findings = {}
    fields = {name: field for field in (analysis.discrete_fields if findings else ()) for name in field.names}
    return [_row(site, bound, findings.get(site.name), fields.get(site.name)) for site in bound.sites.values()]


def _mixed_membership_row(site: Site, bound: Bound, membership: Membership) -> Row:
    """The row of a site of a program of mixed membership that is fitted by counts; one proof serves all its sites."""
    weights, components, origins, observed = membership[:4]
    cells = {
        weights: (origins, f"{site.family}, from counts of '{origins}'"),
        components: (observed, f"{site.family}, from counts of '{origins}'"),
        origins: (observed, "enumerated; counted, not kept"),
        observed: ("", ""),
    }
    return Row(
        *_site_cells(site, bound), *cells.get(site.name, ("", f"by NUTS, given '{weights}' and '{components}'")), ""
    )


def _site_cells(site: Site, bound: Bound) -> tuple[str, str, str, str, str]:
    """The first five cells of a row: what a site is, apart from its conditional."""
    role = site.role
    if site.name in bound.present:
        present = np.asarray(bound.present[site.name])
        role = f"observed, {int((~present).sum())} of {present.size} missing"
    if role == "factor" and site.name in bound.computed:
        role = "factor, of values computed from latent sites"
    elif role == "factor":
        return site.name, role, "", "", " x ".join(map(str, site.shape[:-1]))
    return site.name, role, site.family, site.support, _shape_text(site)


def _row(site: Site, bound: Bound, finding: Finding | None, field: FieldFinding | None) -> Row:
    """The row of a site, from what was found about its conditional, and about the discrete sites that it meets."""
    cells = _site_cells(site, bound)
    if finding is None:
        return Row(*cells, "", "", "")
    children = ", ".join(finding.children)
    if finding.rule is None and field is not None:
        best = next((one for one in (field.jointly, field.by_element) if one.rule is not None), None)
        if best is not None and best.rule is not None:
            others = [f"'{name}'" for name in field.names if name != site.name]
            with_others = f", with {', '.join(others)}" if others else ""
            return Row(*cells, children, best.rule.family.name + with_others, _residual_text(best.residual))
    if finding.rule is None:
        return Row(*cells, children, f"not in closed form: {finding.reason}", _residual_text(finding.residual))
    joint = f", joint over {_sizes_text(site, finding.rule.coupled)}" if finding.rule.coupled else ""
    solver = f", {_solver_name(bound, site.name)}" if terms(bound).priors[site.name].kind is GaussianProcess else ""
    return Row(*cells, children, finding.rule.family.name + joint + solver, _residual_text(finding.residual))


def _solver_name(bound: Bound, site: str) -> str:
    """The solver that a Gaussian process is computed with, in words."""
    process = innermost_distribution(terms(bound).priors[site].distribution(*generic_points(bound)[1]))
    name = type(solver_of(process.kernel, process.x, process.solver)).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _shape_text(site: Site) -> str:
    """The shape of a site as text, plates with their names."""
    names = {len(site.shape) - site.event_dim + plate.dim: plate.name for plate in site.plates}
    return " x ".join(f"{names[axis]} {size}" if axis in names else str(size) for axis, size in enumerate(site.shape))


def _sizes_text(site: Site, axes: tuple[int, ...]) -> str:
    """The sizes of some axes of a site as text."""
    return " x ".join(str(site.shape[axis]) for axis in axes)


def _residual_text(residual: float) -> str:
    """A residual as text, nothing for NaN."""
    return "" if np.isnan(residual) else f"{residual:.0e}"
