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
    assert np.abs(residual).max() <= 8 * given["noise"] + 1e-9
