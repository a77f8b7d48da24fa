"""Figures of topics: Dataset or DataTree in, matplotlib Axes out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.plots.style import COLOURS, new_figure
from bayeslab.topics.summaries import aligned_topics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset, DataTree

MAX_DOCUMENTS_SHOWN = 30
"""The most documents in one figure."""
MAX_LABEL_LETTERS = 28
"""The most letters of a label; of longer ones the beginning is shown."""
HATCHES = ("", "////", "....", "xxxx")
"""The hatches of topics that have a colour for the first, second, third and fourth time."""


def plot_topics(words: Dataset, axes: Sequence[Axes] | None = None) -> NDArray[Any]:
    """Draw the words of every topic, one panel each, in order of rank: means as dots with 90 % intervals.

    words: from `top_words`. Titles have the shares of topics. All panels have one scale.
    Returns the axes (topic,). Raises ValueError for fewer axes than topics.
    """
    topics, ranks = words["topic"].values, np.arange(words.sizes["rank"])
    labels = [[short_label(word) for word in ranked] for ranked in words["word"].values]
    panels = topic_panels(labels) if axes is None else np.asarray(axes, dtype=object).ravel()
    if len(panels) < len(topics):
        raise ValueError(f"There are {len(topics)} topics but only {len(panels)} axes.")
    top = 1.05 * max(float(words[name].max()) for name in ("mean", "high"))
    for index, axis in enumerate(panels[: len(topics)]):
        row = words.isel(topic=index)
        axis.hlines(ranks, row["low"], row["high"], color=COLOURS[0], linewidth=1.4)
        axis.plot(row["mean"], ranks, "o", color=COLOURS[0], markersize=4)
        axis.set_yticks(ranks, labels[index])
        axis.set(xlim=(0, top), ylim=(len(ranks) - 0.5, -0.5))
        axis.set_title(_topic_title(topics[index], float(row["share"])), fontsize="medium")
        axis.tick_params(axis="y", length=0, labelsize="small")
        axis.tick_params(axis="x", labelsize="small")
        axis.locator_params(axis="x", nbins=3)
        axis.grid(axis="y", color="0.92")
        axis.set_axisbelow(True)
        axis.spines[["left", "right", "top"]].set_visible(False)
    if axes is None:
        panels[0].figure.supxlabel("probability of the word in the topic", fontsize="medium")
    return panels[: len(topics)]


def plot_shares(tree: DataTree, documents: Sequence[Hashable] | None = None, ax: Axes | None = None) -> Axes:
    """Draw which topics documents mix: mean shares as stacked bars, a row a document, with the legend beside the axes.

    documents: labels of those to show, at most 30; by default the first 30, and the figure says so.
    Raises ValueError for a tree without shares, for unknown documents and for too many.
    """
    mean = _mean_shares(tree)
    shown = _selected_documents(mean, documents)
    rows, topics = np.arange(len(shown)), shown["topic"].values
    ax = new_figure(7.2, max(1.2 + 0.22 * len(rows), 0.9 + 0.26 * len(topics))).subplots() if ax is None else ax
    left = np.zeros(len(rows))
    for index, topic in enumerate(topics):
        colour, hatch = COLOURS[index % len(COLOURS)], HATCHES[index // len(COLOURS) % len(HATCHES)]
        style: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
        ax.barh(rows, shown.values[:, index], left=left, label=short_label(topic), **style)
        left += shown.values[:, index]
    ax.set_yticks(rows, [short_label(label) for label in shown["document"].values])
    ax.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), ylabel="document")
    has_more = documents is None and len(shown) < len(mean)
    ax.set_xlabel("mean share" + (f"\n(the first {len(shown)} of {len(mean)} documents)" if has_more else ""))
    ax.tick_params(axis="y", length=0, labelsize="small")
    ax.spines[["left", "right", "top"]].set_visible(False)
    ax.legend(title="topic", frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return ax


def plot_stability(matched: Dataset, ax: Axes | None = None) -> Axes:
    """Draw how similar the topics of the reference are to their partners in other runs, the most stable ones on top.

    matched: from `match_topics`. Cells without a number have no partner.
    """
    others = matched.isel(run=matched["run"].values != matched.attrs["reference"])
    order = np.lexsort((-others["similarity"].fillna(0).mean("run").values, -others["stability"].values))
    others = others.isel(topic=order)
    similarity = others["similarity"].values.T
    rows, columns = similarity.shape
    ax = new_figure(3.0 + 0.55 * columns, max(2.4, 1.5 + 0.27 * rows)).subplots() if ax is None else ax
    ax.imshow(similarity, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(similarity):
        if np.isfinite(value):
            colour = "white" if value > 0.6 else "black"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize="small", color=colour)
    stability = zip(others["topic"].values, others["stability"].values, strict=True)
    ax.set_yticks(range(rows), [f"{short_label(topic)} ({share:.0%})" for topic, share in stability])
    several = len(np.unique(matched["tree"])) > 1
    runs = zip(others["tree"].values, others["chain"].values, strict=True)
    ax.set_xticks(range(columns), [f"{tree}: {chain}" if several else str(chain) for tree, chain in runs])
    ax.set(xlabel="tree: chain" if several else "chain", ylabel="topic\n(runs with a partner)")
    ax.set_title(f"{float(matched['stable']):.0%} of topics have a partner", fontsize="medium")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def _topic_title(topic: Any, share: float) -> str:
    """The title of a topic, with its share where that is known."""
    return f"topic {short_label(topic)}" + (f" ({share:.0%})" if np.isfinite(share) else "")


def short_label(label: Any) -> str:
    """The label as text, shortened where it is long."""
    text = str(label)
    return text if len(text) <= MAX_LABEL_LETTERS else f"{text[: MAX_LABEL_LETTERS - 1]}…"


def topic_panels(labels: Sequence[Sequence[str]]) -> NDArray[Any]:
    """A grid of axes with room for labels (topic, rank), without the unused ones."""
    width = 1.7 + 0.075 * max(len(word) for each in labels for word in each)
    rows = -(-len(labels) // min(5, max(2, int(13 / width))))
    columns = -(-len(labels) // rows)
    height = 0.75 + 0.19 * len(labels[0])
    figure = new_figure(max(4.0, width * columns), height * rows + 0.4)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(labels) :]:
        axis.remove()
    return axes[: len(labels)]


def _mean_shares(tree: DataTree) -> DataArray:
    """The mean shares (document, topic), with topics in one order; those that are data have one."""
    groups = [tree[name].to_dataset() for name in ("posterior", "posterior_mean") if name in tree.children]
    sites = sorted({str(name) for group in groups for name in group.data_vars})
    if "shares" not in sites:
        raise ValueError(f"The tree has no shares of documents, only {sites}.")
    return aligned_topics(tree)["shares"] if "topics" in sites else groups[0]["shares"].mean(["chain", "draw"])


def _selected_documents(shares: DataArray, documents: Sequence[Hashable] | None) -> DataArray:
    """The shares of some documents, by default the first ones; raises ValueError for unknown ones and too many."""
    if documents is None:
        return shares[:MAX_DOCUMENTS_SHOWN]
    known = shares["document"].values.tolist()
    for label in documents:
        if label not in known:
            raise ValueError(f"There is no document {label!r}; the first ones are {known[:5]}.")
    if not 1 <= len(documents) <= MAX_DOCUMENTS_SHOWN:
        raise ValueError(f"There are {len(documents)} documents to show; expected 1 to {MAX_DOCUMENTS_SHOWN}.")
    return shares.isel(document=[known.index(label) for label in documents])
