"""Figures of Gaussian processes: Dataset of `process_at` in, matplotlib Axes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.plots.style import COLOURS, legend_above, new_figure, one_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray
    from xarray import DataArray, Dataset

SDS_OF_50_PERCENT_BAND = 0.6745
"""The standard deviations to either side of the mean between which a Normal has 50 %."""
SDS_OF_90_PERCENT_BAND = 1.6449
"""The standard deviations to either side of the mean between which a Normal has 90 %."""


def plot_process(
    predictions: Dataset,
    x: ArrayLike,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    functions: DataArray | None = None,
    site: str = "f",
    response: str = "y",
    ax: Axes | None = None,
) -> Axes:
    """Draw a process of one input: mean, 50 % and 90 % bands, and lines for the 90 % band of a new measurement.

    predictions: from `process_at`, with its `site` and, if there are any, measurements under the name `response`;
    Normal bands, exact for given parameters. x: its inputs (row,), in any order. data: inputs and values of what was
    measured. functions: draws (..., row) to be shown as thin lines, from `process_draws` for example; all of them.
    Raises ValueError for inputs that are not one column with a value for each row.
    """
    inputs = _inputs(predictions, x, site)
    if inputs.shape[1] != 1:
        raise ValueError(f"There are {inputs.shape[1]} inputs; plot_process shows one, plot_process_map two.")
    ax = one_axis() if ax is None else ax
    order = np.argsort(inputs[:, 0], kind="stable")
    sorted_inputs = inputs[order, 0]
    mean, sd = (predictions[name].values[order] for name in (site, f"{site}_sd"))
    for width, alpha, label in (
        (SDS_OF_90_PERCENT_BAND, 0.2, f"90 % band of {site}"),
        (SDS_OF_50_PERCENT_BAND, 0.35, f"50 % band of {site}"),
    ):
        ax.fill_between(
            sorted_inputs, mean - width * sd, mean + width * sd, color=COLOURS[0], alpha=alpha, linewidth=0, label=label
        )
    if f"{response}_sd" in predictions:
        centre, spread = (predictions[name].values[order] for name in (response, f"{response}_sd"))
        for sign in (-1, 1):
            line_label = f"90 % band of {response}" if sign < 0 else None
            ax.plot(
                sorted_inputs,
                centre + sign * SDS_OF_90_PERCENT_BAND * spread,
                "--",
                color="0.45",
                linewidth=0.9,
                label=line_label,
            )
    if functions is not None:
        draws = functions.transpose(..., "row").values.reshape(-1, len(order))
        for index, values in enumerate(draws):
            line_label = None if index else f"draws of {site}"
            ax.plot(sorted_inputs, values[order], color=COLOURS[1], linewidth=0.8, alpha=0.7, label=line_label)
    ax.plot(sorted_inputs, mean, color=COLOURS[0], linewidth=1.8, label=f"mean of {site}")
    if data is not None:
        measured, values = _measured(data, 1)
        ax.plot(measured[:, 0], values, "o", color="black", markersize=3, label="data")
    ax.spines[["right", "top"]].set_visible(False)
    legend_above(ax)
    return ax


def plot_process_map(
    predictions: Dataset,
    x: ArrayLike,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    site: str = "f",
    axes: Sequence[Axes] | None = None,
) -> NDArray[Any]:
    """Draw a process of two inputs: its mean and its standard deviation as colours, with the data on top.

    predictions: from `process_at`. x: its inputs (row, 2), on a grid or not, but not all on one line; an xarray
    DataArray names the axes. data: inputs (row, 2) and values of what was measured, which have the colours of the
    mean. Returns the two axes.
    Raises ValueError for other inputs than these, and for fewer than two axes.
    """
    inputs = _inputs(predictions, x, site)
    if inputs.shape[1] != 2:
        raise ValueError(f"The inputs have shape {inputs.shape}; expected ({len(inputs)}, 2).")
    if np.linalg.matrix_rank(inputs - inputs.mean(0)) < 2:
        raise ValueError("All inputs lie on one line; colours need inputs that cover an area.")
    if axes is not None and len(axes) < 2:
        raise ValueError(f"There are two panels but only {len(axes)} axes.")
    panels = new_figure(8.6, 3.4).subplots(1, 2, sharex=True, sharey=True) if axes is None else np.asarray(axes)[:2]
    measured, values = _measured(data, 2) if data is not None else (np.empty((0, 2)), np.empty(0))
    mean, sd = (predictions[name].values for name in (site, f"{site}_sd"))
    both = np.concatenate([mean, values[np.isfinite(values)]])
    limits: list[dict[str, Any]] = [{"vmin": both.min(), "vmax": both.max()}, {"vmin": 0.0}]
    for axis, shown, limit, colours, title in zip(
        panels, (mean, sd), limits, ("cividis", "Blues"), (f"mean of {site}", f"sd of {site}"), strict=True
    ):
        surface = axis.tripcolor(*inputs.T, shown, shading="gouraud", cmap=colours, rasterized=True, **limit)
        axis.figure.colorbar(surface, ax=axis)
        axis.set_title(title, fontsize="medium")
        across, up = _input_names(x)
        axis.set(xlabel=across, ylabel=up)
    if len(values):
        style: dict[str, Any] = {"s": 26, "linewidth": 0.8, "label": "data"}
        panels[0].scatter(*measured.T, c=values, cmap="cividis", edgecolor="white", **limits[0], **style)
        panels[1].scatter(*measured.T, facecolor="none", edgecolor="black", **style)
    return panels


def _inputs(predictions: Dataset, x: ArrayLike, site: str) -> NDArray[Any]:
    """The inputs as (row, input), once they are known to be those of the predictions."""
    if lost := [name for name in (site, f"{site}_sd") if name not in predictions]:
        raise ValueError(f"The predictions have no {lost}, only {sorted(map(str, predictions))}.")
    inputs = np.asarray(x, dtype=float)
    rows = predictions[site].sizes["row"]
    if inputs.ndim not in (1, 2) or len(inputs) != rows:
        raise ValueError(f"The inputs have shape {inputs.shape}, but the predictions have {rows} rows.")
    return inputs.reshape(rows, -1)


def _measured(data: tuple[ArrayLike, ArrayLike], columns: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The inputs (row, column) and the values (row,) of the data, once their shapes are known to fit."""
    inputs, values = (np.asarray(each, dtype=float) for each in data)
    if values.ndim != 1 or inputs.size != columns * len(values):
        raise ValueError(
            f"The data have inputs of shape {inputs.shape} and values of shape {values.shape}; "
            f"expected inputs (row, {columns}) and values (row,)."
        )
    return inputs.reshape(-1, columns), values


def _input_names(x: Any) -> Sequence[str]:
    """The labels of two inputs, numbered where they have none."""
    dims: tuple[Any, ...] = getattr(x, "dims", ())
    labelled = len(dims) == 2 and dims[1] in x.coords
    return [str(name) for name in x.coords[dims[1]].values] if labelled else ["input 0", "input 1"]
