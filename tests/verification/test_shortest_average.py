"""The shortest average of gradients around a point, which is zero at a kink that is a maximum."""

from typing import Any

import numpy as np
import pytest

from bayeslab.verification import optimum

SLOPES = np.array([[3.0, 1.0], [-1.0, 1.0], [0.0, 2.0]])


def test_it_is_that_of_the_best_weights() -> None:
    shares = np.linspace(0, 1, 1001)[:, None]
    averages = shares * SLOPES[0] + (1 - shares) * SLOPES[1]  # the third is above both
    shortest = averages[np.argmin(np.linalg.norm(averages, axis=1))]
    np.testing.assert_allclose(optimum._shortest_average(SLOPES), shortest, atol=0.01)


def test_least_squares_that_do_not_end_leave_one_of_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(optimum, "nnls", endless)
    np.testing.assert_array_equal(optimum._shortest_average(SLOPES), SLOPES[1])
