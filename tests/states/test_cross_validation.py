"""Cross-validated scores: against sums over all paths, and how often they compile."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import bayeslab as bl
from bayeslab import MarkovChain
from bayeslab.models import local_level, ppca
from compilations import counted_compilations
from hidden_chains import INITIAL, MOVES, MU, paths

Array = np.ndarray[Any, Any]
sample, plate = numpyro.sample, numpyro.plate
NAN = np.nan
Y = np.array([[-1.2, NAN, 0.9, 1.7, 2.2, 0.3, 0.1], [0.4, 0.8, -2.0, -1.0, NAN, NAN, NAN]])


def known(num_sequences: int, shift: float = 0.0) -> None:
    with plate("sequence", num_sequences):
        z = sample("z", MarkovChain(INITIAL, MOVES, 7), infer={"event_dims": ["step"]})
        sample("y", dist.Normal(shift + jnp.asarray(MU)[z], 1.0).to_event(1), infer={"event_dims": ["step"]})


def log_p(y: Array) -> float:
    """Of the entries of a sequence that are there, by a sum over all paths."""
    every, _ = paths(np.full(len(y), NAN), MU)
    logs = np.log(INITIAL)[every[:, 0]] + np.log(MOVES[every[:, :-1], every[:, 1:]]).sum(1)
    seen = ~np.isnan(y)
    return float(special.logsumexp(logs + stats.norm(MU[every[:, seen]], 1).logpdf(y[seen]).sum(1)))


def test_hidden_steps_are_predicted_from_all_others() -> None:
    """Each sequence has a part in every block, of the steps at which it has entries."""
    data = {"num_sequences": 2, "y": Y}
    found = bl.held_out(0, known, data, bl.Exact(3), blocks=3)
    parts = [[(0, 2), (0, 1)], [(3, 4), (2,)], [(5, 6), (3,)]]
    for block, hidden in enumerate(parts):
        expected = 0.0
        for y, steps in zip(Y, hidden, strict=True):
            rest = y.copy()
            rest[list(steps)] = NAN
            expected += log_p(y) - log_p(rest)
        np.testing.assert_allclose(found["log_density"][block], expected, rtol=1e-10)
    assert found["entries"].values.tolist() == [4, 3, 3]
    scores = found["log_density"].values
    np.testing.assert_allclose(found["log_score"], scores.sum())
    np.testing.assert_allclose(found["log_score_se"], np.sqrt(3) * scores.std(ddof=1))


def test_of_many_sequences_whole_ones_are_hidden() -> None:
    y = np.concatenate([Y, Y + 0.5, Y - 0.3])
    found = bl.held_out(0, known, {"num_sequences": 6, "y": y}, bl.Exact(3), blocks=3)
    expected = np.array([log_p(row) for row in y]).reshape(3, 2).sum(1)
    np.testing.assert_allclose(found["log_density"], expected, rtol=1e-10)


def written(series: Array, scale: Any = None) -> None:
    """The same, its data given to the site by the program itself."""
    with plate("sequence", len(series)):
        z = sample("z", MarkovChain(INITIAL, MOVES, 7), infer={"event_dims": ["step"]})
        values = series if scale is None else scale * series
        sample("y", dist.Normal(jnp.asarray(MU)[z], 1.0).to_event(1), obs=values, infer={"event_dims": ["step"]})


def test_steps_of_an_argument_that_the_program_observes_are_hidden() -> None:
    expected = bl.held_out(0, known, {"num_sequences": 2, "y": Y}, bl.Exact(3), blocks=3)
    found = bl.held_out(0, written, {"series": Y}, bl.Exact(3), blocks=3)
    for name in ("log_density", "entries"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10)
    with pytest.raises(ValueError, match="no entry of the data has the values of site 'y' as they are; give them as"):
        bl.held_out(0, written, {"series": Y / 2, "scale": np.array(2.0)}, bl.Exact(3), blocks=3)


def switching(num_sequences: int, num_states: int) -> None:
    with plate("state", num_states):
        mu = sample("mu", dist.Normal(0.0, 3.0))
        moves = sample("moves", dist.Dirichlet(jnp.ones(num_states) + 4 * jnp.eye(num_states)))
    with plate("sequence", num_sequences):
        z = sample("z", MarkovChain(jnp.ones(num_states) / num_states, moves, 30), infer={"event_dims": ["step"]})
        sample("y", dist.Normal(mu[z], 0.5).to_event(1), infer={"event_dims": ["step"]})


@pytest.mark.slow
def test_two_states_are_found() -> None:
    """All scores agree on it, and other data compile nothing."""
    states = np.random.default_rng(0).random((6, 30)).cumsum(1).astype(int) // 4 % 2
    y = np.random.default_rng(1).normal(np.where(states, 1.5, -1.0), 0.5)
    data, method = {"num_sequences": 6, "y": y}, bl.MeanField(num_samples=200, num_starts=3)
    table = bl.choose(0, switching, data, "num_states", (1, 2), method, blocks=3)
    assert table.attrs["best"] == 2
    for name in ("log_score", "evidence_bound", "loo", "difference"):
        assert table[name].dims == ("num_states",)
        assert table[name][1] > table[name][0] + 20, name
    assert table["difference"][1] == table["difference_se"][1] == 0
    gap = (table["log_density"][0] - table["log_density"][1]).values
    np.testing.assert_allclose(table["difference"][0], gap.sum())
    assert (table["loo_k"] < 0.7).all()
    with counted_compilations() as seen:
        bl.held_out(1, switching, {"num_sequences": 6, "num_states": 2, "y": y[::-1]}, method, blocks=3)
    assert seen == []


def test_scores_of_known_programs_are_exact() -> None:
    y = np.concatenate([Y, Y + 0.5, Y - 0.3])
    data = {"num_sequences": 6, "y": y}
    table = bl.choose(0, known, data, "shift", (1.0, 0.0), bl.Exact(120), blocks=3)
    each = np.array([[log_p(row - shift) for row in y] for shift in (1.0, 0.0)])
    for name in ("log_score", "evidence_bound", "loo"):
        np.testing.assert_allclose(table[name], each.sum(1), rtol=1e-10)
    blocks = each.reshape(2, 3, 2).sum(2)
    np.testing.assert_allclose(table["difference"], [(blocks[0] - blocks[1]).sum(), 0.0], atol=1e-9)
    gap = np.sqrt(3) * (blocks[0] - blocks[1]).std(ddof=1)
    np.testing.assert_allclose(table["difference_se"], [gap, 0.0], atol=1e-9)
    assert table.attrs["best"] == 0.0


def test_scores_that_do_not_apply_say_why() -> None:
    data = {"num_sequences": 2, "y": Y}
    for draws, words in ((3, "100 draws"), (120, "5 sequences")):
        table = bl.choose(0, known, data, "shift", [0.0], bl.Exact(draws), blocks=3)
        assert np.isnan(table["loo"]).all()
        assert words in table["loo"].attrs["reason"]


class UnusedMethod(bl.Exact):
    """A method that must not be asked."""

    def plan(self, analysis: Any) -> Any:
        raise AssertionError("a fit was begun")


def test_values_that_cannot_be_are_refused_before_the_first_fit() -> None:
    with pytest.raises(ValueError, match="num_factors is 5, but 1 to 4"):
        bl.choose(0, ppca.model, ppca.example(), "num_factors", (1, 5), UnusedMethod(), blocks=2)


def within(n: int, interval: tuple[float, float]) -> None:
    theta = sample("theta", dist.Normal(interval[0], interval[1]))
    with plate("row", n):
        sample("y", dist.Normal(theta, 1.0))


def test_values_may_be_tuples() -> None:
    y = np.array([0.3, -1.0, 2.0, 0.5, 1.1, -0.2])
    table = bl.choose(0, within, {"n": 6, "y": y}, "interval", [(0.0, 1.0), (5.0, 0.1)], bl.Exact(120), blocks=3)
    assert list(table["interval"].values) == ["(0.0, 1.0)", "(5.0, 0.1)"]
    assert table.attrs["best"] == "(0.0, 1.0)"
    covariance = np.eye(6) + 1.0
    exact = stats.multivariate_normal(np.zeros(6), covariance).logpdf(y)
    np.testing.assert_allclose(table["evidence_bound"][0], exact, rtol=1e-10)


@pytest.mark.slow
def test_a_level_is_hidden_as_well() -> None:
    data = local_level.example()
    found = bl.held_out(0, local_level.model, data, bl.EM(num_starts=2, collapse=("z",)), blocks=4)
    assert found["entries"].sum() == 8
    assert np.isfinite(found["log_density"]).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks": 8}, "no sequence has entries at 8 steps; take fewer blocks"),
        ({"blocks": 1}, "blocks must be at least 2, but is 1"),
    ],
)
def test_wrong_blocks(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.held_out(0, known, {"num_sequences": 2, "y": Y}, bl.Exact(3), **changes)


def test_wrong_choices() -> None:
    data = {"num_sequences": 2, "y": Y}
    with pytest.raises(ValueError, match="values of 'shift' to choose from, got none"):
        bl.choose(0, known, data, "shift", [])
    with pytest.raises(ValueError, match=r"'states' is no argument of the program; these are \['num_sequences'"):
        bl.choose(0, known, data, "states", [1])
