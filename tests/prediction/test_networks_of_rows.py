"""Queries about a network with a loop, of which every row has one: given what is known of a row, by enumeration."""

from itertools import product
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import bayeslab as bl

SIZES = {"a": 2, "b": 3, "c": 2, "d": 2}


def diamond(n: int) -> None:
    """a tells b and c, which tell d, which is seen with noise."""
    of_a = numpyro.sample("of_a", dist.Beta(1.0, 1.0))
    with numpyro.plate("value of a", 2):
        of_b = numpyro.sample("of_b", dist.Dirichlet(np.ones(3)))
        of_c = numpyro.sample("of_c", dist.Beta(1.0, 1.0))
    with numpyro.plate("value of b", 3, dim=-2), numpyro.plate("value of c", 2):
        of_d = numpyro.sample("of_d", dist.Beta(1.0, 1.0))
    with numpyro.plate("value of d", 2):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Bernoulli(of_a))
        b = numpyro.sample("b", dist.Categorical(of_b[a]))
        c = numpyro.sample("c", dist.Bernoulli(of_c[a]))
        d = numpyro.sample("d", dist.Bernoulli(of_d[b, c]))
        numpyro.sample("y", dist.Normal(level[d], 1.0))


NAN = np.nan
NEW = {
    "a": np.array([NAN, NAN, 1, 0, NAN]),
    "b": np.array([NAN, 2, NAN, 1, NAN]),
    "c": np.array([1, NAN, NAN, 0, NAN]),
    "d": np.array([NAN, 1, NAN, NAN, 0]),
    "y": np.array([0.5, NAN, NAN, 1.0, 2.0]),
}


@pytest.fixture(scope="module")
def fitted() -> Any:
    rng = np.random.default_rng(2)
    data = {name: rng.integers(0, size, 6) for name, size in SIZES.items()} | {"y": rng.normal(size=6)}
    return bl.fit(0, diamond, {"n": 6} | data, bl.Exact(20), progress=False)


def probabilities(draws: dict[str, np.ndarray], site: str, row: int) -> np.ndarray:
    """Of the values of a site given all else that is known of a row, its own value not used."""
    total = np.zeros(SIZES[site])
    for draw in range(20):
        of_a, of_b, of_c, of_d, level = (draws[name][draw] for name in ("of_a", "of_b", "of_c", "of_d", "level"))
        weights = np.zeros(SIZES[site])
        for values in product(*map(range, SIZES.values())):
            named = dict(zip(SIZES, values, strict=True))
            known = {name: NEW[name][row] for name in SIZES if name != site and not np.isnan(NEW[name][row])}
            if any(named[name] != value for name, value in known.items()):
                continue
            a, b, c, d = values
            weight = of_a if a else 1 - of_a
            weight *= of_b[a, b] * (of_c[a] if c else 1 - of_c[a]) * (of_d[b, c] if d else 1 - of_d[b, c])
            weights[named[site]] += weight * (1.0 if np.isnan(NEW["y"][row]) else norm.pdf(NEW["y"][row], level[d]))
        total += weights / weights.sum() / 20
    return total


def test_every_node_of_a_loop_is_told_given_the_others(fitted: Any) -> None:
    tables = bl.predict(1, diamond, {"n": 5} | NEW, fitted)["predictions_probabilities"]
    draws = {str(name): values.values[0] for name, values in fitted["posterior"].data_vars.items()}
    for site, row in product(SIZES, range(5)):
        np.testing.assert_allclose(tables[site][row], probabilities(draws, site, row), rtol=1e-9)


def two_labels(x: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    logits = numpyro.sample("logits", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    with numpyro.plate("row", len(x)):
        z = numpyro.sample("z", dist.Bernoulli(logits=slope * x))
        numpyro.sample("w", dist.Categorical(logits=logits[z]))


@pytest.mark.parametrize("w", [[2.0, NAN, NAN], [NAN] * 3], ids=["one known", "none known"])
def test_what_depends_on_an_unknown_label_is_summed_over_it(w: list[float]) -> None:
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=30), "z": rng.integers(0, 2, 30), "w": rng.integers(0, 3, 30)}
    tree = bl.fit(0, two_labels, data, bl.NUTS(200, 50, 1), progress=False)
    new = {"x": np.array([0.5, -1.0, 2.0]), "z": np.array([NAN, NAN, 1.0]), "w": np.array(w)}
    table = bl.predict(1, two_labels, new, tree)["predictions_probabilities"]
    slope, logits = (tree["posterior"][name].values[0] for name in ("slope", "logits"))
    of_w = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    one = np.where(np.isnan(new["z"]), 1 / (1 + np.exp(-slope[:, None] * new["x"])), new["z"])[..., None]
    expected = (one * of_w[:, None, 1] + (1 - one) * of_w[:, None, 0]).mean(0)
    np.testing.assert_allclose(table["w"], expected, rtol=1e-9)
    if w[0] == 2.0:
        assert float(table["w_log_score"][0]) == pytest.approx(np.log(expected[0, 2]), rel=1e-9)
