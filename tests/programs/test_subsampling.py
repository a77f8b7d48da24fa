"""Subsampled plates: whole for every method, batches for MeanField."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.methods.minibatches.batches import SubsampledPlate, batch_bound, subsampled_plates
from bayeslab.programs.program import precision_scope

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 2))
Y = X @ np.array([1.0, -2.0]) + 0.5 * RNG.normal(size=300)
MIXED = np.concatenate([RNG.normal(-2.0, 0.7, 300), RNG.normal(1.5, 1.0, 700)])
EFFECTS = np.where(np.arange(200) < 60, 3.0, -3.0) + RNG.normal(0.0, 1.1, 200)
SAMPLE = ["chain", "draw"]


def regression(x: Any, batch: int | None = None) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("row", len(x), subsample_size=batch):
        mean = numpyro.subsample(x, event_dim=1) @ w
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)))


def written(x: Any, y: Any, batch: int) -> None:
    """The same in NumPyro's own way, the rows of a batch picked by index."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("row", len(x), subsample_size=batch) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ w, 1 / jnp.sqrt(tau)), obs=y[rows])


def mixture(y: Any, batch: int | None = None) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("component", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(y), subsample_size=batch):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("obs", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])), obs=numpyro.subsample(y, 0))


def crossed(n: int, batch: int | None = None) -> None:
    """Two subsampled plates, effects of the elements of one."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    columns = numpyro.plate("column", 4, dim=-1, subsample_size=batch)
    with numpyro.plate("row", n, dim=-2, subsample_size=batch):
        effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
        with columns:
            numpyro.sample("y", dist.Normal(effect, 1.0))


def labelled_effects(n: int, batch: int | None = None) -> None:
    """An effect and a label for every row."""
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
    with numpyro.plate("row", n, subsample_size=batch):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        effect = numpyro.sample("effect", dist.Normal(mu[z], 1.0))
        numpyro.sample("y", dist.Normal(effect, 0.5))


def everything_inside(n: int) -> None:
    with numpyro.plate("row", n, subsample_size=2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0))


def test_the_plate_is_drawn_whole() -> None:
    """The Bound, hence every method, has the log joint of all rows."""
    gaps = np.where(np.arange(300) % 7 == 0, np.nan, Y)
    data = {"x": X, "batch": 20, "y": gaps}
    with precision_scope():
        whole = bl.bind(regression, {"x": X, "y": gaps})
        at = {"tau": jnp.array(1.3), "w": jnp.array([0.8, -1.9])}
        for model in (regression, written):
            bound = bl.bind(model, data)
            assert bound.latent == ("tau", "w")
            np.testing.assert_allclose(bound.log_joint(at), whole.log_joint(at), rtol=1e-12)
    tree = bl.fit(0, written, data, bl.MAP(num_starts=1), progress=False)
    np.testing.assert_allclose(tree["posterior"]["w"].values[0, 0], [1.0, -2.0], atol=0.2)
    assert bl.simulate(0, regression, {"x": X, "batch": 20}, num_samples=3)["prior"]["y"].shape == (1, 3, 300)


def test_the_log_joint_is_the_sum_of_those_of_batches() -> None:
    """Law: disjoint batches that cover the plates add up to the whole, without counting anything twice."""
    y = RNG.normal(size=(6, 4))
    y[2, 1] = np.nan
    with precision_scope():
        bound = bl.bind(crossed, {"n": 6, "batch": 2, "y": y})
        assert subsampled_plates(bound) == (SubsampledPlate("column", 4, 2), SubsampledPlate("row", 6, 2))

        def prior(mu: Any, effect: Any) -> Any:
            return dist.Normal(0.0, 1.0).log_prob(mu) + dist.Normal(mu, 1.0).log_prob(effect).sum()

        effect, mu = jnp.asarray(RNG.normal(size=(6, 1))), jnp.array(0.3)
        parts = 0.0
        for rows in ([0, 5], [3, 1], [2, 4]):
            for columns in ([0, 2], [1, 3]):
                small = batch_bound(bound, {"row": jnp.array(rows), "column": jnp.array(columns)})
                mine = effect[jnp.array(rows)]
                parts += small.log_joint({"mu": mu, "effect": mine}) - prior(mu, mine)
        np.testing.assert_allclose(parts + prior(mu, effect), bound.log_joint({"mu": mu, "effect": effect}), rtol=1e-12)


CASES: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "mixture": (mixture, {"y": MIXED, "batch": 50}),
    "two sites a row": (labelled_effects, {"n": 200, "y": EFFECTS, "batch": 50}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("mixture", marks=pytest.mark.slow), "two sites a row"])
def test_batches_lead_to_the_mean_field_of_all_rows(name: str) -> None:
    """Within the noise of the last steps, a fraction of a standard deviation of the posterior."""
    model, data = CASES[name]
    settings: dict[str, Any] = {"num_starts": 3, "num_samples": 4000}
    whole = bl.fit(0, model, {n: v for n, v in data.items() if n != "batch"}, bl.MeanField(**settings), progress=False)
    tree = bl.fit(0, model, data, bl.MeanField(num_steps=4000, **settings), progress=False)
    assert set(tree["posterior"]) == set(whole["posterior"]) - {"z", "effect"}
    for site in tree["posterior"]:
        one, other = (np.sort(t["posterior"][site].mean(SAMPLE).values, axis=None) for t in (tree, whole))
        deviations = [np.sort(t["posterior"][site].std(SAMPLE).values, axis=None) for t in (tree, whole)]
        assert np.all(np.abs(one - other) < 0.6 * deviations[1]), site
        np.testing.assert_allclose(*deviations, rtol=0.15)
    assert abs(tree.attrs["elbo"] - whole.attrs["elbo"]) < 5 * tree.attrs["elbo_se"] < 0.1 * abs(whole.attrs["elbo"])


def one_mean(n: int, batch: int | None = None) -> None:
    """The factor is the posterior, so the bound is the evidence."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n, subsample_size=batch):
        numpyro.sample("y", dist.Normal(mu, 1.0))


@pytest.mark.parametrize(("num_starts", "number"), [pytest.param(1, 150, marks=pytest.mark.slow), (10, 40)])
def test_the_bound_has_the_standard_error_that_is_stated(num_starts: int, number: int) -> None:
    """Also where the best of several starts is kept: which one is best says nothing of the batches of the bound."""
    y = np.random.default_rng(0).normal(1.0, 1.0, 40)
    evidence = bl.fit(0, one_mean, {"n": 40, "y": y}, bl.Exact(10), progress=False).attrs["log_evidence"]
    method = bl.MeanField(num_steps=500, num_samples=2, num_starts=num_starts)
    fits = [bl.fit(key, one_mean, {"n": 40, "y": y, "batch": 8}, method, progress=False) for key in range(number)]
    scores = np.array([(tree.attrs["elbo"] - evidence) / tree.attrs["elbo_se"] for tree in fits])
    assert abs(scores.mean()) < 4 / np.sqrt(number)
    assert abs(scores.std() - 1) < 3 / np.sqrt(2 * number)


def test_a_fit_that_goes_on_has_the_bound_of_its_last_factors() -> None:
    data = {"n": 200, "y": EFFECTS, "batch": 50}
    method = bl.MeanField(num_steps=30, num_samples=3, num_starts=1)
    first = bl.fit(0, one_mean, data, method, progress=False)
    second = bl.fit(0, one_mean, data, method, previous=first, progress=False)
    bounds = [tree["sample_stats"]["evidence_bound"].values for tree in (first, second)]
    assert all(np.ptp(each) == 0 for each in bounds)
    assert bounds[0][0, 0] != bounds[1][0, 0]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "joint blocks": (
        lambda: bl.fit(0, *CASES["mixture"], bl.MeanField(joint=(("tau", "mu"),)), progress=False),
        "no joint blocks with subsampled plates",
    ),
    "nothing shared": (
        lambda: bl.fit(0, everything_inside, {"n": 5, "y": np.ones(5)}, bl.MeanField(), progress=False),
        "nothing that batches share",
    ),
    "rows that are cut apart": (
        lambda: bl.fit(0, crossed, {"n": 6, "batch": 2, "y": np.ones((6, 4))}, bl.MeanField(), progress=False),
        "site 'effect' of a batch reaches 'y', of which subsampled plate 'column' leaves out a part",
    ),
    "a site integrated out": (
        lambda: bl.fit(0, bl.collapse(mixture, "z"), CASES["mixture"][1], bl.MeanField(), progress=False),
        "as it is written",
    ),
    "a batch without rows": (
        lambda: bl.bind(regression, {"x": X, "y": Y, "batch": 0}),
        "plate 'row' has a batch of 0 elements, but one or more are needed",
    ),
    "rows of a batch": (
        lambda: bl.bind(regression, {"x": X, "y": Y[:20], "batch": 20}),
        r"entry 'y' has shape \(20,\), but site 'y' of the program has shape \(300,\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises(ValueError, match=words), precision_scope():
        call()
