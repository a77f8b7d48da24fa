"""The simulated image that is seen by its sums along lines."""

import numpy as np
import pytest

from bayeslab.datasets import simulated_tomogram


def test_lines_cover_the_image() -> None:
    """Every pixel is in one row and one column, and in one diagonal each way; rows add up to what columns do."""
    found = simulated_tomogram()
    lines, sums = found["a"], found["y"]
    for kind in ("row", "column", "falling", "rising"):
        chosen = [name for name in lines.direction.values if name.startswith(kind)]
        np.testing.assert_array_equal(lines.sel(direction=chosen).sum("direction"), 1)
        assert abs(float(sums.sel(direction=chosen).sum()) - 9) < 9 * 0.1 * 6
    assert (np.linalg.eigvalsh(found["precision"]) > 0).all()


def test_seeds_are_obeyed_or_refused() -> None:
    np.testing.assert_array_equal(simulated_tomogram(seed=1)["y"], simulated_tomogram(seed=1)["y"])
    assert (simulated_tomogram(seed=1)["y"] != simulated_tomogram(seed=2)["y"]).any()
    with pytest.raises(ValueError, match="seed"):
        simulated_tomogram(seed=-1)
