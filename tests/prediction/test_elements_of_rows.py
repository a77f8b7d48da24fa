"""Which effects are integrated out of the likelihood of a row: its own, whole, with their densities, and no others."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.integrate import quad, quad_vec
from scipy.special import logsumexp
from scipy.stats import norm, poisson, t

import bayeslab as bl

SMALL = bl.NUTS(num_warmup=100, num_samples=20, num_chains=2)
RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(4), 5)
X = RNG.normal(size=20)
Y = RNG.normal(size=4)[GROUP] + 0.5 * X + RNG.standard_t(5, size=20)


def effects(group: Any, x: Any, num_groups: int, y: Any = None) -> None:
    """Intercepts and slopes of groups that are correlated, and rows with heavy tails."""
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    with numpyro.plate("group", num_groups):
        covariance = sd**2 * jnp.array([[1.0, 0.6], [0.6, 1.0]])
        effect = numpyro.sample("effect", dist.MultivariateNormal(jnp.zeros(2), covariance))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.StudentT(5.0, effect[group, 0] + effect[group, 1] * x, 1.0), obs=y)


def test_known_groups_with_one_new_row_each_keep_their_effects() -> None:
    tree = bl.fit(0, effects, {"group": GROUP, "x": X, "num_groups": 4, "y": Y}, SMALL, progress=False)
    new_x, new_y = np.array([0.5, -1.0, 0.0, 2.0]), np.array([3.0, -2.0, 0.5, 4.0])
    new = {"group": np.arange(4), "x": new_x, "num_groups": 4, "y": new_y}
    found = bl.predict(1, effects, new, tree)["predictions_log_likelihood"]
    effect = tree.posterior["effect"].values
    np.testing.assert_allclose(
        found["y"], t.logpdf(new_y, 5.0, effect[..., 0] + effect[..., 1] * new_x), rtol=1e-10, atol=1e-10
    )
    assert list(np.atleast_1d(found.attrs["integrated_out"])) == []


def exact_log_density(sd: float, x: float, y: float) -> float:
    """Of a row of a new group: its mean is Normal."""
    scale = sd * np.sqrt(1 + x**2 + 1.2 * x)
    integral, _ = quad(
        lambda mean: np.exp(t.logpdf(y, 5.0, mean) + norm.logpdf(mean, 0, scale)), -30, 30, points=[0, y]
    )
    return float(np.log(integral))


def test_new_groups_beside_known_ones_are_integrated_out_whole() -> None:
    """The new groups are seen at x = 0, where no row sees their slopes, and at another x."""
    tree = bl.fit(0, effects, {"group": GROUP, "x": X, "num_groups": 4, "y": Y}, SMALL, progress=False)
    new_x, new_y = np.array([0.5, 0.0, 1.5]), np.array([3.0, -2.0, 0.5])
    new = {"group": np.array([2, 4, 5]), "x": new_x, "num_groups": 6, "y": new_y}
    found = bl.predict(1, effects, new, tree)["predictions_log_likelihood"]
    assert list(np.atleast_1d(found.attrs["integrated_out"])) == ["effect"]
    effect, sd = tree.posterior["effect"].values[:, :, 2], tree.posterior["sd"].values
    known = t.logpdf(new_y[0], 5.0, effect[..., 0] + effect[..., 1] * new_x[0])
    np.testing.assert_allclose(found["y"][..., 0], known, rtol=1e-6)
    for place in (1, 2):
        right = [exact_log_density(each, new_x[place], new_y[place]) for each in sd.ravel()[:10]]
        np.testing.assert_allclose(found["y"].values[..., place].ravel()[:10], right, atol=2e-3)


def uniform_rates(y: Any) -> None:
    level = numpyro.sample("level", dist.Gamma(2.0, 2.0))
    with numpyro.plate("row", len(y)):
        rate = numpyro.sample("rate", dist.Uniform(0.5, 6.0))
        numpyro.sample("y", dist.Poisson(rate * level), obs=y)


def test_a_constant_density_is_a_part_of_the_integral() -> None:
    counts = np.array([0, 2, 5, 11])
    tree = bl.fit(0, uniform_rates, {"y": counts}, SMALL, progress=False)
    tree = bl.predict(1, uniform_rates, {"y": counts}, tree)
    found = tree["log_likelihood"]["y"].values
    assert (found < 0).all()  # probabilities
    for chain, draw in ((0, 0), (1, 7)):
        level = float(tree.posterior["level"][chain, draw])
        right, _ = quad_vec(lambda rate, level=level: poisson.pmf(counts, rate * level) / 5.5, 0.5, 6.0)
        np.testing.assert_allclose(found[chain, draw], np.log(right), atol=2e-3)


def test_an_effect_that_no_row_sees_is_integrated_out_with_the_one_beside_it() -> None:
    counts, seen = np.array([0, 2, 5, 11]), np.zeros(4)

    def pairs(z: Any, y: Any) -> None:
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(y)):
            e = numpyro.sample("e", dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.8], [0.8, 1.0]])))
            numpyro.sample("y", dist.Poisson(jnp.exp(level + 0.5 * (e[:, 0] + z * e[:, 1]))), obs=y)

    tree = bl.fit(0, pairs, {"z": seen, "y": counts}, SMALL, progress=False)
    found = bl.predict(1, pairs, {"z": seen, "y": counts}, tree)["log_likelihood"]["y"].values[0, 0]
    level, grid = float(tree.posterior["level"][0, 0]), np.linspace(-9, 9, 4001)
    right = logsumexp(poisson.logpmf(counts[:, None], np.exp(level + 0.5 * grid)) + norm.logpdf(grid), axis=1)
    np.testing.assert_allclose(found, right + np.log(grid[1] - grid[0]), atol=2e-3)


@pytest.mark.parametrize("visits", [1, 2])
def test_rows_of_one_group_are_given_its_effect(visits: int) -> None:
    tree = bl.fit(0, effects, {"group": GROUP, "x": X, "num_groups": 4, "y": Y}, SMALL, progress=False)
    group = np.repeat([0, 3], visits)
    new = {"group": group, "x": np.ones(len(group)), "num_groups": 4, "y": np.arange(len(group)) * 1.0}
    found = bl.predict(1, effects, new, tree)["predictions_log_likelihood"]["y"]
    mean = tree.posterior["effect"].values.sum(-1)[..., group]
    np.testing.assert_allclose(found, t.logpdf(new["y"], 5.0, mean), rtol=1e-10)


COVARIANCE = 0.8 + 0.2 * np.eye(3)


def vectors(x: Any, y: Any = None) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.MultivariateNormal(slope * x[:, None] * jnp.ones(3), COVARIANCE), obs=y)


def test_missing_numbers_of_a_new_vector_are_drawn_given_the_others() -> None:
    x = np.linspace(-1, 1, 12)
    y = np.random.default_rng(1).multivariate_normal(np.zeros(3), COVARIANCE, 12) + x[:, None]
    tree = bl.fit(0, vectors, {"x": x, "y": y}, bl.Exact(num_samples=4000), progress=False)
    new = {"x": np.array([0.5, 0.0, 1.0]), "y": np.array([[3.0, 3.0, np.nan], [np.nan, -2.0, -2.0], [1.0, 2.0, 3.0]])}
    drawn = bl.predict(1, vectors, new, tree)["predictions"]["y"].values[0]
    weights = COVARIANCE[2, :2] @ np.linalg.inv(COVARIANCE[:2, :2])
    sd = np.sqrt(1 - weights @ COVARIANCE[2, :2])
    means = tree.posterior["slope"].values[0][:, None] * new["x"]
    residuals = np.stack(
        [drawn[:, 0, 2] - means[:, 0] - (3 - means[:, 0]) * weights.sum(), drawn[:, 1, 0] + 2 * weights.sum()], 1
    )
    np.testing.assert_allclose(residuals.mean(0), 0.0, atol=4.5 * sd / np.sqrt(4000))
    np.testing.assert_allclose(residuals.std(0), sd, rtol=4.5 / np.sqrt(8000))
    anew = (drawn - means[..., None])[:, [0, 1, 2], [0, 1, 2]]  # known numbers are drawn as if none were known
    np.testing.assert_allclose(anew.std(0), 1.0, rtol=4.5 / np.sqrt(8000))


def test_numbers_are_no_categories_that_are_other_numbers() -> None:
    """Of groups 1, 2 and 3 the number 1 would be the second."""

    def levels(group: Any, y: Any = None) -> None:
        with numpyro.plate("level", 3):
            mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        with numpyro.plate("row", len(group)):
            numpyro.sample("y", dist.Normal(mean[group], 1.0), obs=y)

    group = pd.Series([1, 2, 3, 1, 2, 3]).astype("category")
    tree = bl.fit(0, levels, {"group": group, "y": np.array([-2.0, 0, 3, -2, 0, 3])}, bl.Exact(100), progress=False)
    with pytest.raises(ValueError, match="entry 'group' holds numbers, but the fit had the categories 1, 2, 3"):
        bl.predict(1, levels, {"group": pd.Series([1, 2])}, tree)
    new = pd.Series([1, 2]).astype(pd.CategoricalDtype([1, 2, 3]))
    drawn = bl.predict(1, levels, {"group": new}, tree)["predictions"]["y"]
    np.testing.assert_allclose(drawn.mean(("chain", "draw")), tree.posterior["mean"].values[0, :, :2].mean(0), atol=0.6)
