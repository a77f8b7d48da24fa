"""What the figures of hidden states show: labels and data."""

from collections.abc import Iterator
from typing import Any

import arviz_base
import matplotlib
import numpy as np
import pytest
import xarray as xr

from bayeslab.plots import plot_choice, plot_dwell_times, plot_path, plot_states, plot_transitions

matplotlib.use("Agg")
from matplotlib import pyplot

PROBABILITY = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
MONTHS = ["1990-01", "1990-02", "1990-03"]


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


def states(**more: Any) -> xr.Dataset:
    dims = ("sequence", "step", "state")
    return xr.Dataset({"probability": (dims, PROBABILITY[None])}, {"step": MONTHS, "state": [0, 1]} | more)


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def tree(draws: int = 50) -> xr.DataTree:
    stay = np.random.default_rng(0).beta([90, 20], [10, 20], (1, draws, 2))
    moves = np.stack(
        [np.stack([stay[..., 0], 1 - stay[..., 0]], -1), np.stack([1 - stay[..., 1], stay[..., 1]], -1)], 2
    )
    return arviz_base.from_dict({"posterior": {"moves": moves, "mu": stay}}, dims={"moves": ["state", "state_"]})


def path(*states: int) -> xr.Dataset:
    return xr.Dataset({"path": (("sequence", "step"), np.array([states]))}, {"step": np.arange(len(states))})


def test_states_are_a_strip_below_their_series() -> None:
    ax = plot_states(states(), [1.0, 3.0, 2.0])
    assert texts(ax) == ["observed", "state 0", "state 1"]
    assert [label.get_text() for label in ax.get_xticklabels()] == MONTHS
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), [1.0, 3.0, 2.0])
    first, second = (area.get_paths()[0].vertices[:, 1] for area in ax.collections)
    np.testing.assert_allclose([first.min(), first.max(), second.max()], [0, 0.9 * 0.2, 0.2])
    low, high = ax.get_ylim()
    assert low + 0.2 * (high - low) < 1.0
    assert plot_states(states()).get_ylabel() == "probability"


def test_continuous_states_are_a_band() -> None:
    dims = ("step", "component")
    moments = xr.Dataset({"mean": (dims, [[1.0], [2.0]]), "sd": (dims, [[0.5], [1.0]])}, {"step": [1871, 1872]})
    ax = plot_states(moments, [1.2, 1.7])
    assert texts(ax) == ["observed", "mean and 90 % band"]
    assert ax.get_xlabel() == "step"
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [1 - 1.645 / 2, 2 + 1.645])


def test_transitions_are_written_in() -> None:
    found = tree()
    ax = plot_transitions(found)
    mean = found["posterior"]["moves"].values.mean((0, 1))
    np.testing.assert_allclose(ax.images[0].get_array(), mean)
    assert ax.texts[1].get_text().startswith(f"{mean[0, 1]:.2f}\n")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("to state", "from state")
    assert "to" not in plot_transitions(tree(1)).texts[0].get_text()


def test_paths_are_compared_up_to_their_end() -> None:
    ax = plot_path(path(0, 0, 1, 1, -1), [0, 1, 1, 1, 1])
    assert texts(ax) == ["truth", "decoded, 75% as in truth"]
    np.testing.assert_array_equal(ax.get_lines()[1].get_ydata(), [0, 0, 1, 1])
    assert texts(plot_path(path(0, 2, 1))) == ["decoded"]


def test_dwell_times_are_geometric_and_those_of_the_path() -> None:
    found = tree()
    axes = plot_dwell_times(path(0, 0, 0, 1, 0, 1, 1, 0, 0), found)
    assert [ax.get_title() for ax in axes] == ["state 0, 2 stays", "state 1, 2 stays"]
    mean, decoded = axes[0].get_lines()
    stay = found["posterior"]["moves"].values[0, :, 0, 0]
    np.testing.assert_allclose(mean.get_ydata()[:3], [1.0, stay.mean(), (stay**2).mean()])
    np.testing.assert_array_equal(decoded.get_ydata()[:4], [1.0, 0.5, 0.5, 0.0])


def test_choices_are_differences_from_the_best() -> None:
    scores = {"log_score": [-20.0, -12.0], "difference": [-8.0, 0.0], "difference_se": [2.0, 0.0]}
    scores |= {"evidence_bound": [-25.0, -20.0], "loo": [np.nan, np.nan]}
    table = xr.Dataset({name: ("num_states", values) for name, values in scores.items()}, {"num_states": [1, 2]})
    ax = plot_choice(table)
    assert ax.get_xlabel() == "num_states"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2"]
    assert sorted(texts(ax)) == ["evidence or its bound", "held-out log score, ± standard error"]
    [bound] = [line for line in ax.get_lines() if line.get_label() == "evidence or its bound"]
    np.testing.assert_array_equal(bound.get_ydata(), [-5.0, 0.0])


def test_wrong_calls() -> None:
    several = xr.concat([states(), states()], "sequence")
    with pytest.raises(ValueError, match=r"shows one sequence; select one of {'sequence': 2}"):
        plot_states(several)
    with pytest.raises(ValueError, match=r"shape \(2,\), but the states have 3 steps"):
        plot_states(states(), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"no matrix 'mu'"):
        plot_transitions(tree(), "mu")
    with pytest.raises(ValueError, match=r"truth has shape \(3,\), but the path has 2 steps"):
        plot_path(path(0, 1), [0, 1, 1])
    with pytest.raises(ValueError, match="2 states but only 1 axes"):
        plot_dwell_times(path(0, 1), tree(), axes=[pyplot.gca()])
    with pytest.raises(ValueError, match="real numbers"):
        plot_path(path(0, 1).astype(float))
