"""The report of a result: what was fitted and how, what is wrong with it, a table and figures, as text and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.compare import is_weighted
from bayeslab.diagnostics.diagnose import diagnose
from bayeslab.plots import plot_elbo, plot_posteriors, styled
from bayeslab.reports.page import figure_png, image_html, list_html, page_html, table_html
from bayeslab.reports.selected_parameters import Parameter, first_parameters, num_parameters
from bayeslab.reports.summary_cells import MIN_DRAWS, continuous_cells, discrete_cells, numbered_tree
from bayeslab.results.datatree import posterior_draws
from bayeslab.results.saving import save_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset, DataTree

ROWS_OF_VIEW, ROWS_OF_PAGE = 12, 100
"""The largest numbers of rows of a table in the short view and on the page."""
PANELS_OF_VIEW, PANELS_OF_PAGE = 4, 12
"""The largest numbers of marginals that are drawn in the short view and on the page."""
MAX_NAMES = 60
"""The largest number of sites, and of arguments, that the page names."""
VIEW_DPI = 72
"""The resolution of the small figure of the short view, in dots per inch."""


@dataclass(frozen=True)
class Report:
    """A result that is told in short: printed as text, shown by notebooks as HTML. `to_html` is a page of its own."""

    tree: DataTree

    @cached_property
    def verdict(self) -> list[str]:
        """What `diagnose` says, and what it could not look at; for a large result it takes longer than all the rest."""
        return _verdict(self.tree)

    def __str__(self) -> str:
        tables = []
        for _, (headings, rows), note in _tables(self.tree, ROWS_OF_VIEW):
            cells = [headings, *rows]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
            tables += ["", *lines, *([note] if note else [])]
        return "\n".join([_title(self.tree), _draws_text(self.tree), *self.verdict, *tables])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heading = f"<b>{escape(_title(self.tree))}</b><div>{escape(_draws_text(self.tree))}</div>"
        tables = _tables_html(self.tree, ROWS_OF_VIEW)
        return f"<div>{heading}{list_html(self.verdict)}{tables}{_figures_html(self.tree, short=True)}</div>"

    def to_html(self) -> str:
        """The whole report as one page, with its figures in it; nothing is loaded from elsewhere."""
        verdict = "".join(f'<p class="answer">{escape(line)}</p>' for line in self.verdict)
        body = [
            verdict,
            "<h2>Posterior</h2>",
            _tables_html(self.tree, ROWS_OF_PAGE),
            _figures_html(self.tree, short=False),
            "<h2>What was fitted, and how</h2>",
            table_html(["", ""], _facts(self.tree)),
            "<h2>Data</h2>",
            table_html(["", "shape", "group"], _data_rows(self.tree)),
        ]
        return page_html(_title(self.tree), "\n".join(body))


def report(tree: DataTree, file: str | PathLike[str] | None = None) -> Report:
    """What was fitted and how, the verdict of `diagnose`, a table of the posterior and figures.

    Notebooks show a short view. file: gets the whole as one HTML page that needs no other file and no network, such as
    "fit.html"; it is replaced if it exists. Of discrete sites the most frequent values are told, of a point estimate
    its values; of large sites the first elements, and how many there are. The result may be of any method, read from a
    file, or made by ArviZ from draws of other programs.
    Raises TypeError for what is no DataTree, ValueError for one without draws, OSError where the file cannot be
    written.
    """
    posterior_draws(tree, "report")
    made = Report(tree)
    if file is not None:
        save_text(made.to_html(), Path(file))
    return made


def _title(tree: DataTree) -> str:
    """The name of the program and the method."""
    program, method = str(tree.attrs.get("model", "")), str(tree.attrs.get("method", ""))
    *before, last = program.split(".")
    name = before[-1] if last == "model" and before else last
    return f"{name} by {method}" if name and method else name or method or "A posterior"


def _draws_text(tree: DataTree) -> str:
    """How many draws there are, and the evidence or its bound where it is known."""
    sizes = posterior_draws(tree, "report").sizes
    if _is_point(tree):
        text = "a point estimate"
    else:
        chains = "1 chain" if sizes["chain"] == 1 else f"{sizes['chain']:,} chains"
        text = f"{chains} of {sizes['draw']:,} draw{'s' if sizes['draw'] > 1 else ''}"
    for name, words in (("log_evidence", "log evidence"), ("elbo", "ELBO")):
        if name in tree.attrs:
            text += f"; {words} {float(tree.attrs[name]):,.2f}"
    return text


def _is_point(tree: DataTree) -> bool:
    sizes = posterior_draws(tree, "report").sizes
    return bool(sizes["chain"] * sizes["draw"] == 1 and "converged" in tree.attrs)


def _verdict(tree: DataTree) -> list[str]:
    """What `diagnose` says, and what it could not look at."""
    posterior = posterior_draws(tree, "report")
    numeric = any(values.dtype.kind in "fiu" for values in posterior.data_vars.values())
    lines = diagnose(tree).splitlines() if numeric else []
    if tree.attrs.get("interrupted", 0):
        lines.append("Interrupted: these are the draws that were finished.")
    if not lines:
        lines = (
            ["diagnose finds nothing wrong."] if numeric else ["diagnose looks at numbers, of which there are none."]
        )
    if _is_point(tree):
        return [*lines, "A point says nothing of how uncertain it is."]
    independent = tree.attrs.get("method") == "Exact" or "converged" in tree.attrs or is_weighted(tree)
    if posterior.sizes["draw"] < MIN_DRAWS:
        lines.append("There are too few draws for effective sample sizes and R-hat.")
    elif posterior.sizes["chain"] == 1 and not independent:
        lines.append("There is one chain, so whether chains agree is not known.")
    return lines


def _tables(tree: DataTree, max_rows: int) -> list[tuple[str, tuple[list[str], list[list[str]]], str]]:
    """A heading, cells and a note on what is left out: for continuous sites, and for discrete ones."""
    posterior, tables = posterior_draws(tree, "report"), []
    for heading, kinds, cells in (
        ("Continuous sites", "f", continuous_cells),
        ("Discrete sites", "iub", discrete_cells),
    ):
        sites = _of_kinds(posterior, kinds)
        total = num_parameters(sites)
        if total:
            note = f"{max_rows:,} of {total:,} numbers; az.summary has all." if total > max_rows else ""
            tables.append((heading, cells(first_parameters(sites, max_rows)), note))
    return tables


def _tables_html(tree: DataTree, max_rows: int) -> str:
    """The tables as HTML, with their headings where there are two."""
    tables = _tables(tree, max_rows)
    return "".join(
        (f"<h3>{heading}</h3>" if len(tables) > 1 else "")
        + table_html(*cells, style="numbers")
        + (f"<p>{escape(note)}</p>" if note else "")
        for heading, cells, note in tables
    )


def _of_kinds(posterior: Dataset, kinds: str) -> Dataset:
    """The sites whose values are of some kinds, as NumPy has them."""
    return posterior[[name for name, values in posterior.data_vars.items() if values.dtype.kind in kinds]]


def _figures_html(tree: DataTree, short: bool) -> str:
    """The marginals of continuous sites, and on the page the history of the ELBO too."""
    from matplotlib import rc_context

    number = PANELS_OF_VIEW if short else PANELS_OF_PAGE
    images = []
    with styled(), rc_context({"backend": "agg"}):
        if drawn := _moving(tree, number):
            words = f"Marginal densities of {', '.join(parameter.label for parameter in drawn)}"
            figure = _marginals(tree, drawn)
            images.append(image_html(figure_png(figure, VIEW_DPI) if short else figure_png(figure), words))
        if not short and "history" in tree.children and "elbo" in tree["history"]:
            images.append(image_html(_elbo_png(tree), "The ELBO by step of the optimisation"))
    return "".join(images)


def _moving(tree: DataTree, number: int) -> list[Parameter]:
    """Of the first continuous numbers those that are finite and not the same in all draws."""
    drawn = first_parameters(_of_kinds(posterior_draws(tree, "report"), "f"), number)
    return [each for each in drawn if np.isfinite(each.values).all() and np.ptp(each.values) > 0]


def _marginals(tree: DataTree, drawn: Sequence[Parameter]) -> Figure:
    """The figure of some marginals."""
    name = str(tree.attrs.get("method", "posterior"))
    axes = plot_posteriors({name: numbered_tree(drawn)}, max_panels=len(drawn))
    for axis, parameter in zip(axes, drawn, strict=True):
        axis.set_title(parameter.label, fontsize="medium", parse_math=False)
    figure: Figure = axes[0].figure
    return figure


def _elbo_png(tree: DataTree) -> bytes:
    """The figure of the ELBO."""
    figure: Any = plot_elbo(tree).figure
    return figure_png(figure)


def _facts(tree: DataTree) -> list[list[str]]:
    """The sites, and everything that a result says of its fit."""
    posterior = posterior_draws(tree, "report")
    sites = [f"{name} ({_shape_text(values.isel(chain=0, draw=0))})" for name, values in posterior.data_vars.items()]
    more = [f"and {len(sites) - MAX_NAMES:,} more"] if len(sites) > MAX_NAMES else []
    facts = [["sites", ", ".join([*sites[:MAX_NAMES], *more])], ["draws", _draws_text(tree)]]
    for name, value in tree.attrs.items():
        text = f"{float(value):.4g}" if isinstance(value, float | np.floating) else str(value)
        facts.append([str(name).replace("_", " "), text])
    return facts


def _data_rows(tree: DataTree) -> list[list[str]]:
    """Every observed site and argument with its shape, and its value where it is a number."""
    groups = [name for name in ("observed_data", "constant_data") if name in tree.children]
    rows = [
        [str(name), f"{float(values):g}" if values.ndim == 0 and values.dtype.kind in "fiub" else _shape_text(values),
         group.replace("_", " ")]
        for group in groups
        for name, values in tree[group].data_vars.items()
    ]  # fmt: skip
    more = [["...", f"{len(rows) - MAX_NAMES:,} more", ""]] if len(rows) > MAX_NAMES else []
    return [*rows[:MAX_NAMES], *more]


def _shape_text(values: Any) -> str:
    """The dimensions with their sizes."""
    return " x ".join(f"{dim} {size}" for dim, size in values.sizes.items()) or "a number"
