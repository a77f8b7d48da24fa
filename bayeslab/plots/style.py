"""What all figures share: a style sheet, colours, line styles, and figures of a size."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

STYLE_SHEET = Path(__file__).with_name("bayeslab.mplstyle")
"""The style of figures in reports, notebooks and pages."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""The colours of Okabe and Ito (2008), without yellow: they are told apart with any colour vision."""
GREY = "0.82"
"""The colour of what other lines are compared with."""
LINE_STYLES = ("-", "--", ":", "-.")
"""The line styles of methods, for prints in black and white."""


def styled() -> AbstractContextManager[None]:
    """A context in which figures have the style of bayeslab: 10 points, 110 dots an inch, colours that are told apart
    with any colour vision. Settings of matplotlib are as before at its end."""
    from matplotlib import style

    return style.context(STYLE_SHEET)


def use_style() -> None:
    """Give all further figures of this process the style of bayeslab, as notebooks do at their beginning.

    It changes `matplotlib.rcParams`, which nothing else in bayeslab does.
    """
    from matplotlib import style

    style.use(STYLE_SHEET)


def line_styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The colour and the line style of each method; lines differ too, for prints in black and white."""
    return {name: (COLOURS[i % len(COLOURS)], LINE_STYLES[i % len(LINE_STYLES)]) for i, name in enumerate(names)}


def panel_grid(number: int) -> NDArray[Any]:
    """A grid of axes, at most four side by side, without the unused ones."""
    columns = min(4, number)
    rows = -(-number // columns)
    axes = new_figure(max(5.2, 2.6 * columns), 1.7 * rows + 0.5).subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[number:]:
        axis.remove()
    return axes[:number]


def two_axes(lines: float) -> NDArray[Any]:
    """Two axes side by side, high enough for some lines of text."""
    return new_figure(8.0, 1.4 + 0.26 * lines).subplots(1, 2, sharey=True)


def one_axis() -> Axes:
    """The axes of a new figure of the usual size."""
    return new_figure(6.4, 3.6).subplots()


def new_figure(width: float, height: float) -> Figure:
    """A figure of a size in inches whose parts make room for each other."""
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return pyplot.figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))


def legend(axes: NDArray[Any], above: bool) -> None:
    """Write one legend for all axes: above the figure where it is ours, else inside the first axes."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, names = axis.get_legend_handles_labels()
        entries |= {name: handle for name, handle in zip(names, handles, strict=True) if name not in entries}
    options: dict[str, Any] = {"handles": list(entries.values()), "labels": list(entries), "frameon": False}
    if above:
        figure = axes[0].figure
        figure.legend(loc="outside upper center", ncols=min(int(figure.get_figwidth() / 1.6), len(entries)), **options)
    else:
        axes[0].legend(fontsize="small", **options)


def legend_above(ax: Axes) -> None:
    """Write the legend above the axes, where it hides nothing, in as many columns as fit."""
    handles, names = ax.get_legend_handles_labels()
    if not handles:
        return
    inches = ax.get_window_extent().width / ax.figure.dpi
    columns = max(1, int(inches / (0.5 + 0.07 * max(map(len, names)))))
    ax.legend(
        handles, names, frameon=False, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.1
    )


def date_axis(ax: Axes) -> None:
    """Write dates below the axes as briefly as they can be told, so that they do not meet."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
