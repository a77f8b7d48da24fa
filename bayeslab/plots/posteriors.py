"""The figures that ArviZ lacks: DataTree in, matplotlib Axes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.plots.style import COLOURS, GREY, legend, line_styles, one_axis, panel_grid, two_axes
from bayeslab.results.parameters import stacked_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset, DataTree


def plot_posteriors(
    trees: Mapping[str, DataTree],
    var_names: Sequence[str] | None = None,
    axes: Sequence[Axes] | None = None,
    max_panels: int = 12,
) -> NDArray[Any]:
    """Draw the marginals of every scalar parameter, one panel each, all methods on top of each other.

    The exact posterior (attribute method "Exact", else the first tree) is filled grey, a point
    estimate is a vertical line. Further parameters than max_panels are left out, and the figure says so.
    Returns the axes (panel,). Raises ValueError for unknown names and for too few axes.
    """
    if not trees or max_panels < 1:
        raise ValueError(f"plot_posteriors needs a result and a panel, got {len(trees)} results and {max_panels=}.")
    draws = {name: _parameters(tree, var_names) for name, tree in trees.items()}
    labels = list(dict.fromkeys(str(p) for parameters in draws.values() for p in parameters["parameter"].values))
    shown = labels[:max_panels]
    panels = panel_grid(len(shown)) if axes is None else np.asarray(axes, dtype=object).ravel()
    if len(panels) < len(shown):
        raise ValueError(f"There are {len(shown)} parameters but only {len(panels)} axes.")
    exact_ones = [name for name, tree in trees.items() if tree.attrs.get("method") == "Exact"]
    exact = (exact_ones or list(trees))[0]
    styles = line_styles([name for name in trees if name != exact])
    for axis, label in zip(panels, shown, strict=False):
        for name, parameters in draws.items():
            if label in parameters["parameter"]:
                values = parameters.sel(parameter=label).values.ravel()
                _draw_marginal(axis, values, name, styles.get(name))
        axis.set_title(label, fontsize="medium", parse_math=False)
        axis.set_yticks([])
        axis.set_ylim(bottom=0)
        axis.locator_params(axis="x", nbins=4)
        axis.spines[["left", "right", "top"]].set_visible(False)
    legend(panels[: len(shown)], axes is None)
    if axes is None and len(labels) > len(shown):
        panels[0].figure.supxlabel(f"the first {len(shown)} of {len(labels)} parameters", fontsize="small")
    return panels[: len(shown)]


def plot_elbo(tree: DataTree, ax: Axes | None = None) -> Axes:
    """Draw the ELBO of every step, smoothed on top, and the step at which the optimisation stopped, for every start.

    Reads variable elbo (chain, step) or (chain, step, start) of group history; the log evidence is drawn where it is
    known. The early climb may leave the picture below. Raises ValueError where there is no such history.
    """
    if "history" not in tree.children or "elbo" not in tree["history"]:
        raise ValueError("The tree has no ELBO in a group 'history'; only SVI and MeanField record one.")
    ax = one_axis() if ax is None else ax
    runs = tree["history"]["elbo"].transpose(..., "step").values
    runs = [run[np.isfinite(run)] for run in runs.reshape(-1, runs.shape[-1])]
    converged = tree.attrs.get("converged", -1)
    verdict = {1: "converged", 0: "not converged, stopped"}.get(converged, "stopped")
    for position, run in enumerate(runs):
        step, colour = np.arange(1, run.size + 1), COLOURS[position % len(COLOURS)]
        centre, smooth = _moving_average(run)
        ax.plot(step, run, color=colour, alpha=0.25, linewidth=0.6)
        ax.plot(centre, smooth, color=colour, linewidth=1.8, label=None if position else "ELBO, smoothed")
        label = None if position else f"{verdict} after {run.size:,} steps"
        ax.plot(step[-1], smooth[-1], "o", color=colour, label=label)
    if "log_evidence" in tree.attrs:
        ax.axhline(tree.attrs["log_evidence"], color="0.3", linestyle="--", label="log evidence")
    late = np.concatenate([run[run.size // 10 :] for run in runs])
    top = max([late.max(), tree.attrs.get("log_evidence", -np.inf)])
    low = np.quantile(late, 0.01)
    ax.set_ylim(low - 0.1 * (top - low) - 1e-9, top + 0.1 * (top - low) + 1e-9)
    ax.set(xlabel="step", ylabel="ELBO")
    ax.spines[["right", "top"]].set_visible(False)
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_comparison(table: Dataset, axes: Sequence[Axes] | None = None, max_rows: int = 30) -> NDArray[Any]:
    """Draw the error of the mean and the ratio of sd, one row a parameter, one dot a method.

    table: from `compare_parameters`; bars are two Monte Carlo standard errors. Beyond max_rows, the
    parameters with the largest errors are shown. Returns the two axes.
    Raises ValueError for a table without parameters.
    """
    if "parameter" not in table.dims or table.sizes["posterior"] < 2:
        raise ValueError(
            "plot_comparison needs one row a parameter of two posteriors, the table of compare_parameters."
        )
    shown = _largest_errors(table, max_rows)
    methods = [str(name) for name in shown["posterior"].values[1:]]
    rows, styles = np.arange(shown.sizes["parameter"]), line_styles(methods)
    lines = len(rows) * max(1.0, len(methods) / 3)
    panels = two_axes(lines) if axes is None else np.asarray(axes, dtype=object)
    for axis, column, centre in zip(panels, ("mean_error", "sd_ratio"), (0.0, 1.0), strict=True):
        axis.axvline(centre, color="0.6", linewidth=1, zorder=0)
        for position, name in enumerate(methods):
            row = shown.loc[{"posterior": name}]
            offset = 0.5 * ((position + 0.5) / len(methods) - 0.5)
            axis.errorbar(
                row[column].values,
                rows + offset,
                xerr=2 * row[f"{column}_mcse"].fillna(0).values,
                fmt="o",
                markersize=4,
                elinewidth=1.2,
                color=styles[name][0],
                label=name,
            )
        axis.spines[["left", "right", "top"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", color="0.92")
        axis.set_axisbelow(True)
    panels[0].set_yticks(rows, [str(name) for name in shown["parameter"].values])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    panels[0].set_xlabel(f"error of the mean\n(in sd of {table.attrs['reference']})")
    panels[1].set_xlabel(f"sd\n(relative to {table.attrs['reference']})")
    legend(panels, axes is None)
    return panels


def _parameters(tree: DataTree, var_names: Sequence[str] | None) -> DataArray:
    """The continuous scalar parameters of a tree, (chain, draw, parameter)."""
    posterior = tree["posterior"].to_dataset()
    continuous = [str(name) for name, values in posterior.data_vars.items() if values.dtype.kind == "f"]
    for name in var_names or ():
        if name not in continuous:
            raise ValueError(f"{name!r} is no continuous site of the posterior, only {continuous}.")
    if not continuous:
        raise ValueError(f"The posterior has no continuous site, only {list(map(str, posterior.data_vars))}.")
    return stacked_parameters(posterior[list(var_names or continuous)])


def _draw_marginal(axis: Axes, values: NDArray[Any], name: str, style: tuple[str, str] | None) -> None:
    """Draw one marginal density: filled grey without a style, a vertical line for a single value."""
    from arviz_stats.base import array_stats

    colour, line = style or ("0.35", "-")
    if values.min() == values.max():
        axis.axvline(values[0], color=colour, linestyle=line, linewidth=1.8, label=name)
        return
    centre, spread = float(np.median(values)), float(np.std(values, dtype=float))
    grid, density, _ = array_stats.kde((values.astype(float) - centre) / spread)
    grid, density = centre + spread * grid, density / spread
    if style is None:
        axis.fill_between(grid, density, color=GREY, linewidth=0, label=name, zorder=0)
    else:
        axis.plot(grid, density, color=colour, linestyle=line, linewidth=1.8, label=name)


def _moving_average(run: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The steps and the values of the moving average over a fiftieth of the run."""
    width = max(1, run.size // 50)
    total = np.concatenate([[0.0], np.cumsum(run)])
    return np.arange(width, run.size + 1) - (width - 1) / 2, (total[width:] - total[:-width]) / width


def _largest_errors(table: Dataset, number: int) -> Dataset:
    """The rows with the largest errors, in the order of the table."""
    error = abs(table["mean_error"]).max("posterior").fillna(-np.inf).values
    return table.isel(parameter=np.sort(np.argsort(-error, kind="stable")[:number]))
