"""Matrices of coefficients with unknown noise: conditionals and evidence in closed form."""

from collections.abc import Callable

import numpy as np
import pytest

import bayeslab as bl
import zoo_matrices as zoo
from evidences import matrix_normal_rows


@pytest.mark.slow
@pytest.mark.parametrize("program", [zoo.matrix_normal_wishart, zoo.matrix_normal_inverse_wishart])
def test_evidence_and_posterior_mean(program: Callable[[], None]) -> None:
    """The evidence of both parametrisations, one row after the other; the mean of theta and its covariance."""
    tree = bl.fit(0, program, {"y": zoo.AFTER}, bl.Exact(4000), progress=False)
    u, y = zoo.REGRESSORS, zoo.AFTER
    expected = matrix_normal_rows(y, u, zoo.MEAN, zoo.COLUMNS, zoo.RATE, zoo.DEGREES)
    np.testing.assert_allclose(tree.attrs["log_evidence"], expected, rtol=1e-10)
    k_n = zoo.COLUMNS + u.T @ u
    m_n = np.linalg.solve(k_n, (zoo.MEAN @ zoo.COLUMNS + y.T @ u).T).T
    rate = zoo.RATE + y.T @ y + zoo.MEAN @ zoo.COLUMNS @ zoo.MEAN.T - m_n @ k_n @ m_n.T
    theta = tree["posterior"]["theta"].values[0]
    sd = np.sqrt(np.outer(np.diag(rate), np.diag(np.linalg.inv(k_n))) / (zoo.DEGREES + 6 - 3))
    assert (abs(theta.mean(0) - m_n) < 5 * sd / np.sqrt(4000)).all()
    np.testing.assert_allclose(theta.std(0), sd, rtol=0.1)
