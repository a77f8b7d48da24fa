"""Stochastic variational inference by batches of subsampled plates."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoNormal, AutoSemiDAIS
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.methods.minibatches.batches import batch_bound, subsampled_plates
from bayeslab.methods.minibatches.guides import evaluate_scaled
from bayeslab.programs.program import precision_scope
from bayeslab.programs.unconstrained import log_posterior, unconstrained_shapes
from bayeslab.transforms.analysis import Analysis

RNG = np.random.default_rng(8)
ROWS = 100
Y = 1.5 + RNG.normal(0.0, 2.0, ROWS)
SMALL = bl.SVI(num_steps=4_000, num_samples=400, num_particles=4)


def spreads(n: int, batch: int | None = None) -> None:
    """Two subsampled plates, a positive site for the elements of one of them."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
    columns = numpyro.plate("column", 4, dim=-1, subsample_size=batch)
    with numpyro.plate("row", n, dim=-2, subsample_size=batch):
        scale = numpyro.sample("scale", dist.Gamma(3.0, rate))
        with columns:
            numpyro.sample("y", dist.Normal(0.0, scale))


def effects(n: int, y: Any = None, batch: int | None = None) -> None:
    """Effects of rows, jointly Normal with their mean."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", n, subsample_size=batch) as rows:
        effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(effect, 1.5), obs=None if y is None else y[rows])


def mixture(n: int, batch: int | None = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 2.0).to_event(1))
    with numpyro.plate("row", n, subsample_size=batch):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(mu[z], 1.0))


def amortised(n: int, y: Any, batch: int | None = None) -> None:
    """The exact posterior of `effects` is in this family: the effect of a row is linear in its y and in mu."""
    m = numpyro.param("m", 0.0)
    s = numpyro.param("s", 0.1, constraint=constraints.positive)
    mu = numpyro.sample("mu", dist.Normal(m, s))
    slope, share = numpyro.param("slope", 0.0), numpyro.param("share", 0.0)
    spread = numpyro.param("spread", 0.5, constraint=constraints.positive)
    with numpyro.plate("row", n, subsample_size=batch) as rows:
        numpyro.sample("effect", dist.Normal(slope * y[rows] + share * mu, spread))


def whole_rows(n: int, y: Any) -> None:
    """The same, without a plate that takes batches."""
    amortised(n, y, None)


def log_evidence(y: np.ndarray) -> float:
    """Of `effects`: one Normal."""
    return float(multivariate_normal(np.zeros(len(y)), (1.0 + 1.5**2) * np.eye(len(y)) + 25.0).logpdf(y))


def test_batches_stand_for_all_rows() -> None:
    """Law: the log densities of batches that part the plates, each counted as often as a plate is larger, are those of
    all rows on average, Jacobians of the sites of rows included."""
    with precision_scope():
        bound = bl.bind(spreads, {"n": 6, "batch": 2, "y": RNG.normal(size=(6, 4))})
        plates = subsampled_plates(bound)
        position = {name: jnp.asarray(RNG.normal(size=shape)) for name, shape in unconstrained_shapes(bound)}
        values = []
        for rows in ([0, 5], [3, 1], [2, 4]):
            for columns in ([0, 2], [1, 3]):
                batch = batch_bound(bound, {"row": jnp.array(rows), "column": jnp.array(columns)})
                mine = position | {"scale": position["scale"][jnp.array(rows)]}
                values.append(log_posterior(batch, mine, partial(evaluate_scaled, plates)))
        np.testing.assert_allclose(np.mean(values), log_posterior(bound, position), rtol=1e-12)
        assert np.ptp(values) > 1.0  # they differ, so that the average says something
        unscaled = np.mean([log_posterior(batch, mine)])
        assert abs(unscaled - log_posterior(bound, position)) > 1.0


def test_sites_of_rows_are_learned_from_batches() -> None:
    """The bound of independent factors of all rows, without a batch: its maximum has a closed form."""
    tree = bl.fit(0, effects, {"n": ROWS, "batch": 20, "y": Y}, SMALL, progress=False)
    assert tree["posterior"]["effect"].shape == (1, 400, ROWS)
    precision = 1.0 + 1 / 1.5**2  # of an effect given mu
    joint = np.eye(ROWS + 1) * precision
    joint[0, 0], joint[0, 1:], joint[1:, 0] = ROWS + 1 / 25, -1.0, -1.0
    gap = 0.5 * (np.log(np.diag(joint)).sum() - np.linalg.slogdet(joint)[1])
    stats = tree["sample_stats"]
    elbo, error = float((stats["lp"] - stats["log_q"]).mean()), float((stats["lp"] - stats["log_q"]).std() / 20)
    best = log_evidence(Y) - gap
    assert best - 1.0 < elbo < best + 5 * error  # steps that end at a noisy point lose a little
    mean = np.linalg.solve(joint, np.concatenate([[0.0], Y / 1.5**2]))
    found = tree["posterior"]["effect"].mean(["chain", "draw"]).values
    assert np.abs(found - mean[1:]).max() < 5 * np.sqrt((1 / 400 + 0.02) / precision)


def test_guides_of_the_user_take_the_same_batches() -> None:
    data = {"n": ROWS, "y": Y, "batch": 20}
    tree = bl.fit(0, effects, data, bl.SVI(amortised, num_steps=4_000, num_samples=400), progress=False)
    stats = tree["sample_stats"]
    weights = (stats["lp"] - stats["log_q"]).values.ravel()
    assert abs(weights.mean() - log_evidence(Y)) < 0.5  # the family has the posterior in it
    assert tree["posterior"]["effect"].shape == (1, 400, ROWS)


@pytest.mark.parametrize(
    ("model", "guide", "reason"),
    [(mixture, None, "labels are integrated out"), (effects, whole_rows, "the guide draws all rows")],
)
def test_all_rows_are_taken_where_batches_cannot_be(model: Any, guide: Any, reason: str) -> None:
    data = {"n": ROWS, "y": Y, "batch": 20}
    method = bl.SVI() if guide is None else bl.SVI(guide)
    sampler = method.plan(Analysis(bl.bind(model, data)))
    while not hasattr(sampler, "plates"):
        sampler = sampler.inner
    assert sampler.plates == (), reason


def test_batches_are_taken_where_they_can_be() -> None:
    sampler = bl.SVI().plan(Analysis(bl.bind(effects, {"n": ROWS, "y": Y, "batch": 20})))
    assert [(plate.plate, plate.size, plate.batch) for plate in sampler.plates] == [("row", ROWS, 20)]


PRECISION = np.array([[1.0, 0.3], [0.3, 0.5]])


def classes(x: Any, label: Any, batch: int) -> None:
    with numpyro.plate("class", 2):
        mu = numpyro.sample("mu", dist.MultivariateNormal(jnp.zeros(2), precision_matrix=0.5 * PRECISION))
    with numpyro.plate("row", len(x), subsample_size=batch) as rows:
        numpyro.sample("x", dist.MultivariateNormal(mu[label[rows]], precision_matrix=PRECISION), obs=x[rows])


def test_classes_that_the_first_rows_have_as_often_are_not_alike() -> None:
    """The first batch has four rows of each of two classes, all rows have 28 and 4: means with precisions of 28.5 and
    4.5 times that of a row."""
    label = np.array([0, 1] * 4 + [0] * 24)
    x = np.random.default_rng(0).normal(size=(32, 2)) + label[:, None]
    tree = bl.fit(0, classes, {"x": x, "label": label, "batch": 8}, bl.MeanField(), progress=False)
    sd = tree["posterior/mu"].std(("chain", "draw")).values
    exact = np.sqrt(np.diag(np.linalg.inv(PRECISION)) / np.array([[28.5], [4.5]]))
    np.testing.assert_allclose(sd, exact, rtol=0.15)


@pytest.mark.parametrize("batch", [4, None])
def test_annealed_guides_of_elements_take_batches(batch: int | None) -> None:
    """Guides that can be the posterior: the bound of all rows is the evidence, but for the noise of batches."""
    y = jnp.asarray(Y[:12])

    def effects_around(mu: Any) -> None:
        with numpyro.plate("row", len(y), subsample_size=batch):
            effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(effect, 1.5), obs=numpyro.subsample(y, event_dim=0))

    def mean() -> Array:
        return numpyro.sample("mu", dist.Normal(0.0, 5.0))

    def posterior_of_effects(mu: Any) -> None:
        share, spread = numpyro.param("share", 0.3), numpyro.param("spread", 0.5, constraint=constraints.positive)
        with numpyro.plate("row", len(y), subsample_size=batch):
            rows = numpyro.subsample(y, event_dim=0)
            numpyro.sample("effect", dist.Normal(share * mu + (1 - share) * rows, spread))

    guide = AutoSemiDAIS(lambda: effects_around(mean()), effects_around, AutoNormal(mean), posterior_of_effects, K=4)
    tree = bl.fit(0, lambda: effects_around(mean()), {}, bl.SVI(guide, num_steps=4000), progress=False)
    assert tree["posterior"]["effect"].shape == (1, 1000, 12)
    log_ratio = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).values
    assert log_ratio.mean() == pytest.approx(log_evidence(Y[:12]), abs=0.05)
