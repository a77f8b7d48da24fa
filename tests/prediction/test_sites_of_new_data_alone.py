"""Sites that a program draws with new data alone, as forecasts often are, follow from the draws of the fit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Predictive

import bayeslab as bl

TIMES = np.arange(20.0) / 10
Y = 2 * TIMES + 0.1 * np.random.default_rng(0).normal(size=20)
LATER = np.arange(24.0) / 10


def trend(t: Any, y: Any = None, future: int = 0) -> None:
    drift = numpyro.sample("drift", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    known = t.shape[0] - future
    numpyro.sample("y", dist.Normal(drift * t[:known], sigma), obs=y)
    if future > 0:
        shock = numpyro.sample("shock", dist.Normal(0, 0.1).expand([future]))
        numpyro.sample("y_forecast", dist.Normal(drift * t[known:] + shock, sigma))


def hurdle(x: Any, y: Any = None) -> None:
    slope, rate = numpyro.sample("slope", dist.Normal(0, 1)), numpyro.sample("rate", dist.Gamma(2, 1))
    if y is None:
        played = numpyro.sample("played", dist.Bernoulli(logits=slope * x))
        numpyro.deterministic("games", played * (1 + numpyro.sample("extra", dist.Poisson(rate).expand(x.shape))))
        return
    numpyro.sample("plays", dist.Bernoulli(logits=slope * x), obs=(y > 0).astype(int))
    with numpyro.handlers.mask(mask=y > 0):
        numpyro.sample("more", dist.Poisson(rate), obs=jnp.clip(y - 1, 0))


def posterior_of(tree: Any, *names: str) -> dict[str, jax.Array]:
    return {name: jnp.asarray(tree.posterior[name].values.ravel()) for name in names}


def test_a_forecast_of_its_own_site_is_that_of_predictive() -> None:
    tree = bl.fit(0, trend, {"t": TIMES, "y": Y}, progress=False)
    draws = posterior_of(tree, "drift", "sigma")
    right = Predictive(trend, draws)(jax.random.key(0), t=jnp.asarray(LATER), y=jnp.asarray(Y), future=4)["y_forecast"]
    for given in ({"y": Y}, {}):
        predicted = bl.predict(1, trend, {"t": LATER, "future": 4, **given}, tree)["predictions"]
        drawn = predicted["y_forecast"].values.reshape(-1, 4)
        assert np.abs(drawn.mean(0) - right.mean(0)).max() < 5 * np.sqrt(2 * right.var(0).max() / len(drawn))
        np.testing.assert_allclose(drawn.std(0), right.std(0), rtol=0.1)


def test_sites_in_place_of_the_observed_ones_are_drawn() -> None:
    y = np.r_[np.zeros(8), np.arange(12)]
    x = np.linspace(-1, 1, 20)
    tree = bl.fit(0, hurdle, {"x": x, "y": y}, progress=False)
    right = Predictive(hurdle, posterior_of(tree, "slope", "rate"))(jax.random.key(0), x=jnp.asarray(x))["games"]
    drawn = bl.predict(1, hurdle, {"x": x}, tree)["predictions"]["games"].values.reshape(-1, 20)
    assert np.abs(drawn.mean(0) - right.mean(0)).max() < 5 * np.sqrt(2 * right.var(0).max() / len(drawn))
