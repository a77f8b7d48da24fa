"""What the figures of topics show: labels and data."""

from collections.abc import Iterator
from typing import Any

import arviz_base
import matplotlib
import numpy as np
import pytest
import xarray as xr

from bayeslab.plots import plot_shares, plot_stability, plot_topics
from bayeslab.topics.summaries import match_topics, top_words

matplotlib.use("Agg")
from matplotlib import pyplot

LONG = "Donaudampfschifffahrtsgesellschaft"


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


def tree(number: int = 3, documents: int = 4, chains: int = 2, seed: int = 0) -> xr.DataTree:
    """Topics of words of which one is long, the same in all chains but in another order."""
    rng = np.random.default_rng(seed)
    topics = np.stack([rng.dirichlet(500 * row, 20) for row in rng.dirichlet(np.full(12, 0.5), number) + 0.01], 1)
    shares = np.stack([rng.dirichlet(100 * row, 20) for row in rng.dirichlet(np.ones(number), documents) + 0.01], 1)
    posterior = {
        "topics": np.stack([np.roll(topics, chain, 1) for chain in range(chains)]),
        "shares": np.stack([np.roll(shares, chain, 2) for chain in range(chains)]),
    }
    dims = {"topics": ["topic", "word"], "shares": ["document", "topic"]}
    coords = {"word": [LONG, *(f"word {i}" for i in range(11))], "document": [f"text {i}" for i in range(documents)]}
    return arviz_base.from_dict({"posterior": posterior}, dims=dims, coords=coords)


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_words_are_in_order_with_their_intervals() -> None:
    words = top_words(tree(), 12)
    panels = plot_topics(words)
    assert len(panels) == len(panels[0].figure.axes) == 3
    for place, axis in enumerate(panels):
        row = words.isel(topic=place)
        expected = [str(word).replace(LONG, LONG[:27] + "…") for word in row["word"].values]
        assert labels(axis.yaxis) == expected
        np.testing.assert_allclose(axis.get_lines()[0].get_xdata(), row["mean"])
        [bars] = axis.collections
        ends = np.stack([path.vertices[:, 0] for path in bars.get_paths()])
        np.testing.assert_allclose(ends, np.stack([row["low"], row["high"]], 1))
        low, high = axis.get_ylim()
        assert low > high
        assert axis.get_title() == f"topic {place} ({float(row['share']):.0%})"
        assert axis.get_xlim() == panels[0].get_xlim()
    assert panels[0].figure.get_supxlabel() == "probability of the word in the topic"


def test_panels_may_be_given() -> None:
    words = top_words(tree(2), 3)
    _, axes = pyplot.subplots(1, 3)
    assert plot_topics(words, axes).tolist() == axes[:2].tolist()
    unknown = plot_topics(words.assign(share=words["share"] * np.nan))
    assert unknown[0].get_title() == "topic 0"


def overlaps(boxes: list[Any]) -> bool:
    return any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])


@pytest.mark.parametrize("number", [2, 6, 12])
def test_nothing_overlaps(number: int) -> None:
    """Panels with their labels, a legend beside its axes, and labels of rows."""
    found = tree(number, 31, 3)
    panels = plot_topics(top_words(found, 10))
    figure = panels[0].figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    assert not overlaps([axis.get_tightbbox(renderer) for axis in panels])
    ax = plot_shares(found)
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.x0 >= ax.get_window_extent().x1
    assert ax.figure.bbox.contains(legend.x1, legend.y0)
    assert not overlaps([label.get_window_extent() for label in ax.get_yticklabels()])
    ax = plot_stability(match_topics(found))
    ax.figure.canvas.draw()
    box = ax.yaxis.label.get_window_extent()
    assert ax.figure.bbox.contains(box.x0, box.y0)
    assert ax.figure.bbox.contains(box.x1, box.y1)


def test_shares_are_stacked_to_one() -> None:
    found = tree(9, 35)
    ax = plot_shares(found)
    assert labels(ax.yaxis) == [f"text {i}" for i in range(30)]
    assert "the first 30 of 35 documents" in ax.get_xlabel()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [str(i) for i in range(9)]
    widths = np.array([[bar.get_width() for bar in bars] for bars in ax.containers])
    mean = found["posterior"]["shares"].sel(chain=0).mean("draw").values[:30]
    np.testing.assert_allclose(widths.sum(0), 1)
    np.testing.assert_allclose(np.sort(widths.T), np.sort(mean))
    np.testing.assert_allclose(ax.containers[1][0].get_x(), widths[0, 0])
    looks = {(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in ax.containers}
    assert len(looks) == 9


def test_documents_are_chosen_by_their_labels() -> None:
    ax = plot_shares(tree(), ["text 3", "text 0"])
    assert labels(ax.yaxis) == ["text 3", "text 0"]
    assert ax.get_xlabel() == "mean share"


def test_topics_that_are_data_have_one_order() -> None:
    found = without("topics")
    ax = plot_shares(found)
    widths = [[bar.get_width() for bar in bars] for bars in ax.containers]
    np.testing.assert_allclose(np.transpose(widths), found["posterior"]["shares"].mean(("chain", "draw")))


def test_stable_topics_come_first() -> None:
    similarity = np.array([[1.0, 1.0, 1.0], [0.2, 0.9, 0.8], [0.1, 0.95, np.nan]])
    matched = xr.Dataset(
        {
            "similarity": (("run", "topic"), similarity),
            "stability": ("topic", [0.0, 1.0, 0.5]),
            "stable": 0.5,
        },
        {
            "run": [0, 1, 2],
            "topic": ["a", "b", "c"],
            "tree": ("run", [0, 0, 0]),
            "chain": ("run", [0, 1, 2]),
        },
        {"reference": 0},
    )
    ax = plot_stability(matched)
    assert labels(ax.yaxis) == ["b (100%)", "c (50%)", "a (0%)"]
    assert labels(ax.xaxis) == ["1", "2"]
    assert ax.get_xlabel() == "chain"
    assert [text.get_text() for text in ax.texts] == ["0.90", "0.95", "0.80", "0.20", "0.10"]
    np.testing.assert_array_equal(ax.images[0].get_array(), similarity[1:, [1, 2, 0]].T)
    assert ax.get_title() == "50% of topics have a partner"
    several = plot_stability(matched.assign_coords(tree=("run", [0, 0, 1])))
    assert labels(several.xaxis) == ["0: 1", "1: 2"]
    assert several.get_xlabel() == "tree: chain"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plot_topics(top_words(tree(), 2), [pyplot.gca()]), "3 topics but only 1 axes"),
        (lambda: plot_shares(tree(), ["text 9"]), "no document 'text 9'; the first ones are ['text 0'"),
        (lambda: plot_shares(tree(3, 40), [f"text {i}" for i in range(31)]), "31 documents to show; expected 1 to 30"),
        (lambda: plot_shares(tree(), []), "0 documents to show"),
        (lambda: plot_shares(without("shares")), "no shares of documents, only ['topics']"),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value), error.value


def without(site: str) -> xr.DataTree:
    found = tree()
    found["posterior"] = xr.DataTree(found["posterior"].to_dataset().drop_vars(site))
    return found
