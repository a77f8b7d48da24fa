"""The style of figures: in a context or on demand, and never by itself; every figure goes where it is told to."""

import inspect
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from bayeslab import plots
from bayeslab.plots.style import COLOURS

FUNCTIONS = [name for name in plots.__all__ if name.startswith("plot_")]


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with matplotlib.rc_context():
        yield
    pyplot.close("all")


def colours() -> list[Any]:
    return [to_rgb(colour) for colour in matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]]


def test_the_context_gives_settings_back() -> None:
    before = dict(matplotlib.rcParams)
    with plots.styled():
        assert matplotlib.rcParams["figure.dpi"] >= 110
        assert matplotlib.rcParams["font.size"] >= 10
        assert colours() == [to_rgb(colour) for colour in COLOURS]
    assert dict(matplotlib.rcParams) == before


def test_only_on_demand_is_it_there_to_stay() -> None:
    plots.use_style()
    assert matplotlib.rcParams["figure.dpi"] >= 110
    assert colours() == [to_rgb(colour) for colour in COLOURS]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_figure_takes_axes(name: str) -> None:
    assert {"ax", "axes"} & inspect.signature(getattr(plots, name)).parameters.keys()


def test_calibration_is_drawn_on_given_axes_and_changes_no_settings() -> None:
    ranks = {name: (("chain", "draw"), np.random.default_rng(0).random((1, 50))) for name in ("a", "b")}
    checks = xr.DataTree.from_dict({"prior_sbc": xr.Dataset(ranks)})
    checks.attrs["num_draws"] = 99
    before = dict(matplotlib.rcParams)
    given = pyplot.figure().subplots(1, 3)
    drawn = plots.plot_calibration(checks, axes=given)
    assert [axis.get_title() for axis in given] == ["a", "b", ""]
    assert list(drawn) == list(given[:2])
    assert dict(matplotlib.rcParams) == before
    with pytest.raises(ValueError, match="there are 2 panels but only 1 axes"):
        plots.plot_calibration(checks, axes=given[:1])
