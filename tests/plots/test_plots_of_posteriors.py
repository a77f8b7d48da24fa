"""What the figures show: labels and data."""

from collections.abc import Iterator
from typing import Any

import arviz_base
import matplotlib
import numpy as np
import pytest
import xarray as xr

from bayeslab.diagnostics.compare import compare_parameters, compare_posteriors
from bayeslab.plots import plot_comparison, plot_elbo, plot_posteriors

matplotlib.use("Agg")
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    yield
    pyplot.close("all")


def tree(seed: int, shape: tuple[int, int] = (2, 200), **attrs: Any) -> xr.DataTree:
    rng = np.random.default_rng(seed)
    posterior = {"w": rng.normal(size=(*shape, 3)), "tau": rng.gamma(2.0, size=shape), "z": np.ones(shape, int)}
    found = arviz_base.from_dict(
        {"posterior": posterior}, dims={"w": ["feature"]}, coords={"feature": ["age", "bmi", "bp"]}
    )
    found.attrs |= attrs
    return found


TREES = {"NUTS": tree(0), "exact": tree(1, method="Exact"), "MAP": tree(2, (1, 1))}


def with_history(elbo: np.ndarray[Any, Any], **attrs: Any) -> xr.DataTree:
    found = tree(0, **attrs)
    found["history"] = xr.DataTree(xr.Dataset({"elbo": (("chain", "step"), elbo)}))
    return found


def test_posteriors_have_a_panel_a_parameter_and_one_legend() -> None:
    panels = plot_posteriors(TREES)
    assert [panel.get_title() for panel in panels] == ["w[age]", "w[bmi]", "w[bp]", "tau"]
    (legend,) = panels[0].figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["MAP", "NUTS", "exact"]
    density, point = panels[0].get_lines()
    assert density.get_label() == "NUTS"
    np.testing.assert_allclose(np.trapezoid(density.get_ydata(), density.get_xdata()), 1.0, atol=0.02)
    assert point.get_xdata()[0] == TREES["MAP"]["posterior"]["w"].values[0, 0, 0]
    assert [filled.get_label() for filled in panels[0].collections] == ["exact"]


def test_posteriors_on_request_and_up_to_a_number() -> None:
    assert [panel.get_title() for panel in plot_posteriors(TREES, ["tau"])] == ["tau"]
    panels = plot_posteriors(TREES, max_panels=2)
    assert len(panels) == len(panels[0].figure.axes) == 2
    assert panels[0].figure.get_supxlabel() == "the first 2 of 4 parameters"
    own = pyplot.figure().subplots(1, 4)
    assert list(plot_posteriors(TREES, axes=own)) == list(own)


def test_elbo_shows_where_it_stopped_and_the_evidence() -> None:
    steps = np.arange(1000)
    elbo = np.where(steps < 800, -50 - 400 * np.exp(-steps / 50), np.nan)[None]
    ax = plot_elbo(with_history(elbo, converged=1, log_evidence=-48.0))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["ELBO, smoothed", "converged after 800 steps", "log evidence"]
    assert ax.get_ylim()[0] > -200
    assert ax.get_ylim()[1] > -48
    stop = next(line for line in ax.get_lines() if line.get_marker() == "o")
    np.testing.assert_allclose((stop.get_xdata()[0], stop.get_ydata()[0]), (800, -50), atol=0.1)


def test_elbo_says_that_it_did_not_converge() -> None:
    ax = plot_elbo(with_history(np.linspace(-90, -10, 30)[None], converged=0))
    assert "not converged, stopped after 30 steps" in ax.get_legend_handles_labels()[1]


def test_comparison_has_a_row_a_parameter_and_a_dot_a_method() -> None:
    table = compare_parameters(TREES)
    panels = plot_comparison(table)
    assert [label.get_text() for label in panels[0].get_yticklabels()] == list(table["parameter"].values)
    assert "NUTS" in panels[0].get_xlabel()
    dots = {bar.get_label(): bar.lines[0] for bar in panels[0].containers}
    assert list(dots) == ["exact", "MAP"]
    np.testing.assert_array_equal(dots["exact"].get_xdata(), table["mean_error"].loc[{"posterior": "exact"}])
    few = plot_comparison(table, max_rows=2)
    assert len(few[0].get_yticks()) == 2


def wrong_calls() -> dict[str, Any]:
    return {
        "'v'": lambda: plot_posteriors(TREES, ["v"]),
        "4 parameters but only 1": lambda: plot_posteriors(TREES, axes=[pyplot.figure().subplots()]),
        "'history'": lambda: plot_elbo(TREES["NUTS"]),
        "compare_parameters": lambda: plot_comparison(compare_posteriors(TREES)),
    }


@pytest.mark.parametrize("words", wrong_calls())
def test_wrong_calls_say_what_is_there(words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wrong_calls()[words]()


def test_draws_that_are_narrow_beside_their_size_have_their_density() -> None:
    draws = np.float32(1000) + 0.002 * np.random.default_rng(0).normal(size=(2, 500))
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), draws.astype(np.float32))})})
    [axis] = plot_posteriors({"fit": tree})
    [density] = axis.collections[0].get_paths()
    assert abs(density.vertices[:, 0] - 1000).max() < 0.02
    assert density.vertices[:, 1].max() == pytest.approx(1 / (0.002 * np.sqrt(2 * np.pi)), rel=0.1)


def test_results_without_a_panel_are_refused() -> None:
    labels = xr.Dataset({"z": (("chain", "draw"), np.zeros((1, 9), int))})
    with pytest.raises(ValueError, match=r"no continuous site, only \['z'\]"):
        plot_posteriors({"fit": xr.DataTree.from_dict({"posterior": labels})})
    with pytest.raises(ValueError, match="needs a result and a panel, got 0 results"):
        plot_posteriors({})
