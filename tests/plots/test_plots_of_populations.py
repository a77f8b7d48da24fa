"""What the figures of population structure show: labels, shares and colours."""

from collections.abc import Iterator
from typing import Any

import arviz_base
import matplotlib
import numpy as np
import pytest
import xarray as xr

from bayeslab.plots import plot_ancestry, plot_divergence
from bayeslab.populations.ancestry import ancestry_summary, divergence, match_populations

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


def tree(number: int = 3, individuals: int = 10, draws: int = 20, seed: int = 0, names: Any = None) -> xr.DataTree:
    """Individuals with one large share each, of the populations in turn."""
    rng = np.random.default_rng(seed)
    means = [rng.dirichlet(0.2 + 6 * (np.arange(number) == i % number)) for i in range(individuals)]
    ancestry = np.stack([rng.dirichlet(60 * row + 0.01, (1, draws)) for row in means], 2)
    p = rng.dirichlet([2.0, 2.0], (1, draws, number, 9))
    dims = {"ancestry": ["individual", "population"], "frequencies": ["population", "locus", "allele"]}
    coords = {"individual": [f"NA{18500 + i}" for i in range(individuals)] if names is None else names}
    return arviz_base.from_dict({"posterior": {"ancestry": ancestry, "frequencies": p}}, dims=dims, coords=coords)


def summary(number: int = 3, individuals: int = 10, **more: Any) -> xr.Dataset:
    return ancestry_summary(tree(number, individuals, **more))


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def bars(axis: Any) -> tuple[Array, list[Any]]:
    """Heights (individual, population) by colour from the ground up, and the looks of populations."""
    patches = axis.patches[::-1]
    tops = np.stack([patch.get_data().values for patch in patches], 1)
    looks = [(to_hex(patch.get_facecolor()), patch.get_hatch()) for patch in patches]
    return np.diff(tops, axis=1, prepend=0), looks


def test_bars_are_shares_in_one_order() -> None:
    found = summary()
    [axis] = plot_ancestry(found, order="given")
    heights, looks = bars(axis)
    np.testing.assert_allclose(heights, found["mean"], atol=1e-12)
    assert len(set(looks)) == 3
    assert labels(axis.xaxis) == found["individual"].values.tolist()
    assert (axis.get_ylabel(), axis.get_xlim(), axis.get_ylim()) == ("K = 3", (0, 10), (0, 1))
    [legend] = axis.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2"]


def test_without_groups_the_largest_share_gives_the_order() -> None:
    found = summary(individuals=30)
    for order in ("groups", "ancestry"):
        [axis] = plot_ancestry(found, order=order)
        heights, _ = bars(axis)
        largest = heights.argmax(1)
        assert (np.diff(largest) >= 0).all()
        for population in range(3):
            assert (np.diff(heights[largest == population].max(1)) <= 0).all()
    assert sorted(labels(axis.xaxis)) == found["individual"].values.tolist()


def test_groups_are_together_in_order_of_their_population() -> None:
    found = summary(3, 60)
    groups = [f"region {i % 3}" for i in range(1, 61)]
    [axis] = plot_ancestry(found, groups)
    heights, _ = bars(axis)
    for place in range(3):
        own = heights[20 * place : 20 * place + 20, place]
        assert (np.diff(own) <= 0).all()
        members = found["mean"].values[[group == groups[place] for group in groups], place]
        np.testing.assert_allclose(own, np.sort(members)[::-1])
    assert labels(axis.xaxis) == ["region 1", "region 2", "region 0"]
    np.testing.assert_array_equal(axis.get_xticks(), [10, 30, 50])
    [lines] = axis.collections
    assert [path.vertices[0, 0] for path in lines.get_paths()] == [20, 40]


def test_few_individuals_have_names_below_and_groups_above() -> None:
    [axis] = plot_ancestry(summary(2, 6), ["a", "b"] * 3)
    assert len(labels(axis.xaxis)) == 6
    [above] = axis.child_axes
    assert labels(above.xaxis) == ["a", "b"]


def test_a_population_has_one_colour_for_every_number() -> None:
    """Of a population that splits, the larger part keeps it; individuals have one order in all rows."""
    origin = np.repeat([0, 1, 2], [10, 4, 6])
    one_of = {2: np.minimum(origin, 1), 3: (origin + 1) % 3}  # with other labels
    found = {}
    for number, each in one_of.items():
        mean = 0.94 * np.eye(number)[each] + 0.06 / number
        found[number] = summary(number, 20)
        for name in ("mean", "low", "high"):
            found[number][name] = ("individual", "population"), mean
    rows = plot_ancestry(found)
    assert [axis.get_ylabel() for axis in rows] == ["K = 2", "K = 3"]
    assert len(rows[0].figure.axes) == 2
    assert not rows[0].figure.legends
    (two, looks), (three, more) = (bars(axis) for axis in rows)
    assert looks == more[:2]
    np.testing.assert_array_equal((two[:, 0] > 0.5), three[:, 0] > 0.5)
    np.testing.assert_array_equal((two[:, 1] > 0.5), (three[:, 1] > 0.5) | (three[:, 2] > 0.5))
    assert (three[:, 1] > 0.5).sum() == 6
    assert labels(rows[0].xaxis) == []
    assert len(labels(rows[1].xaxis)) == 20


def test_one_number_alone_may_have_the_colours_of_several() -> None:
    """In bars and in the legend."""
    found = summary()
    [axis] = plot_ancestry(found, order="given", colours={3: np.array([2, 0, 1])})
    heights, looks = bars(axis)
    np.testing.assert_allclose(heights[:, [2, 0, 1]], found["mean"], atol=1e-12)
    _, usual = bars(plot_ancestry(found, order="given")[0])
    assert looks == usual
    patches = axis.figure.legends[0].get_patches()
    assert [(to_hex(patch.get_facecolor()), patch.get_hatch()) for patch in patches] == [usual[k] for k in (2, 0, 1)]


@pytest.mark.parametrize("individuals", [12, 60])
def test_intervals_are_those_of_the_largest_shares(individuals: int) -> None:
    found = summary(3, individuals)
    [axis] = plot_ancestry(found, order="given", intervals=True)
    mine = found["mean"].argmax("population")
    low, high, mean = (found[name].isel(population=mine).values for name in ("low", "high", "mean"))
    if individuals == 12:
        lines = [each for each in axis.collections if isinstance(each, LineCollection)]
        for each in lines:
            ends = np.stack([path.vertices[:, 1] for path in each.get_paths()])
            np.testing.assert_allclose(ends, np.stack([low, high], 1))
    else:
        for patch, ends in zip(axis.patches[-2:], (low, high), strict=True):
            np.testing.assert_allclose(patch.get_data().values, ends)
    behind, front = (np.stack([p.get_data().values for p in axis.patches[i : i + 3]], 1) for i in (0, 3))
    np.testing.assert_allclose(front.sum(1), mean)
    assert ((front > 0).sum(1) == 1).all()
    np.testing.assert_allclose(behind[:, 0], 1)
    np.testing.assert_allclose(behind.min(1), np.where(mine == 0, mean, mean + found["mean"][:, 0]))
    assert "90% intervals" in axis.get_xlabel()


def test_one_individual_of_one_population() -> None:
    [axis] = plot_ancestry(summary(1, 1), ["here"], intervals=True)
    np.testing.assert_array_equal(bars(axis)[0][:, 0], [1])
    axis = plot_divergence(divergence(tree(1, 1)))
    assert len(axis.patches) == 1
    assert not axis.texts


def test_axes_may_be_given() -> None:
    _, axes = pyplot.subplots(3, 1)
    found = {2: summary(2), 3: summary(3)}
    assert plot_ancestry(found, axes=axes).tolist() == axes[:2].tolist()
    assert plot_ancestry(found[2], axes=axes[2]).tolist() == [axes[2]]


def test_twenty_populations_look_different() -> None:
    [axis] = plot_ancestry(summary(20, 50))
    assert len(set(bars(axis)[1])) == 20
    assert axis.get_xlabel() == "50 individuals"


def overlaps(boxes: list[Any]) -> bool:
    return any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])


@pytest.mark.parametrize(
    ("individuals", "sizes", "left_out"),
    [
        (40, [20, 20], False),
        (8, [1] * 8, False),
        (3000, [1500, 1500], False),
        (3000, [115] * 25 + [125], False),
        (2613, [1] * 13 + [200] * 13, True),
    ],
)
def test_no_text_overlaps(individuals: int, sizes: list[int], left_out: bool) -> None:
    groups = np.repeat([f"people of place {i}" for i in range(len(sizes))], sizes)
    found = {k: summary(k, individuals, draws=2) for k in (2, 3)}
    rows = plot_ancestry(found, groups)
    figure = rows[0].figure
    figure.canvas.draw()
    named = rows[0].child_axes[0] if individuals <= 40 else rows[1]
    texts = [label for axis in {*rows, named} for label in axis.get_xticklabels()]
    texts += [label for axis in rows for label in [*axis.get_yticklabels(), axis.yaxis.label]]
    boxes = [text.get_window_extent() for text in [*texts, rows[1].xaxis.label] if text.get_text()]
    assert not overlaps(boxes)
    assert all(figure.bbox.contains(*corner) for box in boxes for corner in (box.p0, box.p1))
    assert len(labels(named.xaxis)) <= len(sizes)
    assert ("groups" in rows[1].get_xlabel()) == left_out == (len(labels(named.xaxis)) < len(sizes))


@pytest.mark.parametrize("measure", ["distance", "fst"])
def test_divergence_has_numbers_and_colours(measure: str) -> None:
    given = tree(3)
    table = divergence(given)
    axis = plot_divergence(table, measure)
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    expected = [f"{table[measure][i, j]:.3f}\n± {table[f'{measure}_sd'][i, j]:.3f}" for i, j in pairs]
    assert [text.get_text() for text in axis.texts] == expected
    [row] = plot_ancestry(ancestry_summary(given))
    assert [to_hex(patch.get_facecolor()) for patch in axis.patches] == [look for look, _ in bars(row)[1]]
    assert labels(axis.yaxis)[1] == f"1 ({table['heterozygosity'][1]:.2f})"
    colours = match_populations({2: summary(2), 3: summary(3)})[3]
    other = plot_divergence(table, measure, colours)
    assert [patch.get_facecolor() for patch in other.patches] == [axis.patches[i].get_facecolor() for i in colours]


def test_divergence_without_sd_has_means_alone() -> None:
    point = divergence(tree(13, draws=1))
    axis = plot_divergence(point)
    assert all("±" not in text.get_text() for text in axis.texts)
    unknown = plot_divergence(point.assign(distance_sd=point["distance_sd"] * np.nan))
    assert [text.get_text() for text in unknown.texts] == [text.get_text() for text in axis.texts]
    axis.figure.canvas.draw()
    assert not overlaps([text.get_window_extent() for text in axis.texts])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plot_ancestry(summary(), ["a"]), "groups has 1 labels; expected one for each of 10"),
        (lambda: plot_ancestry(summary(), order="size"), "order is 'size'; expected one of ['groups', 'ancestry'"),
        (lambda: plot_ancestry(summary(), ["a", "b"] * 5, "given"), "'given' takes the individuals of group 'a' apart"),
        (lambda: plot_ancestry({}), "got none"),
        (lambda: plot_ancestry(xr.Dataset()), "got a Dataset without mean"),
        (lambda: plot_ancestry({2: summary(2), 4: summary(3)}), "K = 4 has 3 populations"),
        (lambda: plot_ancestry({2: summary(2), 3: summary(3, 9)}), "K = 2 and K = 3 have different individuals"),
        (lambda: plot_ancestry({2: summary(2), 3: summary(3)}, axes=[pyplot.gca()]), "2 numbers of populations but"),
        (lambda: plot_divergence(divergence(tree()), "nei"), "measure is 'nei'; expected one of ['distance', 'fst']"),
        (lambda: plot_divergence(divergence(tree()), colours=[0]), "There are 1 colours for 3 populations"),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value), error.value
