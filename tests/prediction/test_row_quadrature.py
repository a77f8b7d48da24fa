"""Likelihoods of rows and of groups whose own latent sites no elimination removes.

The integrals are functions of a draw, whatever it was drawn from, so draws of the prior stand for those of a posterior.
"""

from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from scipy import stats
from scipy.special import expit

import bayeslab as bl

SEEDS = np.array([10, 10, 25, 35, 35])
GROWN = np.array([0, 9, 20, 35, 11])
COUNTY = np.array([0, 0, 0, 1, 1, 2, 2, 2])
SCORES = np.array([3, 0, 5, 9, 7, 2, 2, 6])
AGE = np.linspace(-1, 1, 8)


def tanks(seeds: Any) -> None:
    """An effect of its own under the logit of every row."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.5))
    scale = numpyro.sample("scale", dist.Exponential(0.3))
    with numpyro.plate("tank", len(seeds)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("grown", dist.Binomial(seeds, logits=effect))


def looked_up(seeds: Any, order: Any, grown: Any = None) -> None:
    """The same without plates, with the effects at other positions, and written as standard ones."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.5))
    scale = numpyro.sample("scale", dist.Exponential(0.3))
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([len(seeds)]))
    numpyro.sample("grown", dist.Binomial(seeds, logits=mean + scale * effect[order]), obs=grown)


def exposures(time: Any) -> None:
    """Two numbers of its own in every row, one of them positive."""
    rate = numpyro.sample("rate", dist.Normal(0.0, 1.0))
    with numpyro.plate("pump", len(time)):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        own = numpyro.sample("own", dist.LogNormal(rate, 0.5))
        numpyro.sample("failures", dist.Poisson(own * time * jnp.exp(0.3 * effect)))


def slopes(county: Any, age: Any, score: Any) -> None:
    """Two effects of every group, which are correlated."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    root = jnp.array([[1.0, 0.0], [0.6, 0.8]])
    with numpyro.plate("place", 3):
        effect = numpyro.sample("effect", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale * root))
    numpyro.sample("score", dist.Binomial(10, logits=effect[county, 0] + effect[county, 1] * age), obs=score)


def overdispersed(county: Any, score: Any) -> None:
    """Counts with an effect of their group and one of their own."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([3]))
    own = numpyro.sample("own", dist.Normal(0.0, scale).expand([8]))
    numpyro.sample("score", dist.Poisson(jnp.exp(effect[county] + own)), obs=score)


def with_prior_draws(model: Any, data: dict[str, Any]) -> Any:
    """A result whose posterior has 20 draws of the prior."""
    tree = bl.simulate(0, model, data, 20)
    tree["posterior"] = tree["prior"]
    return tree


def row_likelihoods(model: Any, data: dict[str, Any]) -> Any:
    tree = bl.predict(1, model, data, with_prior_draws(model, data))
    return tree, tree["log_likelihood"]


def logit_normal(mean: float, scale: float, successes: Any, trials: Any) -> float:
    """log p(successes) of a group with one Normal effect under the logit, on a grid."""
    grid = np.linspace(-12, 12, 20_001)
    chances = expit(mean + scale * grid)[:, None]
    mass = stats.binom.logpmf(successes, trials, chances).sum(-1) + stats.norm.logpdf(grid)
    return float(np.log(np.trapezoid(np.exp(mass), grid)))


@pytest.mark.parametrize("model", [pytest.param(tanks, marks=pytest.mark.slow), looked_up])
def test_an_effect_under_a_logit(model: Any) -> None:
    order = {} if model is tanks else {"order": np.array([1, 2, 3, 4, 0])}
    tree, likelihood = row_likelihoods(model, {"seeds": SEEDS, "grown": GROWN, **order})
    assert likelihood.attrs["integrated_out"] == ["effect"]
    widest = int(np.argmax(tree.posterior["scale"].values[0]))
    for draw in (0, widest):
        mean, scale = (float(tree.posterior[name][0, draw]) for name in ("mean", "scale"))
        rows = [logit_normal(mean, scale, [k], [n]) for k, n in zip(GROWN, SEEDS, strict=True)]
        np.testing.assert_allclose(likelihood["grown"].values[0, draw], rows, atol=1e-4)


@pytest.mark.slow
def test_two_numbers_of_every_row() -> None:
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


def test_rows_that_share_an_effect_are_given_it() -> None:
    data = {"seeds": SEEDS, "order": np.array([0, 1, 2, 3, 3]), "grown": GROWN}
    tree, likelihood = row_likelihoods(looked_up, data)
    assert list(likelihood.attrs["integrated_out"]) == []
    draw = tree.posterior.isel(chain=0, draw=3)
    logits = float(draw["mean"]) + float(draw["scale"]) * draw["effect"].values[data["order"]]
    expected = stats.binom.logpmf(GROWN, SEEDS, expit(logits))
    np.testing.assert_allclose(likelihood["grown"].values[0, 3], expected)


def test_two_effects_of_a_group() -> None:
    data = {"county": COUNTY, "age": AGE, "score": SCORES}
    tree = with_prior_draws(slopes, data)
    left_out = bl.log_likelihood(slopes, data, tree, "county")["log_likelihood"]
    assert left_out["score"].dims == ("chain", "draw", "county")
    assert left_out.attrs["integrated_out"] == ["effect"]
    scale = float(tree.posterior["scale"][0, 5])
    first, second = np.meshgrid(*[np.linspace(-8, 8, 401)] * 2, indexing="ij")
    prior = stats.norm.logpdf(first) + stats.norm.logpdf(second)
    for group in range(3):
        rows = group == COUNTY
        logits = scale * (first[..., None] + (0.6 * first + 0.8 * second)[..., None] * AGE[rows])
        mass = np.exp(stats.binom.logpmf(SCORES[rows], 10, expit(logits)).sum(-1) + prior)
        exact = np.log(np.trapezoid(np.trapezoid(mass, first[:, 0]), first[:, 0]))
        np.testing.assert_allclose(left_out["score"].values[0, 5, group], exact, atol=1e-3)


def test_what_cannot_be_left_out_by_groups_is_refused() -> None:
    data = {"county": COUNTY, "score": SCORES}
    tree = with_prior_draws(overdispersed, data)
    for groups, message in (
        ("county", "'own' has 2 to 3 elements in a group; at most 3"),
        ("state", "groups='state' is neither a plate of all observed sites nor an entry of the data"),
    ):
        with pytest.raises(ValueError, match=message):
            bl.log_likelihood(overdispersed, data, tree, groups)
    two_plates = {"first": np.zeros(2), "second": np.zeros(3)}

    def pair(first: Any, second: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal())
        for name, values in (("first", first), ("second", second)):
            with numpyro.plate(f"of {name}", len(values)):
                numpyro.sample(name, dist.Normal(mean, 1.0), obs=values)

    tree_of_two = bl.fit(0, pair, two_plates, bl.Exact(10), progress=False)
    with pytest.raises(ValueError, match="'of first' is a plate that observed site 'second' is not in"):
        bl.log_likelihood(pair, two_plates, tree_of_two, "of first")
    with pytest.raises(ValueError, match="these are others"):
        bl.log_likelihood(overdispersed, {"county": COUNTY, "score": SCORES + 1}, tree, "county")


@pytest.mark.slow
def test_leaving_a_tank_out_is_what_a_fit_without_it_predicts() -> None:
    """Two rows of sixteen, against NumPyro's own chains on the fifteen others, in coordinates that suit them."""
    rng = np.random.default_rng(3)
    seeds = np.repeat([10, 35], 8)
    data = {"seeds": seeds, "order": np.arange(16), "grown": rng.binomial(seeds, expit(rng.normal(1.0, 1.5, 16)))}
    method = bl.NUTS(num_warmup=1000, num_samples=4000, num_chains=2)
    tree = bl.predict(1, looked_up, data, bl.fit(0, looked_up, data, method, progress=False))
    loo = az.loo(tree, pointwise=True)
    assert loo.pareto_k.max() < 0.7
    for row in (2, 11):
        others = np.arange(16) != row
        chain = MCMC(NUTS(looked_up), num_warmup=1000, num_samples=8000, progress_bar=False)
        chain.run(jax.random.PRNGKey(2), seeds[others], np.arange(15), data["grown"][others])
        draws = chain.get_samples()
        pairs = list(zip(np.asarray(draws["mean"])[::20], np.asarray(draws["scale"])[::20], strict=True))
        mass = [np.exp(logit_normal(mean, scale, data["grown"][row], seeds[row])) for mean, scale in pairs]
        error = np.std(mass) / np.sqrt(len(mass) / 4) / np.mean(mass)
        assert abs(float(loo.elpd_i[row]) - np.log(np.mean(mass))) < 4 * error + 0.02, row
