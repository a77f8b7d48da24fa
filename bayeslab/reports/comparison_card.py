"""The comparison card: posteriors side by side, with a verdict on each in plain words, as text and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from bayeslab.diagnostics.compare import align_all, is_weighted, parameter_table, summary_table
from bayeslab.diagnostics.diagnose import MAX_K_HAT, diagnose, ratios_differ
from bayeslab.plots import plot_comparison
from bayeslab.reports.comparison_text import table_cells, to_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataArray, Dataset, DataTree

MIN_STANDARD_ERRORS = 3.0
"""The number of Monte Carlo standard errors that a difference has to exceed to be seen."""
MAX_MEAN_ERROR_SD, MIN_SD_RATIO, MAX_SD_RATIO = 0.1, 0.9, 1.1
"""The largest error of a mean, in standard deviations of the reference, and the smallest and the largest ratio of
standard deviations, that matter to nobody."""
MAX_GOOD_K_HAT = 0.5
"""The largest k-hat of an approximation that importance weights correct without many draws."""


@dataclass(frozen=True)
class Card:
    """A comparison with verdicts. It is printed as text; notebooks show it as HTML.

    table: of `compare_posteriors`. parameters: of `compare_parameters`. verdicts: by posterior, worst first.
    """

    table: Dataset
    parameters: Dataset
    verdicts: dict[str, tuple[str, ...]]

    def __str__(self) -> str:
        width = max(map(len, self.verdicts)) + 2
        lines = [
            (f"{name}:" if first == 0 else "").ljust(width) + line
            for name, verdict in self.verdicts.items()
            for first, line in enumerate(verdict)
        ]
        return "\n".join([to_text(self.table), "", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(texts: Sequence[str], tag: str) -> str:
            left, right = "text-align:left;padding:2px 12px 2px 0", "text-align:right;padding:2px 12px 2px 0"
            styles = [left, *[right] * (len(texts) - 1)]
            pairs = zip(texts, styles, strict=True)
            return "<tr>" + "".join(f'<{tag} style="{style}">{escape(text)}</{tag}>' for text, style in pairs) + "</tr>"

        head, *body = table_cells(self.table)
        rows = row(head, "th") + "".join(row(each, "td") for each in body)
        verdict_items = "".join(
            f"<dt><b>{escape(name)}</b></dt>" + "".join(f"<dd>{escape(line)}</dd>" for line in verdict)
            for name, verdict in self.verdicts.items()
        )
        note = f"Errors and distances in standard deviations of {self.table.attrs['reference']}."
        return f"<div><table>{rows}</table><div>{escape(note)}</div><dl>{verdict_items}</dl></div>"

    def plot(self) -> Figure:
        """Error of the mean and ratio of the sd of every parameter, with their Monte Carlo errors."""
        return plot_comparison(self.parameters)[0].figure


def comparison_card(trees: Mapping[str, DataTree], var_names: Sequence[str] | None = None) -> Card:
    """The table of `compare_posteriors` and what it means: which results agree with the first, and what is wrong with
    the others.

    A difference is named where it is above three Monte Carlo standard errors and large enough to matter: a mean by a
    tenth of a standard deviation, a standard deviation by a tenth. Marginals with several peaks are named, as are an
    ELBO below the evidence, k-hat in words, and the first line of `diagnose`.
    Raises what `compare_posteriors` raises.
    """
    trees, sites_aligned = align_all(trees)
    parameters = parameter_table(trees, sites_aligned, var_names)
    table = summary_table(parameters, trees)
    verdicts, reference = {}, next(iter(trees.values()))
    for position, (name, tree) in enumerate(trees.items()):
        own, row = parameters.isel(posterior=position), table.isel(posterior=position)
        lines = [*_diagnose_line(tree, var_names), *_peaks(own)]
        lines += [] if position == 0 else [*_differences(own), *_approximation(tree, row), *_evidence(tree, reference)]
        verdicts[name] = (*_summary_line(position, tree, own, lines), *lines)
    return Card(table, parameters, verdicts)


def _summary_line(position: int, tree: DataTree, own: Dataset, findings: list[str]) -> Iterator[str]:
    """The first line of a verdict, where nothing is wrong or where it is of the reference."""
    if position == 0:
        evidence = tree.attrs.get("log_evidence")
        yield "the reference" + (f"; log evidence {evidence:,.2f}" if evidence is not None else "")
    elif own["sd"].isnull().all():
        yield "a single point, without a spread"
    elif not any(line.startswith(("means", "too", "Not", "Frozen", "Chains", "several")) for line in findings):
        yield "agrees with the reference, but for errors too small to be seen or to matter"


def _diagnose_line(tree: DataTree, var_names: Sequence[str] | None) -> Iterator[str]:
    """The first line of `diagnose`, apart from those on approximations, which have a line of their own."""
    if var_names is not None:
        tree = tree.copy()
        tree["posterior"] = tree["posterior"].to_dataset()[list(var_names)]
    yield from [line for line in diagnose(tree).splitlines() if not line.startswith("Approximation")][:1]


def _peaks(own: Dataset) -> Iterator[str]:
    """A line on marginals with several peaks."""
    several = own["peaks"] > 1
    if several.any():
        number, where = _largest_parameter(own["peaks"])
        yield (
            f"several peaks: {number:.0f} in {where}, in {int(several.sum())} of {several.size} parameters, so means "
            "and standard deviations describe no draw; if components can switch labels, align() them"
        )


def _differences(own: Dataset) -> Iterator[str]:
    """Lines on means and standard deviations that differ from the reference, with the parameter that differs most."""
    error, ratio = own["mean_error"], own["sd_ratio"]
    off = (abs(error) > MAX_MEAN_ERROR_SD) & (abs(error) > MIN_STANDARD_ERRORS * own["mean_error_mcse"])
    if off.any():
        value, where = _largest_parameter(abs(error).where(off))
        yield f"means are off by up to {value:.2g} sd ({where})"
    narrow = (ratio < MIN_SD_RATIO) & (1 - ratio > MIN_STANDARD_ERRORS * own["sd_ratio_mcse"])
    if narrow.any():
        value, where = _largest_parameter(-ratio.where(narrow))
        covered = float(own["coverage"].sel(parameter=where))
        interval = f"its 90 % interval holds {100 * covered:.0f} %"
        yield f"too narrow: sd down to {-value:.2g} of the reference ({where}), {interval}"
    wide = (ratio > MAX_SD_RATIO) & (ratio - 1 > MIN_STANDARD_ERRORS * own["sd_ratio_mcse"])
    if wide.any():
        value, where = _largest_parameter(ratio.where(wide))
        yield f"too wide: sd up to {value:.2g} of the reference ({where})"


def _approximation(tree: DataTree, row: Dataset) -> Iterator[str]:
    """Lines on the importance ratios and the ELBO of an approximation with a density."""
    k, gap, error = (float(row[name]) for name in ("k_hat", "elbo_gap", "elbo_gap_mcse"))
    if is_weighted(tree):
        size = tree.attrs["importance_ess"]
        yield f"k-hat {k:.2f} of the weights that its draws were resampled by; they are worth {size:,.0f} of their own"
        return
    if np.isfinite(k) and not ratios_differ(tree):
        yield f"k-hat {k:.2f}, of importance ratios that hardly differ where it has draws"
    elif k > MAX_K_HAT:
        yield f"k-hat {k:.2f}: part of the posterior is missed, and importance weights cannot correct that"
    elif k > MAX_GOOD_K_HAT:
        yield f"k-hat {k:.2f}: importance weights could correct it, with many draws"
    elif np.isfinite(k):
        yield f"k-hat {k:.2f}: close enough for importance weights to correct"
    if gap > (MIN_STANDARD_ERRORS * error if error > 0 else 0):
        yield f"ELBO {gap:.3g} below the log evidence, which is the divergence KL(approximation | posterior)"


def _evidence(tree: DataTree, reference: DataTree) -> Iterator[str]:
    """A line on an estimate of the evidence, and on its distance from that of the reference, where both are known."""
    value, error = (tree.attrs.get(name, np.nan) for name in ("log_evidence", "log_evidence_se"))
    if not np.isfinite(value) or not np.isfinite(error):
        return
    decimals = int(np.clip(np.ceil(-np.log10(error)), 0, 4)) + 1 if error > 0 else 4
    text = f"log evidence {value:.{decimals}f} ± {error:.{decimals}f}"
    known = reference.attrs.get("log_evidence", np.nan)
    total = np.hypot(error, reference.attrs.get("log_evidence_se", 0.0))
    far = np.isfinite(known) and abs(value - known) > MIN_STANDARD_ERRORS * total
    yield f"{text}, which is not that of the reference" if far else text


def _largest_parameter(values: DataArray) -> tuple[float, str]:
    """The largest value and the parameter that has it."""
    where = int(np.argmax(values.fillna(-np.inf).values))
    return float(values[where]), str(values["parameter"].values[where])
