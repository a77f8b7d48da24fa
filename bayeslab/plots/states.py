"""Figures of hidden states: Dataset or DataTree in, matplotlib Axes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.plots.style import COLOURS, GREY, date_axis, legend, legend_above, new_figure, one_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray
    from xarray import DataArray, Dataset, DataTree

STRIP_SHARE_OF_HEIGHT = 0.2
"""The share of the height of the axes that the probabilities of states take below a series."""


def plot_states(states: Dataset, series: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """Draw a series above the stacked probabilities of its states; a continuous state as mean with a 90 % band.

    states: from `filtered_states` or `smoothed_states`, of one sequence. series: (step,), of the same steps.
    Raises ValueError for several sequences, and for a series of another length.
    """
    ax = one_axis() if ax is None else ax
    shown = states["probability" if "probability" in states else "mean"]
    events = shown.dims[-2:]
    _require_one_sequence(shown, events)
    shown = shown.squeeze([dim for dim in shown.dims if dim not in events])
    steps = _step_positions(ax, shown[events[0]])
    if series is not None:
        values = np.asarray(series, dtype=float).squeeze()
        if values.shape != steps.shape:
            raise ValueError(f"The series has shape {values.shape}, but the states have {len(steps)} steps.")
        discrete = "probability" in states
        ax.plot(steps, values, color="0.25", marker="." if not discrete else "", markersize=4,
                linewidth=0.9 if discrete else 0, label="observed")  # fmt: skip
    if "probability" in states:
        _draw_strip(ax, steps, shown.values, [str(label) for label in shown[events[1]].values])
    else:
        spread = states["sd"].squeeze([dim for dim in states["sd"].dims if dim not in events]).values
        for index, mean in enumerate(shown.values.T):
            colour = COLOURS[index % len(COLOURS)]
            label = "mean and 90 % band" if shown.shape[1] == 1 else f"{events[1]} {shown[events[1]].values[index]}"
            ax.plot(steps, mean, color=colour, linewidth=1.8, label=label)
            low, high = (mean + sign * 1.645 * spread[:, index] for sign in (-1, 1))
            ax.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.spines[["right", "top"]].set_visible(False)
    legend_above(ax)
    return ax


def plot_transitions(tree: DataTree, site: str = "moves", ax: Axes | None = None) -> Axes:
    """Draw the transition matrix of a chain as colours, rows to move from, with means.

    Several draws have 90 % intervals too.
    Raises ValueError where the posterior has no such matrix.
    """
    draws = _transition_draws(tree, site)
    mean = draws.mean(["chain", "draw"])
    low, high = (draws.quantile(q, ["chain", "draw"]).values for q in (0.05, 0.95))
    size = len(mean)
    ax = new_figure(1.6 + 0.9 * size, 1.3 + 0.75 * size).subplots() if ax is None else ax
    ax.imshow(mean.values, cmap="Blues", vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(mean.values):
        several = draws.sizes["chain"] * draws.sizes["draw"] > 1
        text = f"{value:.2f}" + (f"\n{low[i, j]:.2f} to {high[i, j]:.2f}" if several else "")
        ax.text(j, i, text, ha="center", va="center", fontsize="small", color="white" if value > 0.6 else "black")
    labels = [str(label) for label in mean[mean.dims[0]].values]
    ax.set_xticks(range(size), labels)
    ax.set_yticks(range(size), labels)
    ax.set(xlabel="to state", ylabel="from state")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def plot_path(path: Dataset, truth: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """Draw the decoded path, with the true one behind it where that is given, and how often the two agree.

    path: from `most_probable_path`, of one sequence of discrete states. truth: (step,).
    Raises ValueError for several sequences, and for a truth of another length.
    """
    ax = new_figure(6.4, 2.2).subplots() if ax is None else ax
    states, steps, inside = _discrete_path(path, ax)
    if truth is not None:
        true = np.asarray(truth).squeeze()
        if true.shape != inside.shape:
            raise ValueError(f"The truth has shape {true.shape}, but the path has {inside.size} steps.")
        ax.step(steps, true[inside], where="mid", color=GREY, linewidth=6, solid_capstyle="butt", label="truth")
    label = "decoded"
    if truth is not None:
        label += f", {np.mean(true[inside] == states):.0%} as in truth"
    ax.step(steps, states, where="mid", color=COLOURS[0], linewidth=1.4, label=label)
    top = int(states.max() if truth is None else max(states.max(), true[inside].max()))
    ax.set_yticks(range(top + 1))
    ax.set_ylim(-0.3, top + 0.3)
    ax.set_ylabel("state")
    ax.spines[["right", "top"]].set_visible(False)
    legend_above(ax)
    return ax


def plot_dwell_times(
    path: Dataset, tree: DataTree, site: str = "moves", axes: Sequence[Axes] | None = None
) -> NDArray[Any]:
    """Draw how many steps the decoded path stays in each state, and what the transition matrix says of it.

    Shares of stays that last at least so many steps: geometric for each draw of the matrix, as mean with a 90 % band,
    and as steps those of the path, without its unfinished last one. Returns the axes (state,).
    Raises ValueError as `plot_transitions` and `plot_path` do, and for fewer axes than states.
    """
    matrix = _transition_draws(tree, site).values
    staying = np.diagonal(matrix.reshape(-1, *matrix.shape[2:]), axis1=1, axis2=2)
    panels = _side_by_side(staying.shape[1]) if axes is None else np.asarray(axes, dtype=object).ravel()
    if len(panels) < staying.shape[1]:
        raise ValueError(f"There are {staying.shape[1]} states but only {len(panels)} axes.")
    path_states, _, _ = _discrete_path(path)
    ends = np.flatnonzero(np.diff(path_states))
    lengths, states = np.diff(ends, prepend=-1), path_states[ends]
    for state, axis in enumerate(panels[: staying.shape[1]]):
        stays = np.sort(lengths[states == state])
        longest = int(max([*stays, np.ceil(3 / (1 - min(staying[:, state].mean(), 0.99)))]))
        times = np.arange(1, longest + 2)
        share = staying[:, state, None] ** (times - 1)
        axis.fill_between(times, *np.quantile(share, [0.05, 0.95], axis=0), color=GREY, linewidth=0, label="90 % band")
        axis.plot(times, share.mean(0), color="0.4", linewidth=1.2, label="mean of the posterior")
        reached = (stays >= times[:, None]).mean(1) if stays.size else np.full(times.shape, np.nan)
        axis.step(times, reached, where="post", color=COLOURS[0], linewidth=1.6, label="decoded")
        axis.set_title(f"state {state}, {stays.size} stays", fontsize="medium")
        axis.set(xlabel="at least so many steps", ylim=(0, 1.05))
        axis.spines[["right", "top"]].set_visible(False)
    panels[0].set_ylabel("share of stays")
    legend(panels, axes is None)
    return panels[: staying.shape[1]]


def plot_choice(table: Dataset, ax: Axes | None = None) -> Axes:
    """Draw the scores of `choose`, `choose_topics` or `choose_populations`, each as the difference from its best value.

    The held-out ones have standard errors. Bounds and leave-one-out are shown where the table has them.
    """
    ax = one_axis() if ax is None else ax
    (name,) = table["log_score"].dims
    positions, shift = np.arange(table.sizes[name]), 0.06 * any(score in table for score in ("evidence_bound", "loo"))
    ax.axhline(0, color="0.8", linewidth=1, zorder=0)
    ax.errorbar(positions - shift, table["difference"], table["difference_se"], fmt="o-", color=COLOURS[0], capsize=3,
                label="held-out log score, ± standard error")  # fmt: skip
    other_scores = {
        "evidence_bound": (COLOURS[1], "evidence or its bound"),
        "loo": (COLOURS[2], "leave one sequence out"),
    }
    for offset, (score, (colour, label)) in enumerate(other_scores.items()):
        values = table[score].values if score in table else np.array([np.nan])
        if np.isfinite(values).any():
            ax.plot(
                positions + 0.06 * offset, values - np.nanmax(values), "s--", color=colour, markersize=4, label=label
            )
    ax.set_xticks(positions, [str(value) for value in table[name].values])
    ax.set(xlabel=str(name), ylabel="nats below the best")
    ax.spines[["right", "top"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _transition_draws(tree: DataTree, site: str) -> DataArray:
    """The draws of a transition matrix (chain, draw, state, state); raises ValueError where there are none."""
    posterior = tree["posterior"].to_dataset()
    if site not in posterior or posterior[site].ndim != 4:
        raise ValueError(f"The posterior has no matrix {site!r} (state, state), only {sorted(map(str, posterior))}.")
    return posterior[site]


def _draw_strip(ax: Axes, steps: NDArray[Any], probability: NDArray[Any], labels: Sequence[str]) -> None:
    """Draw probabilities (step, state) as stacked areas at the bottom; what is drawn already moves above them."""
    low, high = ax.get_ylim() if ax.lines else (0.0, 0.0)
    share = STRIP_SHARE_OF_HEIGHT if ax.lines else 1.0
    below = np.concatenate([np.zeros((len(steps), 1)), probability.cumsum(1)], axis=1) * share
    for index, label in enumerate(labels):
        ax.fill_between(
            steps,
            below[:, index],
            below[:, index + 1],
            step="mid",
            color=COLOURS[index % len(COLOURS)],
            alpha=0.75,
            linewidth=0,
            transform=ax.get_xaxis_transform(),
            label=f"state {label}",
        )
    if ax.lines:
        ax.set_ylim(low - (high - low) * STRIP_SHARE_OF_HEIGHT / (1 - STRIP_SHARE_OF_HEIGHT), high)
    else:
        ax.set(ylim=(0, 1), ylabel="probability")


def _discrete_path(path: Dataset, ax: Axes | None = None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The states and the steps of the one sequence of a path, up to its end, and a mask of the steps before that."""
    states = path["path"]
    if states.dtype.kind not in "iu":
        raise ValueError("The path is one of real numbers; plot_states shows its mean.")
    _require_one_sequence(states, states.dims[-1:])
    states = states.squeeze(list(states.dims[:-1]))
    is_before_end = states.values >= 0
    steps = np.arange(states.size) if ax is None else _step_positions(ax, states[states.dims[0]])
    return states.values[is_before_end], steps[is_before_end], is_before_end


def _side_by_side(number: int) -> NDArray[Any]:
    """The axes of a new figure, side by side with one scale."""
    return new_figure(max(4.8, 2.6 * number), 2.6).subplots(1, number, sharey=True, squeeze=False)[0]


def _require_one_sequence(array: DataArray, events: Sequence[Any]) -> None:
    """Raise ValueError where there is more than one sequence; events: the other dimensions."""
    several = {dim: size for dim, size in array.sizes.items() if dim not in events and size > 1}
    if several:
        raise ValueError(f"The figure shows one sequence; select one of {several} with isel.")


def _step_positions(ax: Axes, labels: DataArray) -> NDArray[Any]:
    """The positions of steps: their labels, or, if these are text, their numbers, with some labels at the axis."""
    ax.set_xlabel(str(labels.dims[0]))
    if labels.dtype.kind == "M":
        date_axis(ax)
    if labels.dtype.kind in "iufM":
        return labels.values
    steps = np.arange(labels.size)
    labelled = np.unique(np.linspace(0, labels.size - 1, 6).round().astype(int))
    ax.set_xticks(labelled, [str(labels.values[index]) for index in labelled])
    return steps
