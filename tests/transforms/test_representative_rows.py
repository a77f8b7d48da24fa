"""Few rows in place of many: the same log density with the sites of rows integrated out, or none at all."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from xarray import DataTree

import bayeslab as bl
from bayeslab.models import factor_analysis, ppca
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.transforms.collapse import elimination_rules, marginal, with_representatives
from bayeslab.transforms.sufficient_statistics.representative_rows import representative_rows
from quick_cases import quick_ones

RNG = np.random.default_rng(5)
ROWS = 60
Z = RNG.normal(size=(ROWS, 2))
Y = Z @ RNG.normal(size=(2, 4)) + 3 + RNG.uniform(0.3, 0.9, 4) * RNG.normal(size=(ROWS, 4))
SCALES = np.full(ROWS, 0.7)
SCALES[7] = 0.71


def factor_data(y: Any = Y) -> dict[str, Any]:
    return {"num_rows": len(y), "num_features": y.shape[1], "num_factors": 2, "y": y}


def two_tables(num_rows: int) -> None:
    """An effect of a row that is seen in a number and in a pair, with another number beside it."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Normal(0.0, scale))
        numpyro.sample("single", dist.Normal(z, 0.5))
        numpyro.sample("pair", dist.Normal((b * z)[:, None], jnp.array([0.3, 2.0])).to_event(1))
        numpyro.sample("aside", dist.Normal(b, 1.0))


TABLES = {"num_rows": ROWS, "single": Y[:, 0], "pair": Y[:, 1:3], "aside": Y[:, 3]}


def row_effects(noise: Callable[[Any, Any, Any], Any]) -> Callable[[int], None]:
    """An effect of a row in two numbers. noise: from position, effect and slope to the distribution of the first."""

    def model(num_rows: int) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", num_rows) as position:
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("first", noise(position, z, b))
            numpyro.sample("second", dist.Normal(z, 0.5))

    return model


FALSE = {
    "a precision that one row has to itself": lambda at, z, b: dist.Normal(b * z, jnp.asarray(SCALES)[at]),
    "a mean that goes with the position": lambda at, z, b: dist.Normal(b * z + 1e-6 * at, 1.0),
    "covariates of rows": lambda at, z, b: dist.Normal(z + b * jnp.asarray(Z[:, 0]), 1.0),
    "a density beside that is nearly Normal": lambda at, z, b: dist.StudentT(200.0, b, 1.0).expand(z.shape),
    "a slope that goes with the position": lambda at, z, b: dist.Normal(b * z * (1 + (at == 3)), 1.0),
}
EFFECTS = {"num_rows": ROWS, "first": Y[:, 0], "second": Y[:, 1]}


def found(model: Callable[..., None], data: dict[str, Any]) -> tuple[Bound, Any]:
    bound = marginal(bind(model, data), ("z",))
    return bound, representative_rows(bound.plain, elimination_rules(bound))


@pytest.mark.parametrize(
    ("model", "data", "number"),
    [
        (factor_analysis.model, factor_data(), 5),
        pytest.param(
            ppca.model, factor_data(np.column_stack([Y[:, :3], np.full(ROWS, 2.0)])), 5, marks=pytest.mark.slow
        ),
        (two_tables, TABLES, 5),
    ],
    ids=["factor analysis", "a constant column", "two tables"],
)
def test_few_rows_have_the_density_of_all(model: Any, data: dict[str, Any], number: int) -> None:
    with precision_scope():
        bound, rows = found(model, data)
        assert (rows.size, rows.number) == (ROWS, number)
        few = with_representatives(bound, rows)
        assert all(few.observed[name].shape[0] == number for name in rows.terms)
        for seed in range(3):
            keys = jax.random.split(jax.random.PRNGKey(seed), len(bound.latent))
            values = {
                name: jnp.exp(jax.random.normal(key, bound.sites[name].shape))
                for name, key in zip(bound.latent, keys, strict=True)
            }
            np.testing.assert_allclose(few.log_joint(values), bound.log_joint(values), rtol=1e-10)


@pytest.mark.parametrize(
    "name",
    quick_ones(
        FALSE,
        "a precision that one row has to itself",
        "a mean that goes with the position",
        "a density beside that is nearly Normal",
    ),
)
def test_rows_that_differ_are_not_represented(name: str) -> None:
    noise = FALSE[name]
    with precision_scope():
        assert found(row_effects(noise), EFFECTS)[1] is None


def test_few_or_incomplete_rows_stay() -> None:
    y = Y.copy()
    y[3, 1] = np.nan
    with precision_scope():
        assert found(factor_analysis.model, factor_data(y))[1] is None
        assert found(factor_analysis.model, factor_data(Y[:15]))[1] is None


def covariance(tree: DataTree) -> Any:
    draw = tree["posterior"].to_dataset().isel(chain=0, draw=0)
    return draw["w"].values @ draw["w"].values.T + np.diag(1 / np.broadcast_to(draw["tau"].values, len(draw["w"])))


def test_em_finds_the_maximum_and_the_factors_of_all_rows() -> None:
    y = np.random.default_rng(2).normal(size=(4000, 2)) @ np.array([[1.0, 2.0, -1.0, 0.5], [0.3, -1.0, 1.0, 2.0]])
    y += 0.5 * np.random.default_rng(3).normal(size=y.shape)
    flat = {"loading_scale": 1e6, "location_scale": 1e7, "alpha": 1.0, "beta": 1e-13}
    method, data = bl.EM(collapse=("z",)), factor_data(y) | flat
    with precision_scope():
        assert method.plan(Analysis(bind(ppca.model, data))).statistics[0].number == 5
        w, _, tau = map(np.asarray, ppca.maximum_likelihood(y, 2))
    tree = bl.fit(0, ppca.model, data, method, progress=False)
    np.testing.assert_allclose(covariance(tree), w @ w.T + np.eye(4) / tau, atol=1e-6)
    draw = tree["posterior"].to_dataset().isel(chain=0, draw=0)
    with precision_scope():
        z = ppca.factors(y, draw["w"].values, draw["mu"].values, draw["tau"].values)[0]
    np.testing.assert_allclose(draw["z"].values, z, atol=1e-8)


@pytest.mark.slow
def test_nuts_draws_from_the_same_posterior() -> None:
    """Also of sites whose prior has an unknown scale."""
    draws = []
    for statistics in (False, True):
        method = bl.NUTS(num_samples=1000, collapse=("z",), statistics=statistics)
        tree = bl.fit(0, two_tables, TABLES, method, progress=False)
        posterior = tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
        draws.append(np.stack([abs(posterior["b"].values), posterior["scale"].values, posterior["z"].values[0]]))
    first, second = draws
    assert (abs(first.mean(1) - second.mean(1)) < 0.15 * first.std(1)).all()
    assert (abs(np.log(first.std(1) / second.std(1))) < 0.15).all()
