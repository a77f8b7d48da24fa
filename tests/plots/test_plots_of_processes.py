"""What the figures of Gaussian processes show: labels and data."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray as xr

from bayeslab import kernels
from bayeslab.fitting import fit
from bayeslab.models import gp_regression
from bayeslab.plots import plot_process, plot_process_map
from bayeslab.prediction.gaussian_process import process_at, process_draws

matplotlib.use("Agg")
from matplotlib import pyplot

X = np.array([2.0, 0.0, 1.0])
GRID = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


def predictions(**more: Any) -> xr.Dataset:
    return xr.Dataset({"f": ("row", [3.0, 1.0, 2.0]), "f_sd": ("row", [0.3, 0.1, 0.2])} | more)


def surface() -> xr.Dataset:
    return xr.Dataset({"f": ("row", [1.0, 2.0, 3.0, 4.0]), "f_sd": ("row", [0.1, 0.2, 0.3, 0.4])})


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def lines(ax: Any, label: str) -> list[Any]:
    return [line for line in ax.get_lines() if line.get_label() == label]


def test_bands_are_in_the_order_of_the_inputs() -> None:
    ax = plot_process(predictions(), X)
    assert texts(ax) == ["90 % band of f", "50 % band of f", "mean of f"]
    [mean] = lines(ax, "mean of f")
    np.testing.assert_array_equal(mean.get_xydata(), [[0, 1], [1, 2], [2, 3]])
    for area, width in zip(ax.collections, (1.6449, 0.6745), strict=True):
        heights = area.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [1 - 0.1 * width, 3 + 0.3 * width])


def test_measurements_data_and_draws_are_added() -> None:
    more = {"y": ("row", [3.0, 1.0, 2.0]), "y_sd": ("row", [1.0, 1.0, 1.0])}
    draws = xr.DataArray(np.arange(6.0).reshape(1, 2, 3), dims=("chain", "draw", "row"))
    ax = plot_process(predictions(**more), X[:, None], (np.array([0.5, 1.5]), np.array([1.4, np.nan])), draws)
    assert texts(ax) == ["90 % band of f", "50 % band of f", "90 % band of y", "draws of f", "mean of f", "data"]
    [low] = lines(ax, "90 % band of y")
    np.testing.assert_allclose(low.get_ydata(), np.array([1, 2, 3]) - 1.6449)
    drawn = [line.get_ydata() for line in ax.get_lines() if line.get_color() == "#D55E00"]
    np.testing.assert_array_equal(drawn, [[1, 2, 0], [4, 5, 3]])
    [data] = lines(ax, "data")
    np.testing.assert_array_equal(data.get_xydata(), [[0.5, 1.4], [1.5, np.nan]])


def test_other_names_and_axes() -> None:
    renamed = predictions().rename(f="g", f_sd="g_sd")
    own = pyplot.figure().subplots()
    ax = plot_process(renamed, X, site="g", ax=own)
    assert ax is own
    assert texts(ax)[-1] == "mean of g"


def test_maps_of_two_inputs() -> None:
    x = xr.DataArray(GRID, dims=("row", "input"), coords={"input": ["area", "bedrooms"]})
    axes = plot_process_map(surface(), x, (GRID[:2], np.array([0.0, 5.0])))
    assert [ax.get_title() for ax in axes] == ["mean of f", "sd of f"]
    assert (axes[1].get_xlabel(), axes[1].get_ylabel()) == ("area", "bedrooms")
    for ax, name in zip(axes, ("f", "f_sd"), strict=True):
        colours, points = ax.collections
        np.testing.assert_array_equal(colours.get_array(), surface()[name])
        np.testing.assert_array_equal(points.get_offsets(), GRID[:2])
    colours, points = axes[0].collections
    np.testing.assert_array_equal(points.get_array(), [0.0, 5.0])
    assert colours.get_clim() == points.get_clim() == (0.0, 5.0)
    assert plot_process_map(surface(), GRID)[0].get_xlabel() == "input 0"


def test_figures_of_a_fit() -> None:
    data = gp_regression.example() | {"kernel": kernels.squared_exponential(0.8)}
    tree = fit(0, gp_regression.model, data, progress=False)
    new = np.linspace(-1.0, 5.0, 30)
    found = process_at(gp_regression.model, data, tree, {"x": new})
    draws = process_draws(1, gp_regression.model, data, tree, {"x": new})["f"].isel(draw=slice(5))
    ax = plot_process(found, new, (data["x"], data["y"]), draws)
    assert texts(ax)[2:5] == ["90 % band of y", "draws of f", "mean of f"]
    inside = [line.get_ydata() for line in ax.get_lines() if line.get_color() == "#D55E00"]
    assert np.mean(np.abs(np.stack(inside) - found["f"].values) < 4 * found["f_sd"].values) > 0.95


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\), but the predictions have 3 rows"):
        plot_process(predictions(), X[:2])
    with pytest.raises(ValueError, match="2 inputs; plot_process shows one, plot_process_map two"):
        plot_process(surface(), GRID)
    with pytest.raises(ValueError, match=r"shape \(3, 1\); expected \(3, 2\)"):
        plot_process_map(predictions(), X)
    with pytest.raises(ValueError, match=r"no \['g', 'g_sd'\], only \['f', 'f_sd'\]"):
        plot_process(predictions(), X, site="g")
    with pytest.raises(ValueError, match=r"shape \(3,\) and values of shape \(2,\); expected inputs \(row, 1\)"):
        plot_process(predictions(), X, (X, X[:2]))
    with pytest.raises(ValueError, match="All inputs lie on one line"):
        plot_process_map(surface(), GRID[[0, 1, 0, 1]])
    with pytest.raises(ValueError, match="two panels but only 1 axes"):
        plot_process_map(surface(), GRID, axes=[pyplot.gca()])
