"""Likelihoods of rows whose own latent sites no elimination removes."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayeslab as bl

SHORT = bl.NUTS(num_warmup=100, num_samples=20, num_chains=1)
SEEDS = np.array([10, 10, 25, 35, 35])
GROWN = np.array([0, 9, 20, 35, 11])


def tanks(seeds):
    """An effect of its own under the logit of every row."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.5))
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    with numpyro.plate("tank", len(seeds)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("grown", dist.Binomial(seeds, logits=effect))


def looked_up(seeds, order):
    """The same, but rows have the effects of other positions."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.5))
    with numpyro.plate("tank", len(seeds)):
        effect = numpyro.sample("effect", dist.Normal(mean, 1.0))
        numpyro.sample("grown", dist.Binomial(seeds, logits=effect[order]))


def exposures(time):
    """Two numbers of its own in every row, one of them positive."""
    rate = numpyro.sample("rate", dist.Normal(0.0, 1.0))
    with numpyro.plate("pump", len(time)):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        own = numpyro.sample("own", dist.LogNormal(rate, 0.5))
        numpyro.sample("failures", dist.Poisson(own * time * jnp.exp(0.3 * effect)))


def row_likelihoods(model, data):
    tree = bl.predict(1, model, data, bl.fit(0, model, data, SHORT, progress=False))
    return tree, tree["log_likelihood"]


def test_an_effect_under_a_logit():
    tree, likelihood = row_likelihoods(tanks, {"seeds": SEEDS, "grown": GROWN})
    assert likelihood.attrs["integrated_out"] == ["effect"]
    grid = np.linspace(-40, 40, 400_001)
    for draw in (0, 19):
        mean, scale = (float(tree.posterior[name][0, draw]) for name in ("mean", "scale"))
        prior = stats.norm.pdf(grid, mean, scale)
        rows = [
            np.log(np.trapezoid(stats.binom.pmf(k, n, 1 / (1 + np.exp(-grid))) * prior, grid))
            for k, n in zip(GROWN, SEEDS, strict=True)
        ]
        np.testing.assert_allclose(likelihood["grown"].values[0, draw], rows, atol=1e-3)


@pytest.mark.slow
def test_two_numbers_of_every_row():
    time, failures = np.array([94.3, 1.05]), np.array([5, 4])
    tree, likelihood = row_likelihoods(exposures, {"time": time, "failures": failures})
    assert set(likelihood.attrs["integrated_out"]) == {"effect", "own"}
    rate = float(tree.posterior["rate"][0, 7])
    logs, effects = np.meshgrid(np.linspace(rate - 5, rate + 5, 2001), np.linspace(-8, 8, 1601), indexing="ij")
    prior = stats.norm.pdf(logs, rate, 0.5) * stats.norm.pdf(effects)
    for row in range(2):
        mass = stats.poisson.pmf(failures[row], np.exp(logs + 0.3 * effects) * time[row]) * prior
        exact = np.log(np.trapezoid(np.trapezoid(mass, effects[0], axis=1), logs[:, 0]))
        np.testing.assert_allclose(likelihood["failures"].values[0, 7, row], exact, atol=1e-3)


def test_rows_that_look_up_the_effects_of_others_are_not_integrated():
    _, likelihood = row_likelihoods(looked_up, {"seeds": SEEDS, "order": np.array([1, 2, 3, 4, 0]), "grown": GROWN})
    assert list(likelihood.attrs["integrated_out"]) == []
