"""Figures of forecasts: a series and what may follow it, along its own axis of times."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.plots.style import COLOURS, date_axis, legend_above, one_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from xarray import DataArray, DataTree

BANDS = {0.9: 0.2, 0.5: 0.35}
"""The probabilities of bands, and how opaque they are."""


def plot_forecast(tree: DataTree, site: str = "y", sequence: Hashable | None = None, ax: Axes | None = None) -> Axes:
    """Draw an observed series and its forecast: the mean over draws, with bands of 50 % and 90 %.

    tree: from `bl.states.forecast`. site: of the observations, one number a step. sequence: the name of the series,
    where there are several. Dates, where the series has them, are on the axis.
    Raises ValueError for a tree without the forecast of this site, for several series and no name, or a name that is
    not there, and for vectors of observations.
    """
    for group in ("observed_data", "predictions"):
        if group not in tree.children or site not in tree[group].data_vars:
            raise ValueError(f"The tree has no site {site!r} in group {group}; expected that of bl.states.forecast.")
    observed = _one_series(tree["observed_data"].to_dataset()[site], sequence)
    drawn = _one_series(tree["predictions"].to_dataset()[site], sequence)
    ax = one_axis() if ax is None else ax
    past, steps = _positions(ax, observed[observed.dims[-1]], drawn[drawn.dims[-1]])
    ax.plot(past, observed.values, color="0.25", marker=".", markersize=4, linewidth=0.9, label="observed")
    for probability, alpha in BANDS.items():
        low, high = drawn.quantile([(1 - probability) / 2, (1 + probability) / 2], ("chain", "draw")).values
        ax.fill_between(steps, low, high, color=COLOURS[0], alpha=alpha, linewidth=0, label=f"{probability:.0%} band")
    ax.plot(steps, drawn.mean(("chain", "draw")).values, color=COLOURS[0], linewidth=1.8, label="mean of the forecast")
    ax.set_ylabel(site)
    ax.spines[["right", "top"]].set_visible(False)
    legend_above(ax)
    return ax


def _positions(ax: Axes, past: DataArray, steps: DataArray) -> tuple[NDArray[Any], NDArray[Any]]:
    """The positions of steps: their dates or numbers, or, if these are text, their places."""
    ax.set_xlabel(str(past.dims[0]))
    if past.dtype.kind == "M":
        date_axis(ax)
    if past.dtype.kind in "iufM" and steps.dtype.kind == past.dtype.kind:
        return past.values, steps.values
    return np.arange(len(past)), len(past) + np.arange(len(steps))


def _one_series(values: DataArray, sequence: Hashable | None) -> DataArray:
    """The values ([chain, draw,] step) of one series."""
    dims = [dim for dim in values.dims if dim not in ("chain", "draw")]
    if len(dims) == 2:
        names = values[dims[0]].values.tolist()
        if sequence is None and len(names) > 1:
            raise ValueError(f"There are {len(names)} series; name one of {names[:5]}.")
        if sequence is not None and sequence not in names:
            raise ValueError(f"There is no series {sequence!r}; the first ones are {names[:5]}.")
        return values.isel({dims[0]: 0 if sequence is None else names.index(sequence)}, drop=True)
    if len(dims) != 1:
        raise ValueError(f"The site has dimensions {dims}; the figure shows one number a step.")
    return values
