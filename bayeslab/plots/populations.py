"""Figures of population structure: Datasets in, matplotlib Axes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.plots.style import COLOURS, new_figure
from bayeslab.plots.topics import HATCHES, short_label
from bayeslab.populations.ancestry import group_labels, match_populations

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from xarray import Dataset

    Array = NDArray[Any]

ORDERS = ("groups", "ancestry", "given")
"""The orders of individuals that a figure may have."""
MAX_INDIVIDUALS_NAMED = 40
"""The most individuals that have their names below and intervals as lines; of more, lines connect the ends."""
LETTER_WIDTH_INCHES = 0.075
"""The width of a letter of small text, in inches."""
LINE_HEIGHT_INCHES = 0.14
"""The height of a line of small text, in inches."""
FIGURE_WIDTH_INCHES = 11.0
"""The width of a figure of many individuals, in inches."""


def plot_ancestry(
    summaries: Dataset | Mapping[int, Dataset],
    groups: Sequence[str] | None = None,
    order: str = "groups",
    intervals: bool = False,
    axes: Sequence[Axes] | None = None,
    colours: Mapping[int, Array] | None = None,
) -> Array:
    """Draw mean ancestry as stacked bars, a column an individual, a row of the figure for each number of populations K.

    summaries: from `ancestry_summary`, or several by K, whose colours are those of `match_populations`. Columns have
        one order in all rows, that of the largest K.
    groups: the label of every individual (individual,), such as where it was sampled, in order of first appearance.
        Names that find no room are left out, and the figure says so.
    order: "groups" puts individuals of a group together, in order of their share of its largest population; "ancestry",
        and so does "groups" without any, puts those together whose largest share is of the same population, in order of
        this share; "given" leaves them as they are.
    intervals: mark that of the largest share of every individual, which is then at the bottom of its bar.
    colours: numbers (population,) by K, for a figure of some K beside another of more; by default as said above.
    Up to 40 individuals have their names below, and groups are above. Returns the axes (K,).
    Raises ValueError for groups of another length, an unknown order or one that takes groups apart, for summaries that
    `match_populations` refuses, and for too few axes.
    """
    from xarray import Dataset

    by_number = {summaries.sizes.get("population", 0): summaries} if isinstance(summaries, Dataset) else summaries
    colours = match_populations(by_number) if colours is None else colours
    numbers = sorted(by_number)
    largest = by_number[numbers[-1]]
    labels = group_labels(largest, groups)
    columns = _individual_order(_mean_ancestry(largest), labels, order)
    group_runs = None if labels is None else _group_runs(labels[columns], order)
    names = (
        [short_label(name) for name in largest["individual"].values[columns]]
        if len(columns) <= MAX_INDIVIDUALS_NAMED
        else []
    )
    panels = (
        ancestry_panels(len(numbers), names, group_runs) if axes is None else np.asarray(axes, dtype=object).ravel()
    )
    if len(panels) < len(numbers):
        raise ValueError(f"There are {len(numbers)} numbers of populations but only {len(panels)} axes.")
    panels = panels[: len(numbers)]
    for axis, number in zip(panels, numbers, strict=True):
        _draw_bars(axis, by_number[number].isel(individual=columns), colours[number], intervals)
        axis.set(xlim=(0, len(columns)), ylim=(0, 1), xticks=[], yticks=[0, 0.5, 1], ylabel=f"K = {number}")
        axis.tick_params(labelsize="small")
        axis.spines[:].set_visible(False)
        if group_runs is not None:
            axis.vlines(np.cumsum(group_runs[1])[:-1], 0, 1, color="black", linewidth=1.0)
    notes = _label_columns(panels, names, group_runs, len(columns))
    if intervals:
        notes.append(f"lines: {largest.attrs['probability']:.0%} intervals of the largest shares")
    panels[-1].set_xlabel("\n".join(notes), fontsize="small")
    if axes is None and len(numbers) == 1 and numbers[0] > 1:
        population_legend(panels[0], largest, colours[numbers[0]])
    return panels


def plot_divergence(
    divergence: Dataset, measure: str = "distance", colours: Sequence[int] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a measure of divergence of every two populations, with its sd if known, and their colours on the diagonal.

    divergence: from `divergence`; its expected heterozygosity is in the labels of the rows.
    measure: "distance" or "fst". colours: numbers (population,) from `match_populations`; by default 0, 1, ... as in
        `plot_ancestry` of one summary.
    Raises ValueError for another measure, and for colours of another number.
    """
    from matplotlib.patches import Rectangle

    names = {"distance": "net nucleotide distance", "fst": "$F_{ST}$"}
    if measure not in names:
        raise ValueError(f"measure is {measure!r}; expected one of {list(names)}.")
    mean, sd = (divergence[name].values for name in (measure, f"{measure}_sd"))
    size = len(mean)
    numbers = range(size) if colours is None else colours
    if len(numbers) != size:
        raise ValueError(f"There are {len(numbers)} colours for {size} populations.")
    off_diagonal = ~np.eye(size, dtype=bool)
    top = max(float(mean[off_diagonal].max(initial=0.0)), np.finfo(float).tiny)
    ax = new_figure(max(3.8, 1.9 + 0.72 * size), max(2.8, 1.2 + 0.5 * size)).subplots() if ax is None else ax
    ax.imshow(np.where(off_diagonal, mean, np.nan), cmap="Greys", vmin=0, vmax=2.5 * top, aspect="auto")
    for i, j in np.argwhere(off_diagonal):
        spread = f"\n± {sd[i, j]:.3f}" if sd[i, j] > 0 else ""
        ax.text(j, i, f"{mean[i, j]:.3f}{spread}", ha="center", va="center", fontsize="small")
    for position, number in enumerate(numbers):
        ax.add_patch(Rectangle((position - 0.5, position - 0.5), 1, 1, linewidth=0, **_patch_style(number)))
    labels = [short_label(name) for name in divergence["population"].values]
    heterozygosity = divergence["heterozygosity"].values
    ax.set_xticks(range(size), labels)
    ax.set_yticks(range(size), [f"{name} ({h:.2f})" for name, h in zip(labels, heterozygosity, strict=True)])
    ax.set(xlabel="population", ylabel="population\n(expected heterozygosity)")
    ax.set_title(names[measure], fontsize="medium")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _patch_style(number: int) -> dict[str, Any]:
    """The colour and the hatch of a population, as arguments of a patch."""
    hatch = HATCHES[number // len(COLOURS) % len(HATCHES)]
    return {"facecolor": COLOURS[number % len(COLOURS)], "hatch": hatch, "edgecolor": "white"}


def _mean_ancestry(summary: Dataset) -> Array:
    """The mean ancestry (individual, population)."""
    return summary["mean"].transpose("individual", "population").values


def _individual_order(mean: Array, labels: Array | None, order: str) -> Array:
    """The indices of the individuals in the order of the figure."""
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; expected one of {list(ORDERS)}.")
    if order == "given":
        return np.arange(len(mean))
    if order == "ancestry" or labels is None:
        return np.lexsort((-mean.max(1), mean.argmax(1)))
    columns = []
    for label in dict.fromkeys(labels):
        members = np.flatnonzero(labels == label)
        share = mean[members, mean[members].sum(0).argmax()]
        columns.append(members[np.argsort(-share, kind="stable")])
    return np.concatenate(columns)


def _group_runs(labels: Array, order: str) -> tuple[Array, Array]:
    """The names of groups in their order, and how many individuals each has; raises ValueError for one taken apart."""
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    names, number = np.unique(labels[starts], return_counts=True)
    if (number > 1).any():
        name = str(names[number.argmax()])
        raise ValueError(
            f"order {order!r} takes the individuals of group {name!r} apart; take order 'groups', or no groups."
        )
    return labels[starts], np.diff(np.append(starts, len(labels)))


def _draw_bars(axis: Axes, summary: Dataset, colours: Array, intervals: bool) -> None:
    """Draw every population as one patch of steps over all individuals, from the ground up, behind those below it.

    With intervals the largest shares come first, as patches in front.
    """
    height = np.empty_like(_mean_ancestry(summary))
    height[:, colours] = _mean_ancestry(summary)  # in order of colours
    edges, largest = np.arange(len(height) + 1), height.argmax(1)
    below = np.where(intervals & (largest[:, None] == np.arange(height.shape[1])), height, 0)
    above = below.sum(1, keepdims=True) + np.cumsum(height - below, axis=1)
    for layer in (above, below)[: 1 + intervals]:
        for number in reversed(range(len(colours))):
            axis.stairs(layer[:, number], edges, fill=True, linewidth=0, **_patch_style(number))
    if intervals:
        is_largest = colours == largest[:, None]
        low, high = (summary[name].transpose("individual", "population").values[is_largest] for name in ("low", "high"))
        _draw_intervals(axis, low, high)


def _draw_intervals(axis: Axes, low: Array, high: Array) -> None:
    """Draw the intervals (individual,), in lines that can be seen on any colour, black too."""
    edges = np.arange(len(low) + 1)
    if len(low) > MAX_INDIVIDUALS_NAMED:
        for ends in (low, high):
            axis.stairs(ends, edges, baseline=None, color="white", linewidth=0.6)
        return
    for colour, width in (("white", 2.2), ("0.1", 1.1)):
        axis.vlines(edges[:-1] + 0.5, low, high, color=colour, linewidth=width)


def _label_columns(
    panels: Array, names: Sequence[str], group_runs: tuple[Array, Array] | None, number: int
) -> list[str]:
    """Write the names of individuals and of groups at the axes; returns notes on what a reader should know besides."""
    lowest = panels[-1]
    inches = lowest.bbox.width / lowest.figure.dpi / number
    if names:
        upright = LETTER_WIDTH_INCHES * max(map(len, names)) > 0.8 * inches
        lowest.set_xticks(np.arange(number) + 0.5, names, rotation=90 if upright else 0)
        lowest.tick_params(axis="x", length=0)
    if group_runs is None:
        return [] if names else [f"{number:,} individuals"]
    return _name_groups(panels[0].secondary_xaxis("top") if names else lowest, *group_runs, inches)


def _name_groups(axis: Any, groups: Array, sizes: Array, inches: float) -> list[str]:
    """Write names at the middle of their groups, upright where they need it, without those that still find no room.

    inches: the width of an individual. Returns a note where names are left out.
    """
    names, middle = [short_label(name) for name in groups], np.cumsum(sizes) - sizes / 2
    widths = LETTER_WIDTH_INCHES * np.array([len(name) + 1 for name in names])
    upright = (np.diff(middle) * inches < (widths[1:] + widths[:-1]) / 2).any()
    named: list[int] = []
    for index in np.argsort(-sizes, kind="stable"):
        if not upright or (abs(middle[named] - middle[index]) * inches >= LINE_HEIGHT_INCHES).all():
            named.append(index)
    axis.set_xticks(middle[named], [names[index] for index in named], rotation=90 if upright else 0)
    axis.tick_params(axis="x", length=0, labelsize="small")
    return [f"names of {len(named)} of {len(names)} groups"] if len(named) < len(names) else []


def ancestry_panels(rows: int, names: Sequence[str], group_runs: tuple[Array, Array] | None) -> Array:
    """The axes of a new figure, one below the other, with room for labels."""
    width = max(4.0, 1.2 + 0.3 * len(names)) if names else FIGURE_WIDTH_INCHES
    labels = [*names, *(group_runs[0] if group_runs is not None else [])]
    room = LETTER_WIDTH_INCHES * min(28, max((len(str(label)) for label in labels), default=0))
    height = (1.9 if rows == 1 else 0.95 * rows) + 0.5 + room
    return new_figure(width, height).subplots(rows, 1, squeeze=False).ravel()


def population_legend(axis: Axes, summary: Dataset, colours: Array) -> None:
    """Write the names of populations and their colours above the figure."""
    from matplotlib.patches import Patch

    names = [short_label(name) for name in summary["population"].values]
    entries = [Patch(label=name, **_patch_style(number)) for number, name in zip(colours, names, strict=True)]
    room = axis.figure.bbox.width / axis.figure.dpi / (0.55 + LETTER_WIDTH_INCHES * max(map(len, names)))
    columns = max(1, min(len(names), int(room)))
    axis.figure.legend(handles=entries, loc="outside upper center", ncols=columns, frameon=False, fontsize="small")
