"""The figure of a calibration: distribution functions of the ranks, in the band of right methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.calibration.rank_uniformity import SIGNIFICANCE_LEVEL, is_varying, ranks_of, simultaneous_band
from bayeslab.plots.style import COLOURS, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from xarray import DataTree

MAX_PANELS_PER_ROW = 3
"""The most panels side by side."""


def plot_calibration(
    checks: DataTree,
    var_names: Sequence[str] | None = None,
    level: float = SIGNIFICANCE_LEVEL,
    max_panels: int = 9,
    axes: Sequence[Axes] | None = None,
) -> NDArray[Any]:
    """Draw the distribution function of the ranks minus that of a right method, one panel a site, one line an element.

    checks: of `sbc`. level: the probability that a line of a right method leaves the band of its panel somewhere.
    A line above zero on the left says that draws are too high; an S that falls on the right that they are too narrow.
    axes: to draw on, one a panel; by default those of a new figure.
    Returns the axes (panel,). Raises ValueError for names that have no ranks, where none vary, and for fewer axes than
    panels.
    """
    by_site = {name: values[:, is_varying(values)] for name, values in ranks_of(checks, var_names).items()}
    ranks = {name: values for name, values in by_site.items() if values.size}
    if not ranks:
        raise ValueError("plot_calibration got no ranks that vary, so there is nothing to draw.")
    shown = list(ranks)[:max_panels]
    panels = _panels(len(shown)) if axes is None else np.asarray(axes, dtype=object).ravel()
    if len(panels) < len(shown):
        raise ValueError(f"there are {len(shown)} panels but only {len(panels)} axes.")
    for axis, name in zip(panels, shown, strict=False):
        number, elements = ranks[name].shape
        times = np.arange(1, number) / number
        low, high = simultaneous_band(number, level / elements)
        axis.fill_between(times, low / number - times, high / number - times, color=GREY, linewidth=0)
        for column in ranks[name].T:
            counts = np.searchsorted(np.sort(column), times, side="right")
            axis.plot(times, counts / number - times, color=COLOURS[0], linewidth=1, alpha=max(0.3, 1 / elements))
        axis.set_title(name, fontsize="medium")
        axis.locator_params(nbins=4)
        axis.spines[["right", "top"]].set_visible(False)
    panels[0].set_ylabel("share of ranks below\nminus expected")
    panels[(len(shown) - 1) // MAX_PANELS_PER_ROW * MAX_PANELS_PER_ROW if axes is None else 0].set_xlabel("rank")
    return panels[: len(shown)]


def _panels(number: int) -> NDArray[Any]:
    """The axes of a new figure, at most three side by side, without the unused ones."""
    from matplotlib import pyplot

    columns = min(MAX_PANELS_PER_ROW, number)
    rows = -(-number // columns)
    _, axes = pyplot.subplots(
        rows, columns, figsize=(3 * columns, 2.3 * rows), layout="constrained", sharex=True, squeeze=False
    )
    for axis in axes.ravel()[number:]:
        axis.remove()
    return axes.ravel()[:number]
