"""What has to hold for the data of simulated tables."""

from typing import Any

import numpy as np
import xarray as xr


def moons_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    assert found["x"].shape == (given["num_rows"], 2)
    assert np.isfinite(found["x"]).all()
    assert int(found["y"].sum()) == given["num_rows"] - given["num_rows"] // 2


def visitors_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    assert found["x"].shape == (given["num_hours"], 5)
    assert (found["x"][:, 0] == 1).all()
    assert found["x"][:, 2:].isin([0, 1]).all()
    assert found["y"].dtype.kind == "i"
    assert (found["y"] >= 0).all()


def mails_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    assert found["x"].shape == (given["num_mails"], 12)
    assert (found["x"].sum("word") >= 1).all()
    assert found["y"].isin(range(3)).all()


def returns_law(found: dict[str, Any], given: dict[str, Any]) -> None:
    assert found["num_steps"] == given["num_steps"] == len(found["y"])
    assert np.isfinite(found["y"]).all()


def tomogram_law(found: dict[str, Any], given: dict[str, Any]) -> None:
    assert found["a"].sum("direction").isin([4.0]).all()  # a pixel is in a row, a column and both diagonals
    assert np.abs(found["y"].sum() - 4 * 5).item() < 5 * 0.1 * np.sqrt(found["y"].size)  # a disc of 5 pixels


def party_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    assert found["y"].shape == (given["num_times"], given["num_microphones"])
    assert np.abs(found["y"].mean("row")).max() < 1e-9 * (1 + np.abs(found["y"]).max())
    residual = found["y"] - found["sources"].dot(found["a"])
    assert np.abs(residual).max() <= 8 * float(given["noise"]) + 1e-9


def casino_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    assert found["z"].dims == found["y"].dims == ("sequence", "step")
    assert found["z"].shape == found["y"].shape == (given["num_sequences"], given["num_steps"])
    assert found["z"].isin([0, 1]).all()
    assert found["y"].isin(range(6)).all()
    assert (found["z"][:, 0] == 0).all()


def track_law(found: dict[str, Any], given: dict[str, Any]) -> None:
    steps = np.arange(given["num_steps"])
    assert found["num_steps"] == len(steps)
    assert found["y"].dims == ("step", "direction")
    silent = (steps >= len(steps) // 2) & (steps < 3 * len(steps) // 4)
    np.testing.assert_array_equal(np.isnan(found["y"]), np.stack([silent, silent], axis=1))


def words_law(found: dict[str, xr.DataArray], given: dict[str, Any]) -> None:
    x, y = found["x"], found["y"]
    assert x.shape == (given["num_words"], 3, 4)
    assert (x.sum("feature") == 1).all()
    assert {tuple(word) for word in y.values} <= {(0, 1, 4), (2, 3, 4)}


def walk_law(found: dict[str, Any], given: dict[str, Any]) -> None:
    assert len(found["state"]) == given["num_moves"]
    np.testing.assert_array_equal(found["state"][1:], found["next_state"][:-1])
    assert found["action"].isin(range(4)).all()
    assert found["state"].isin(range(12)).all()


def pendulum_law(found: dict[str, xr.DataArray], given: dict[str, Any]) -> None:
    assert found["y"].shape == (given["num_steps"], 2)
    np.testing.assert_array_equal(found["state"][1:], found["y"][:-1])


def pole_law(found: dict[str, Any], given: dict[str, Any]) -> None:
    assert found["y"].shape == (given["num_actions"] + 1, 1)
    assert found["action"].shape == (given["num_actions"], 1)
    assert np.abs(found["y"]).max() < 1  # it is kept upright
