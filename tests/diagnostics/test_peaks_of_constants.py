"""Parameters that have one value, rounding apart, have one peak, and results with names that repeat are compared."""

import numpy as np
import xarray as xr

from bayeslab.diagnostics.compare import compare_parameters
from bayeslab.diagnostics.peaks import find_peaks


def test_a_constant_has_one_peak() -> None:
    draws = np.full(4000, 0.1 * 3)
    assert find_peaks(draws, 4000.0) == [draws.mean()]
    draws[::2] = np.nextafter(draws[0], 1)
    assert len(find_peaks(draws, 4000.0)) == 1


def test_two_peaks_close_to_each_other_relative_to_their_size_are_found() -> None:
    rng = np.random.default_rng(0)
    draws = 1000 + 1e-3 * (rng.normal(size=4000) + np.where(rng.random(4000) < 0.5, -4, 4))
    assert len(find_peaks(draws, 4000.0)) == 2


def result(seed: int) -> xr.DataTree:
    draws = np.random.default_rng(seed).normal(size=(2, 50, 6))
    names = {"row": [0, 1, 2, 0, 1, 2], "chain": range(2), "draw": range(50)}
    posterior = xr.Dataset({"effect": (("chain", "draw", "row"), draws)}, names)
    return xr.DataTree.from_dict({"posterior": posterior})


def test_rows_with_equal_names_are_compared_by_position() -> None:
    table = compare_parameters({"a": result(0), "b": result(1)})
    assert table.sizes["parameter"] == 6
    right = result(1)["posterior"]["effect"].mean(("chain", "draw")).values
    np.testing.assert_allclose(table["mean"].sel(posterior="b").values, right)
