"""Paths of which some states are given, anywhere, in a `MarkovChain`, a scan and a field of labels: sums over paths."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.contrib.control_flow import scan
from scipy.special import logsumexp
from scipy.stats import norm

import bayeslab as bl
from bayeslab.distributions import LinearChainCRF
from bayeslab.programs.program import precision_scope

INITIAL = np.array([0.2, 0.5, 0.3])
MOVES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
MEANS = np.array([-1.0, 0.0, 2.0])
Y = np.array([0.3, -0.4, 1.1, 0.2, 0.9])
STATES = np.array([np.nan, 1.0, np.nan, np.nan, 2.0])
PATHS = np.array(list(product(range(3), repeat=5)))
KNOWN = ((PATHS == STATES) | np.isnan(STATES)).all(1)
PRIOR = np.log(INITIAL[PATHS[:, 0]]) + np.log(MOVES[PATHS[:, :-1], PATHS[:, 1:]]).sum(1)


def one_site(y: Any) -> None:
    z = numpyro.sample("z", bl.MarkovChain(INITIAL, MOVES, 5))
    numpyro.sample("y", dist.Normal(jnp.asarray(MEANS)[z], 1.0).to_event(1), obs=y)


def steps(y: Any, reverse: bool = False) -> None:
    def step(probs: Array, value: Any) -> tuple[Array, None]:
        z = numpyro.sample("z", dist.Categorical(probs))
        numpyro.sample("y", dist.Normal(jnp.asarray(MEANS)[z], 1.0), obs=value)
        return jnp.asarray(MOVES)[z], None

    scan(step, jnp.asarray(INITIAL), y, reverse=reverse)


def written(y: Any, z: Any) -> None:
    """With obs=, in floats, since some are NaN; the program takes the states as indices all the same."""

    def step(probs: Array, known: Any) -> tuple[Array, None]:
        state = numpyro.sample("z", dist.Categorical(probs), obs=known[1])
        numpyro.sample("y", dist.Normal(jnp.asarray(MEANS)[state], 1.0), obs=known[0])
        return jnp.asarray(MOVES)[state], None

    scan(step, jnp.asarray(INITIAL), (y, z))


def backwards(y: Any) -> None:
    steps(y, reverse=True)


@pytest.mark.parametrize("model", [one_site, steps, written, pytest.param(backwards, marks=pytest.mark.slow)])
def test_given_states_of_a_hidden_path(model: Any) -> None:
    turn = slice(None, None, -1 if model is backwards else 1)
    data = {"y": Y[turn], "z": STATES[turn]}
    log_joint = PRIOR[KNOWN] + norm.logpdf(Y, MEANS[PATHS[KNOWN]]).sum(1)
    tree = bl.fit(0, model, data, bl.Exact(2000), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(logsumexp(log_joint), rel=1e-10)
    drawn = tree["posterior"]["z"].values[0][:, turn]
    assert (drawn[:, [1, 4]] == [1, 2]).all()
    probs = np.exp(log_joint - logsumexp(log_joint))
    for step, state in product((0, 2, 3), range(3)):
        right = probs @ (PATHS[KNOWN][:, step] == state)
        assert (drawn[:, step] == state).mean() == pytest.approx(right, abs=4 * (right * (1 - right) / 2000) ** 0.5)


def test_missing_states_are_summed_out_of_what_is_observed() -> None:
    """Of a chain, and of labels of a conditional random field, whose normalising constant stays that of all paths."""
    scores, moves = np.random.default_rng(0).normal(size=(5, 3)), np.log(MOVES)

    def chain() -> None:
        numpyro.sample("z", bl.MarkovChain(INITIAL, MOVES, 5))

    def field() -> None:
        numpyro.sample("z", LinearChainCRF(jnp.asarray(scores), jnp.asarray(moves)))

    total = scores[np.arange(5), PATHS].sum(1) + moves[PATHS[:, :-1], PATHS[:, 1:]].sum(1)
    with precision_scope():
        densities = [float(bl.bind(model, {"z": STATES}).log_joint({})) for model in (chain, field)]
    right = [logsumexp(PRIOR[KNOWN]), logsumexp(total[KNOWN]) - logsumexp(total)]
    np.testing.assert_allclose(densities, right, rtol=1e-12)


def test_a_missing_value_on_which_the_next_one_depends() -> None:
    """An autoregression with a gap, by quadrature over its coefficient."""

    def autoregression(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))

        def step(last: Any, value: Any) -> tuple[Any, None]:
            new = numpyro.sample("y", dist.Normal(a * last, 1.0), obs=value)
            return new, None

        scan(step, 1.0, y)

    a = np.linspace(-6.0, 6.0, 2001)
    seen = norm.logpdf(0.5, a) + norm.logpdf(1.0, a**2 * 0.5, np.hypot(1.0, a)) + norm.logpdf(2.0, a)
    probs = np.exp(norm.logpdf(a) + seen)
    probs /= probs.sum()
    tree = bl.fit(0, autoregression, {"y": np.array([0.5, np.nan, 1.0, 2.0])}, bl.Gibbs(), progress=False)
    drawn = tree["posterior"]
    assert float(drawn["a"].mean()) == pytest.approx(probs @ a, abs=0.05)
    assert float(drawn["a"].std()) == pytest.approx((probs @ a**2 - (probs @ a) ** 2) ** 0.5, rel=0.08)
    assert (drawn["y"].values[..., [0, 2, 3]] == [0.5, 1.0, 2.0]).all()
