"""The sparse prior of a precision: its mode against the graphical lasso of scikit-learn, draws against quadrature."""

from typing import Any

import arviz as az
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import expon, laplace
from sklearn.covariance import graphical_lasso

import bayeslab as bl
from bayeslab.models import gaussian_markov_net

SPREAD = 1.5


def flowers() -> dict[str, Any]:
    data = gaussian_markov_net.data()
    return {name: data[name] for name in ("num_rows", "mu", "y")}


def test_the_mode_is_the_graphical_lasso() -> None:
    """Which penalises the sum of both halves of the matrix: n / 2 times its objective is the log posterior where the
    diagonal adds its share to the covariance."""
    data = flowers()
    y, penalty = np.asarray(data["y"]), 1 / (data["num_rows"] * SPREAD)
    tree = bl.fit(0, gaussian_markov_net.sparse_model, data | {"spread": SPREAD}, bl.MAP(), progress=False)
    found = tree["posterior"]["precision"].values.reshape(4, 4)
    right = graphical_lasso(y.T @ y / len(y) + penalty * np.eye(4), penalty, tol=1e-5, enet_tol=1e-10)[1]
    np.testing.assert_allclose(found, right, rtol=1e-3, atol=2e-3)
    assert 0 < np.count_nonzero(right[np.triu_indices(4, 1)]) < 6


def quadrature_of_two_nodes(y: np.ndarray) -> tuple[float, float]:
    """Posterior means of the two elements of the first row, over the diagonal and the partial correlation."""
    own = np.linspace(0.01, 14.0, 140)
    first, second, r = np.meshgrid(own, own, np.linspace(-0.999, 0.999, 201), indexing="ij")
    beside = r * np.sqrt(first * second)
    squares, products = (y**2).sum(0), (y[:, 0] * y[:, 1]).sum()
    log_density = len(y) / 2 * np.log(first * second * (1 - r**2))
    log_density -= (squares[0] * first + squares[1] * second + 2 * products * beside) / 2
    log_density += laplace(scale=SPREAD).logpdf(beside) + np.log(first * second) / 2  # from r to the element
    log_density += expon(scale=2 * SPREAD).logpdf(first) + expon(scale=2 * SPREAD).logpdf(second)
    weights = np.exp(log_density - log_density.max())
    return float(np.average(first, weights=weights)), float(np.average(beside, weights=weights))


@pytest.mark.slow
def test_draws_of_two_nodes_have_the_means_of_quadrature() -> None:
    y = np.array([[0.5, 0.2], [-1.0, -0.4], [0.3, 0.6], [1.2, 0.5], [-0.6, -1.1]])
    data = {"num_rows": 5, "mu": jnp.zeros(2), "spread": SPREAD, "y": y}
    tree = bl.fit(0, gaussian_markov_net.sparse_model, data, bl.NUTS(500, 1000), progress=False)
    for column, right in enumerate(quadrature_of_two_nodes(y)):
        draws = tree["posterior"]["precision"][..., 0, column]
        assert abs(float(draws.mean()) - right) < 4.5 * float(az.mcse(draws))
