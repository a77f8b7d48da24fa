"""Filtered, smoothed, decoded and forecast states: against sums over all paths, dense Normals, powers of matrices."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy import stats
from xarray import DataTree

import bayeslab as bl
from bayeslab import LinearGaussianChain, MarkovChain
from bayeslab.models import local_level
from hidden_chains import INITIAL, MOVES, MU, Array, paths

sample, plate = numpyro.sample, numpyro.plate

NAN = np.nan
Y = np.array([[-1.2, NAN, 0.9, 1.7, NAN, 0.3], [0.4, 0.8, -2.0, -1.0, NAN, NAN]])


def known(num_steps: int, lengths: Any = None) -> None:
    with plate("sequence", 2):
        z = sample("z", MarkovChain(INITIAL, MOVES, num_steps, lengths=lengths), infer={"event_dims": ["step"]})
        sample("y", dist.Normal(jnp.asarray(MU)[z], 1.0).to_event(1), infer={"event_dims": ["step"]})


def unknown(num_steps: int, lengths: Any = None) -> None:
    with plate("state", 3):
        mu = sample("mu", dist.Normal(MU, 0.5))
    with plate("sequence", 2):
        z = sample("z", MarkovChain(INITIAL, MOVES, num_steps, lengths=lengths), infer={"event_dims": ["step"]})
        sample("y", dist.Normal(mu[z], 1.0).to_event(1), infer={"event_dims": ["step"]})


def marginals(every: Array, probabilities: Array) -> Array:
    """(step, state)."""
    return np.einsum("p,ptk->tk", probabilities, every[..., None] == np.arange(3))


LENGTHS = np.array([6, 4])
UNEQUAL = {"num_steps": 6, "lengths": LENGTHS, "y": xr.DataArray(Y, {"sequence": ["a", "b"]}, ("sequence", "step"))}


@pytest.fixture(scope="module")
def result() -> DataTree:
    return bl.fit(0, unknown, UNEQUAL, bl.Gibbs(num_samples=70, num_chains=1), progress=False)


def test_filtered_and_smoothed_states_are_averages_over_all_paths(result: DataTree) -> None:
    filtered, smoothed = (
        bl.states.filtered_states(unknown, UNEQUAL, result),
        bl.states.smoothed_states(unknown, UNEQUAL, result),
    )
    for found in (filtered, smoothed):
        assert found["probability"].dims == ("sequence", "step", "state")
        assert found["sequence"].values.tolist() == ["a", "b"]
        assert np.isnan(found["probability"].sel(sequence="b")[4:]).all()
    draws = result["posterior"]["mu"].values[0]
    for row, length in enumerate(LENGTHS):
        y = Y[row, :length]
        whole = np.mean([marginals(*paths(y, mu)) for mu in draws], axis=0)
        np.testing.assert_allclose(smoothed["probability"][row, :length], whole, atol=1e-12)
        for step in range(length):
            so_far = np.mean([marginals(*paths(y[: step + 1], mu))[-1] for mu in draws], axis=0)
            np.testing.assert_allclose(filtered["probability"][row, step], so_far, atol=1e-12)


def test_the_path_is_the_best_candidate_of_all_draws(result: DataTree) -> None:
    found = bl.states.most_probable_path(unknown, UNEQUAL, result)
    assert found["path"].values[1, 4:].tolist() == [-1, -1]
    for row, length in enumerate(LENGTHS):
        each = [paths(Y[row, :length], mu) for mu in result["posterior"]["mu"].values[0]]
        candidates = np.unique([np.argmax(p) for _, p in each])
        averaged = np.mean([p for _, p in each], axis=0)[candidates]
        best = each[0][0][candidates[np.argmax(averaged)]]
        assert found["path"].values[row, :length].tolist() == best.tolist()
        np.testing.assert_allclose(found["log_probability"][row], np.log(averaged.max()), rtol=1e-9)


def test_forecasts_are_powers_of_the_matrix() -> None:
    """Without parameters to average over; a fit that is longer knows no more of the steps that were seen."""
    data = {"num_steps": 6, "y": xr.DataArray(Y, {"step": range(2001, 2007)}, ("sequence", "step"))}
    tree = bl.fit(0, known, data, bl.Exact(5), progress=False)
    last = bl.states.filtered_states(known, data, tree)["probability"].values[:, -1]
    found = bl.states.forecast(1, known, data, tree, {"num_steps": 9}, num_samples=800)["predictions"]
    assert found["z"].dims == ("chain", "draw", "sequence", "step")
    assert found["step"].values.tolist() == [2007, 2008, 2009]
    for step in range(3):
        expected = last @ np.linalg.matrix_power(MOVES, step + 1)
        z = found["z"].values[0, :, :, step]
        np.testing.assert_allclose((z[..., None] == np.arange(3)).mean(0), expected, atol=0.035)
        np.testing.assert_allclose(found["y"].values[0, :, :, step].mean(0), expected @ MU, atol=0.13)
    every, p = paths(Y[0], MU, 2)
    pair = np.mean((found["z"].values[0, :, 0, :2] == [1, 1]).all(-1))
    np.testing.assert_allclose(pair, p[(every[:, -2:] == 1).all(1)].sum(), atol=0.03)


def test_sequences_that_ended_need_new_lengths(result: DataTree) -> None:
    with pytest.raises(ValueError, match=r"sequences end at lengths \[6, 4\]"):
        bl.states.forecast(0, unknown, UNEQUAL, result, {"num_steps": 8})
    found = bl.states.forecast(0, unknown, UNEQUAL, result, {"num_steps": 8, "lengths": np.array([8, 8])})[
        "predictions"
    ]
    assert found["y"].shape == (1, 70, 2, 2)


# A chain of real numbers.


def dense(tau_level: float, tau_noise: float, y: Array, kept: Array) -> tuple[Array, Array]:
    """Mean and variance of the levels given some of the measurements, from one covariance matrix."""
    place = np.arange(len(y))
    covariance = 4.0 + np.minimum.outer(place, place) / tau_level
    seen = kept & ~np.isnan(y)
    gain = covariance[:, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)] + np.eye(seen.sum()) / tau_noise)
    return 0.5 + gain @ (y[seen] - 0.5), np.diag(covariance - gain @ covariance[seen])


@pytest.mark.slow
def test_levels_are_those_of_a_dense_normal() -> None:
    """Spread between draws is part of the standard deviation; the forecast spreads on as a random walk does."""
    data = local_level.example()
    tree = bl.fit(2, local_level.model, data, bl.Gibbs(num_samples=100, num_chains=2), progress=False)
    parameters = np.stack([tree["posterior"][name].values.ravel() for name in ("tau_level", "tau_noise")], 1)
    y, steps = data["y"], np.arange(10)
    for verb, until in (
        (bl.states.smoothed_states, lambda step: steps < 10),
        (bl.states.filtered_states, lambda step: steps <= step),
    ):
        found = verb(local_level.model, data, tree)
        assert found["mean"].dims == ("step", "component")
        for step in (0, 3, 9):
            moments = [dense(*one, y, until(step)) for one in parameters]
            means, variances = (np.array([m[i][step] for m in moments]) for i in (0, 1))
            np.testing.assert_allclose(found["mean"][step, 0], means.mean(), rtol=1e-9)
            np.testing.assert_allclose(found["sd"][step, 0], np.sqrt(variances.mean() + means.var()), rtol=1e-9)
    ahead = bl.states.forecast(3, local_level.model, data, tree, {"num_steps": 14}, num_samples=50)["predictions"]
    assert ahead["y"].shape == (2, 5000, 4)
    last = [dense(*one, y, steps < 10) for one in parameters]
    expected = np.mean([m[-1] for m, _ in last])
    spread = np.mean([v[-1] + 4 / a + 1 / b for (_, v), (a, b) in zip(last, parameters, strict=True)])
    spread += np.var([m[-1] for m, _ in last])
    np.testing.assert_allclose(ahead["y"][..., -1].mean(), expected, atol=4 * np.sqrt(spread / 10_000))
    np.testing.assert_allclose(ahead["y"][..., -1].var(), spread, rtol=0.1)
    path = bl.states.most_probable_path(local_level.model, data, tree)
    assert path["path"].dims == ("step", "component")
    assert path["log_probability"].dims == ()


# What programs and results must have.


def two_chains() -> None:
    for name in ("z", "w"):
        z = sample(name, MarkovChain(INITIAL, MOVES, 3))
        sample(f"y_{name}", dist.Normal(jnp.asarray(MU)[z], 1.0).to_event(1))


def no_chain() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1))


PAIR = {"y_z": np.array([0.1, 0.2, 1.0]), "y_w": np.array([2.0, NAN, -1.0])}


def test_of_several_chains_one_is_named_and_the_other_is_a_draw() -> None:
    tree = bl.fit(0, two_chains, PAIR, bl.Exact(5), progress=False)
    found = bl.states.smoothed_states(two_chains, PAIR, tree, site="w")
    expected = marginals(*paths(PAIR["y_w"], MU))
    np.testing.assert_allclose(found["probability"], expected, atol=1e-12)
    with pytest.raises(ValueError, match=r"several chains, \['z', 'w'\]; name one"):
        bl.states.smoothed_states(two_chains, PAIR, tree)
    with pytest.raises(ValueError, match="'v' is no latent MarkovChain"):
        bl.states.smoothed_states(two_chains, PAIR, tree, site="v")


def test_wrong_calls(result: DataTree) -> None:
    flat = {"y": np.array([0.1, 0.2, 1.0])}
    tree = bl.fit(0, no_chain, flat, bl.Exact(5), progress=False)
    with pytest.raises(ValueError, match=r"no latent MarkovChain or LinearGaussianChain, only \['mu'\]"):
        bl.states.filtered_states(no_chain, flat, tree)
    with pytest.raises(ValueError, match="result is of other data"):
        bl.states.filtered_states(unknown, UNEQUAL | {"y": Y + 1}, result)
    with pytest.raises(ValueError, match="no group posterior"):
        bl.states.most_probable_path(unknown, UNEQUAL, DataTree())
    alone = result.copy()
    alone["posterior"] = result["posterior"].to_dataset().drop_vars("mu")
    with pytest.raises(ValueError, match=r"no draws of \['mu'\].*recover"):
        bl.states.filtered_states(unknown, UNEQUAL, alone)
    for changes, words in {
        (("num_steps", 6),): "leave the 6 steps of site 'z'",
        (("num_steps", 5), ("lengths", None)): "shape .2, 5., but its entry has shape .2, 6.",
        (("steps", 8),): "data entry 'steps' is neither .* Did you mean 'num_steps'",
    }.items():
        with pytest.raises(ValueError, match=words):
            bl.states.forecast(0, unknown, UNEQUAL, result, dict(changes))
    with pytest.raises(ValueError, match="num_samples must be positive"):
        bl.states.forecast(0, unknown, UNEQUAL, result, {"num_steps": 8}, num_samples=0)


def one_state() -> None:
    z = sample("z", MarkovChain(np.ones(1), np.ones((1, 1)), 3))
    sample("y", dist.Normal(z * 1.0, 1.0).to_event(1))


def test_one_state_is_enough() -> None:
    data = {"y": np.array([0.1, NAN, 1.0])}
    tree = bl.fit(0, one_state, data, bl.Exact(5), progress=False)
    found = bl.states.filtered_states(one_state, data, tree)["probability"]
    assert found.dims == ("z_dim_0", "state")
    np.testing.assert_allclose(found, 1.0)
    path = bl.states.most_probable_path(one_state, data, tree)
    assert (path["path"] == 0).all()
    np.testing.assert_allclose(path["log_probability"], 0.0, atol=1e-12)


def shared_symbols() -> None:
    """Fewer steps than probabilities of symbols."""
    with plate("state", 2):
        symbol = sample("symbol", dist.Dirichlet(np.ones(4)))
    z = sample("z", MarkovChain(np.full(2, 0.5), np.full((2, 2), 0.5), 3))
    sample("y", dist.Categorical(symbol[z]).to_event(1))


def scales() -> None:
    with plate("sequence", 2):
        u = sample("u", dist.Gamma(1.0, 1.0).expand([3]).to_event(1))
        z = sample("z", MarkovChain(INITIAL, MOVES, 3))
        sample("y", dist.Normal(jnp.asarray(MU)[z], 1 / jnp.sqrt(u)).to_event(1))


def sums() -> None:
    z, w = (sample(name, MarkovChain(INITIAL, MOVES, 3)) for name in ("z", "w"))
    sample("y", dist.Normal(1.0 * z + 2.0 * w, 1.0).to_event(1))


def moving_level() -> None:
    e = sample("e", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    moves = np.ones((2, 1, 1))
    z = sample("z", LinearGaussianChain(np.zeros(1), np.eye(1), moves, moves, e[:, None], time_varying=True))
    sample("y", dist.Normal(z[:, 0], 1.0).to_event(1))


@pytest.mark.parametrize(("model", "site"), [(scales, "u"), (sums, "w"), (moving_level, "e")])
def test_what_changes_from_step_to_step_has_seen_the_future(model: Any, site: str) -> None:
    """It may be smoothed."""
    data = {"y": np.array([[0.1, NAN, 1.0], [2.0, 1.0, 0.0]]) if model is scales else np.array([0.1, NAN, 1.0])}
    method = bl.Gibbs(num_warmup=3, num_samples=3, num_chains=1)
    tree = bl.fit(0, model, data, method, progress=False)
    bl.states.smoothed_states(model, data, tree, site="z")
    with pytest.raises(ValueError, match=f"cannot leave the future out of site '{site}', which changes"):
        bl.states.filtered_states(model, data, tree, site="z")


@pytest.mark.slow
def test_what_belongs_to_no_step_may_have_many_numbers() -> None:
    data = {"y": np.array([0, 3, 2])}
    tree = bl.fit(0, shared_symbols, data, bl.Gibbs(num_warmup=3, num_samples=3, num_chains=1), progress=False)
    symbol = tree["posterior"]["symbol"].values[0]
    expected = (symbol / symbol.sum(1, keepdims=True))[:, :, data["y"]].mean(0).T
    np.testing.assert_allclose(
        bl.states.filtered_states(shared_symbols, data, tree)["probability"], expected, rtol=1e-9
    )


def test_every_draw_has_its_forecast() -> None:
    """Where there is nothing to average over, too."""
    tree = bl.fit(0, known, {"num_steps": 6, "y": Y}, bl.Exact(5), progress=False)
    found = bl.states.forecast(1, known, {"num_steps": 6, "y": Y}, tree, {"num_steps": 8}, num_samples=2)["predictions"]
    assert found["y"].shape == (1, 10, 2, 2)


def few_steps(num_steps: int) -> None:
    with plate("sequence", 2):
        z = sample("z", MarkovChain(INITIAL, MOVES, num_steps))
        sample("y", dist.Normal(jnp.asarray(MU)[z], 1.0).to_event(1))


def test_states_that_are_given_at_some_steps_are_known_there() -> None:
    """Against enumeration of all paths; what is filtered knows no given state of a later step."""
    given = np.array([[NAN, NAN, 0.0, NAN], [1.0, NAN, NAN, 2.0]])
    y = Y[:, :4]
    data = {"num_steps": 4, "y": y, "z": given}
    tree = bl.fit(0, few_steps, data, bl.Exact(5), progress=False)
    every_path = np.array(list(product(range(3), repeat=4)))
    prior = np.log(INITIAL)[every_path[:, 0]] + np.log(MOVES)[every_path[:, :-1], every_path[:, 1:]].sum(1)
    fit = np.nan_to_num(stats.norm.logpdf(y[:, None], np.asarray(MU)[every_path], 1.0))  # (sequence, path, step)
    fit = fit + np.where(np.isnan(given[:, None]) | (every_path == given[:, None]), 0.0, -np.inf)

    def probabilities(last: int) -> np.ndarray:
        logs = prior + fit[..., : last + 1].sum(-1)
        weights = np.exp(logs - logs.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    indicators = (every_path[..., None] == np.arange(3)).reshape(len(every_path), -1)
    smoothed = bl.states.smoothed_states(few_steps, data, tree)["probability"]
    np.testing.assert_allclose(smoothed, (probabilities(3) @ indicators).reshape(2, 4, 3), atol=1e-12)
    filtered = bl.states.filtered_states(few_steps, data, tree)["probability"]
    right = [(probabilities(t) @ indicators).reshape(2, 4, 3)[:, t] for t in range(4)]
    np.testing.assert_allclose(filtered, np.stack(right, 1), atol=1e-12)
    best = bl.states.most_probable_path(few_steps, data, tree)
    np.testing.assert_array_equal(best["path"], every_path[probabilities(3).argmax(1)])
    np.testing.assert_allclose(best["log_probability"], np.log(probabilities(3).max(1)), atol=1e-10)
    with pytest.raises(ValueError, match="some states of 'z' are given; forecasts are of chains of which none is"):
        bl.states.forecast(0, few_steps, data, tree, {"num_steps": 6})
