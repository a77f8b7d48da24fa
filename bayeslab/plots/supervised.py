"""Figures of regressions and classifiers: coefficients along a penalty, boundaries between classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayeslab.plots.style import COLOURS, LINE_STYLES, one_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike
    from xarray import Dataset

LABELS_APART = 0.05
"""Labels of lines are this share of the height apart, at least."""


def plot_penalty_path(path: Dataset, site: str = "w", ax: Axes | None = None, max_labels: int = 12) -> Axes:
    """Draw the mode of every coefficient along a penalty, on a logarithmic axis, with its name at the line's end.

    path: from `bayeslab.supervised.penalty_path`. site: the coefficients (covariate,). The end that is labelled is that
    where coefficients are largest; of more lines than max_labels those that end furthest from zero have a name.
    Points where the optimisation has not converged are left out. Raises ValueError for a site that is not there or has
    another number of axes, and for values of the argument that are not positive.
    """
    if site not in path:
        raise ValueError(f"the path has no site '{site}', only {[str(name) for name in path.data_vars]}.")
    if path[site].ndim != 2:
        raise ValueError(f"site '{site}' has {path[site].ndim - 1} axes; expected one, of coefficients.")
    argument, dim = (str(name) for name in path[site].dims)
    values, grid = path[site].values, path[argument].values.astype(float)
    if not (grid > 0).all():
        raise ValueError(f"values of '{argument}' are not positive, and the axis is logarithmic.")
    ax = one_axis() if ax is None else ax
    shown = path["converged"].values.astype(bool)
    names = [str(name) for name in path[dim].values] if dim in path.coords else [str(i) for i in range(values.shape[1])]
    for position, name in enumerate(names):
        style = LINE_STYLES[position // len(COLOURS) % len(LINE_STYLES)]
        ax.plot(
            grid[shown],
            values[shown, position],
            color=COLOURS[position % len(COLOURS)],
            linestyle=style,
            linewidth=1.6,
            label=name,
        )
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_xscale("log")
    size = np.abs(values).sum(1)
    end = int(np.argmax([size[grid.argmin()], size[grid.argmax()]]))
    final = values[grid.argmax() if end else grid.argmin()]
    top = np.argsort(-np.abs(final), kind="stable")[:max_labels]
    _label_ends(ax, [names[i] for i in top], final[top], [COLOURS[i % len(COLOURS)] for i in top], end)
    ax.set(xlabel=argument, ylabel=site)
    ax.spines[["right", "top"]].set_visible(False)
    return ax


def plot_decision_boundary(
    across: ArrayLike, up: ArrayLike, probability: ArrayLike, ax: Axes | None = None, level: float = 0.5
) -> Axes:
    """Draw the probability of a class over a plane, the boundary at a level, and how sure the posterior is of it.

    across: (column,) and up: (row,), the coordinates of a grid. probability: (draw, row, column), or with more axes of
    draws before; from `bayeslab.supervised.class_probability_draws` at the points of the grid. The colour is the mean
    over draws, the line where it is `level`, and inside the grey band 5 % to 95 % of the draws are above the level.
    Raises ValueError for other shapes.
    """
    across, up, drawn = np.asarray(across, float), np.asarray(up, float), np.asarray(probability, float)
    if drawn.ndim < 3 or drawn.shape[-2:] != (len(up), len(across)):
        raise ValueError(
            f"The probability has shape {drawn.shape}; expected draws before the {len(up)} rows and "
            f"{len(across)} columns of the grid."
        )
    drawn = drawn.reshape(-1, *drawn.shape[-2:])
    ax = one_axis() if ax is None else ax
    mean, above = drawn.mean(0), (drawn > level).mean(0)
    ax.contourf(across, up, mean, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.35)
    if above.min() < 0.95 and above.max() > 0.05:
        ax.contourf(across, up, above, levels=[0.05, 0.95], colors=["0.35"], alpha=0.35)
    if mean.min() < level < mean.max():
        ax.contour(across, up, mean, levels=[level], colors=["0.1"], linewidths=1.6)
    ax.spines[["right", "top"]].set_visible(False)
    return ax


def _label_ends(ax: Axes, names: list[str], heights: np.ndarray, colours: list[str], end: int) -> None:
    """Write the names beside the ends of lines, moved apart where they would overlap. end: 1 on the right, 0 left."""
    low, high = ax.get_ylim()
    gap = LABELS_APART * (high - low)
    order = np.argsort(heights)
    placed = heights[order].astype(float)
    for position in range(1, len(placed)):
        placed[position] = max(placed[position], placed[position - 1] + gap)
    placed -= max(0.0, placed[-1] - high) if len(placed) else 0.0
    for position in range(len(placed) - 2, -1, -1):
        placed[position] = min(placed[position], placed[position + 1] - gap)
    for height, index in zip(placed, order, strict=True):
        ax.annotate(
            names[index],
            (float(end), height),
            (4 if end else -4, 0),
            xycoords=ax.get_yaxis_transform(),
            textcoords="offset points",
            color=colours[index],
            fontsize="small",
            ha="left" if end else "right",
            va="center",
            annotation_clip=False,
        )
    if not end:
        ax.yaxis.tick_right()
        ax.yaxis.set_label_position("right")
        ax.spines["right"].set_visible(True)
        ax.spines["left"].set_visible(False)
