"""Latent sites of which a mask hides elements: proper where nothing reads these, flat where something does."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask
from scipy.stats import norm

import bayeslab as bl
from bayeslab.programs.binding import bind

Y = np.array([0.4, 1.3, 0.9, 2.2, 99.0, -99.0])
THERE = np.arange(6) < 4


def padded_series(y: Any, there: Any) -> None:
    scale = numpyro.sample("scale", dist.InverseGamma(3.0, 2.0))

    def step(before: Any, row: Any) -> tuple[Any, None]:
        value, counts = row
        with mask(mask=counts):
            z = numpyro.sample("z", dist.Normal(0.9 * before, 0.5))
            numpyro.sample("y", dist.Normal(z, jnp.sqrt(scale)), obs=value)
        return z, None

    scan(step, 0.3, (y, there))


def padded_rows(y: Any, there: Any) -> None:
    with numpyro.plate("row", len(y)), mask(mask=there):
        z = numpyro.sample("z", dist.Normal(1.0, 3.0))
        numpyro.sample("y", dist.Normal(z, 2.0), obs=y)


def flat_level(y: Any, known: Any) -> None:
    level = numpyro.sample("level", dist.Normal(50.0, 0.1).mask(known))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Normal(level, 1.0), obs=y)


def test_hidden_rows_are_drawn_from_their_priors_and_leave_the_evidence_to_the_others() -> None:
    tree = bl.fit(0, padded_rows, {"y": Y, "there": THERE}, progress=False)
    short = bl.fit(0, padded_rows, {"y": Y[:4], "there": THERE[:4]}, progress=False)
    evidence = norm(1.0, np.sqrt(13.0)).logpdf(Y[:4]).sum()
    assert tree.attrs["method"] == "Exact"
    for each in (tree, short):
        np.testing.assert_allclose(each.attrs["log_evidence"], evidence, rtol=1e-12)
    draws = tree["posterior"]["z"].values.reshape(-1, 6)
    error = 1 / np.sqrt(len(draws))
    np.testing.assert_allclose(draws[:, 4:].mean(0), 1.0, atol=4 * 3.0 * error)
    np.testing.assert_allclose(draws[:, 4:].std(0), 3.0, rtol=4 * error)
    np.testing.assert_allclose(draws[:, :4].mean(0), (1 / 9 + Y[:4] / 4) / (1 / 9 + 1 / 4), atol=4 * 1.7 * error)


def test_a_padded_series_has_the_posterior_of_the_series_without_padding() -> None:
    padded, plain = (
        bl.fit(
            0, padded_series, {"y": Y[:n], "there": THERE[:n]}, bl.Gibbs(num_chains=2, num_samples=4000), progress=False
        )
        for n in (6, 4)
    )
    for name in ("scale", "z"):
        one, other = (tree["posterior"][name].stack(draws=("chain", "draw")).values for tree in (padded, plain))
        one = one[: len(other)]
        error = np.sqrt(2) * other.std(-1) / np.sqrt(800)  # neighbouring draws of a chain are alike
        assert np.all(np.abs(one.mean(-1) - other.mean(-1)) < 4 * error)
    last = padded["posterior"]["z"].values[..., 3:]
    steps = last[..., 1:] - 0.9 * last[..., :-1]
    np.testing.assert_allclose(steps.std((0, 1)), 0.5, rtol=0.06)


def test_what_others_depend_on_stays_flat() -> None:
    data = {"y": Y[:4], "known": np.array(False)}
    assert bind(flat_level, data).unmasked == ()
    tree = bl.fit(0, flat_level, data, bl.NUTS(num_warmup=300, num_samples=500, num_chains=2), progress=False)
    draws = tree["posterior"]["level"].values
    assert abs(draws.mean() - Y[:4].mean()) < 0.15
    assert abs(draws.std() - 0.5) < 0.1


def test_what_is_read_far_away_stays_flat() -> None:
    """A floor and a change point, which no value near the middle reaches."""

    def floor(y: Any, known: Any) -> None:
        level = numpyro.sample("level", dist.Normal(50.0, 0.1).mask(known))
        numpyro.sample("y", dist.Normal(jnp.maximum(level, 20.0), 1.0), obs=y)

    def change_point(y: Any, known: Any) -> None:
        at = numpyro.sample("at", dist.LogNormal(3.0, 0.5).mask(known))
        numpyro.sample("y", dist.Normal(jnp.where(jnp.arange(len(y)) + 500 > at, 2.0, 0.0), 1.0), obs=y)

    def saturated(y: Any, known: Any) -> None:
        share = numpyro.sample("share", dist.Beta(2.0, 2.0).mask(known))
        numpyro.sample("y", dist.Normal(jnp.clip(share, 0.0, 1e-4), 1.0), obs=y)

    for program in (floor, change_point, saturated):
        assert bind(program, {"y": Y[:4], "known": np.array(False)}).unmasked == ()


@pytest.mark.parametrize("method", [bl.MAP(), bl.EM(collapse=("z",))], ids=["MAP", "EM"])
def test_padding_moves_no_mode(method: Any) -> None:
    def spread(y: Any, there: Any) -> None:
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
        with numpyro.plate("row", len(y)), mask(mask=there):
            z = numpyro.sample("z", dist.Normal(0.0, scale))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    modes = []
    for padding in (0, 20):
        y, there = np.append(Y[:4], np.zeros(padding)), np.arange(4 + padding) < 4
        assert bind(spread, {"y": y, "there": there}).unmasked == ("z",)
        tree = bl.fit(0, spread, {"y": y, "there": there}, method, progress=False)
        modes.append(float(tree["posterior"]["scale"].mean()))
    np.testing.assert_allclose(modes[1], modes[0], rtol=1e-4)


def test_a_mask_that_a_latent_site_decides_stays() -> None:
    def switched(y: Any) -> None:
        on = numpyro.sample("on", dist.Normal(0.0, 1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).mask(on > 0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    assert bind(switched, {"y": np.array(0.5)}).unmasked == ()


def test_of_a_covariate_that_is_missing_in_part_given_values_stay_hidden() -> None:
    def covariate(x: Any, y: Any, there: Any) -> None:
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(y)), mask(mask=there):
            x = numpyro.sample("x", dist.Normal(level, 1.0), obs=x)
            numpyro.sample("y", dist.Normal(x, 0.5), obs=y)

    x = np.array([0.3, np.nan, 50.0, np.nan])
    y, there = np.array([0.1, 1.2, 40.0, 30.0]), np.array([True, True, False, False])
    tree = bl.fit(0, covariate, {"x": x, "y": y, "there": there}, progress=False)
    short = bl.fit(0, covariate, {"x": x[:2], "y": y[:2], "there": there[:2]}, progress=False)
    assert tree.attrs["method"] == "Exact"
    np.testing.assert_allclose(tree.attrs["log_evidence"], short.attrs["log_evidence"], rtol=1e-12)
    hidden = tree["posterior"]["x"].values[..., 3].ravel()
    level = tree["posterior"]["level"].values.ravel()
    np.testing.assert_allclose((hidden - level).std(), 1.0, atol=4 / np.sqrt(2 * len(hidden)))


def test_hidden_rows_have_no_log_likelihood_where_what_is_theirs_is_integrated_out() -> None:
    def labelled(y: Any, there: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        with numpyro.plate("row", len(y)), mask(mask=there):
            label = numpyro.sample("label", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(mu + label, 1.0), obs=y)

    data = {"y": Y, "there": THERE}
    for program, own in ((padded_rows, "z"), (labelled, "label")):
        tree = bl.fit(0, program, data, bl.Gibbs(num_warmup=20, num_samples=20, num_chains=1), progress=False)
        likelihood = bl.predict(1, program, data, tree)["log_likelihood"]
        assert likelihood.attrs["integrated_out"] == [own]
        np.testing.assert_array_equal(np.isnan(likelihood["y"].values).all((0, 1)), ~THERE)
