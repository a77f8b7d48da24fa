"""Likelihoods of whole rows with what belongs to a row integrated out in closed form, where that is proven.

The integrals are functions of a draw, whatever it was drawn from, so draws of the prior stand for those of a posterior.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayeslab as bl
from bayeslab.models import gaussian_mixture, ppca

ROWS = 9


def looked_up(order: Any, y: Any = None) -> None:
    """An effect for every row, at other positions than the rows themselves."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    with numpyro.plate("row", len(order)):
        effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(effect[order], 0.5), obs=y)


def neighbours(y: Any) -> None:
    """Rows that share effects with the next one."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    with numpyro.plate("row", len(y)):
        effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(effect + jnp.roll(effect, 1), 0.5), obs=y)


def left_out(model: Any, data: dict[str, Any]) -> tuple[Any, Any]:
    """Draws of the prior and the log likelihoods of rows given them."""
    tree = bl.simulate(0, model, data, 20)
    tree["posterior"] = tree["prior"]
    return tree["posterior"].isel(chain=0), bl.log_likelihood(model, data, tree, "row")["log_likelihood"]


@pytest.mark.parametrize(("num_factors", "num_features"), [(2, 6), (4, 9)])
def test_factors_of_rows_with_gaps(num_factors: int, num_features: int) -> None:
    """Nine rows, of which one has no entry and one lacks two: given loadings they are independent Normals."""
    y = np.random.default_rng(0).normal(1.0, 2.0, (ROWS, num_features))
    y[3], y[5, :2] = np.nan, np.nan
    shapes = {"num_rows": ROWS, "num_features": num_features, "num_factors": num_factors}
    draws, likelihood = left_out(ppca.model, ppca.example() | shapes | {"y": y})
    assert likelihood.attrs["integrated_out"] == ["z"]
    assert list(likelihood["row"].values) == [str(row) for row in range(ROWS) if row != 3]
    for draw in (0, 11):
        w, mu, tau = (draws[name].values[draw] for name in ("w", "mu", "tau"))
        covariance = w @ w.T + np.eye(num_features) / tau
        exact = []
        for row in np.delete(y, 3, 0):
            seen = ~np.isnan(row)
            exact.append(stats.multivariate_normal(mu[seen], covariance[np.ix_(seen, seen)]).logpdf(row[seen]))
        np.testing.assert_allclose(likelihood["y"].values[0, draw], exact, rtol=1e-9)


def test_labels_of_rows() -> None:
    draws, likelihood = left_out(gaussian_mixture.model, gaussian_mixture.example())
    assert likelihood.attrs["integrated_out"] == ["z"]
    y = np.asarray(gaussian_mixture.example()["y"])
    weights, mu, tau = (draws[name].values[7] for name in ("weights", "mu", "tau"))
    exact = np.log(stats.norm.pdf(y[:, None], mu, tau**-0.5) @ weights)
    np.testing.assert_allclose(likelihood["y"].values[0, 7], exact, rtol=1e-9)


def test_effects_at_other_positions_belong_to_the_rows_that_see_them() -> None:
    order, y = np.array([2, 0, 3, 1]), np.array([0.3, -1.0, 2.0, 0.1])
    draws, likelihood = left_out(looked_up, {"order": order, "y": y})
    assert likelihood.attrs["integrated_out"] == ["effect"]
    scale = float(draws["scale"].values[5])
    exact = stats.norm.logpdf(y, 0.0, np.hypot(scale, 0.5))
    np.testing.assert_allclose(likelihood["y"].values[0, 5], exact, atol=1e-3)


def test_rows_that_share_effects_are_given_them() -> None:
    y = np.array([0.3, -1.0, 2.0, 0.1, 0.5])
    draws, likelihood = left_out(neighbours, {"y": y})
    assert likelihood.attrs["integrated_out"] == []
    effect = draws["effect"].values[5]
    exact = stats.norm.logpdf(y, effect + np.roll(effect, 1), 0.5)
    np.testing.assert_allclose(likelihood["y"].values[0, 5], exact, rtol=1e-9)


def test_groups_of_which_nothing_is_shared() -> None:
    """Counts with probabilities of their own, some of them zero: Dirichlet-multinomial, the same for every draw."""
    counts = np.array([[3, 1, 0], [2, 0, 1], [0, 5, 1]])

    def model(y: Any) -> None:
        with numpyro.plate("group", 3):
            p = numpyro.sample("p", dist.Dirichlet(np.ones(3)))
            numpyro.sample("y", dist.Multinomial(y.sum(-1), p), obs=y)

    tree = bl.fit(0, model, {"y": counts}, bl.Exact(10), progress=False)
    likelihood = bl.log_likelihood(model, {"y": counts}, tree, "group")["log_likelihood"]["y"]
    expected = [stats.dirichlet_multinomial.logpmf(row, np.ones(3), row.sum()) for row in counts]
    np.testing.assert_allclose(likelihood[0], np.tile(expected, (10, 1)), rtol=1e-9)
