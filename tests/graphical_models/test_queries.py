"""Queries and explanations of discrete programs against tables of all configurations."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.graphical_models import most_probable_explanation, query
from bayeslab.models import bayes_net, crf, markov_random_field
from bayeslab.programs.program import precision_scope
from quick_cases import quick_ones

COLLIDER = {
    "a": np.array([0.7, 0.3]),
    "c": np.array([0.4, 0.6]),
    "b": np.array([[[0.95, 0.05], [0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]]]),
}


def collider(a_table: Any, c_table: Any, b_table: Any) -> None:
    a = numpyro.sample("a", dist.Categorical(a_table))
    c = numpyro.sample("c", dist.Categorical(c_table))
    numpyro.sample("b", dist.Categorical(b_table[a, c]))


def tables() -> dict[str, Any]:
    return {f"{name}_table": table for name, table in COLLIDER.items()}


def random_net(p: Any, q: Any, r: Any, s: Any, noise: float, y: Any) -> None:
    """A net with a loop, nodes of two and three values, and what is seen of two of them."""
    u = numpyro.sample("u", dist.Categorical(p))
    v = numpyro.sample("v", dist.Categorical(q[u]))
    w = numpyro.sample("w", dist.Categorical(r[u]))
    x = numpyro.sample("x", dist.Categorical(s[v, w]))
    numpyro.sample("seen", dist.Normal(1.0 * x + 0.3 * u, noise), obs=y)


def net_data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    p, q, r, s = (rng.dirichlet(np.ones(3), shape) for shape in ((), (3,), (3,), (3, 3)))
    return {"p": p, "q": q, "r": r, "s": s, "noise": 0.7, "y": 0.9}


def joint_of_net() -> np.ndarray:
    """p(u, v, w, x, y), (u, v, w, x)."""
    data = net_data()
    table = np.einsum("u,uv,uw,vwx->uvwx", data["p"], data["q"], data["r"], data["s"])
    means = np.arange(3) + 0.3 * np.arange(3)[:, None]  # (u, x)
    seen = np.exp(-0.5 * ((data["y"] - means) / 0.7) ** 2) / (0.7 * np.sqrt(2 * np.pi))
    return table * seen[:, None, None, :]


@pytest.mark.parametrize(
    "of", [*(pytest.param(of, marks=pytest.mark.slow) for of in ("u", "w", ("u", "x"))), "v", "x", ("x", "u", "w")]
)
def test_queries_are_sums_of_the_joint_table(of: Any) -> None:
    found = query(random_net, net_data(), of=of, given={"v": 2} if "v" not in of else None)
    joint = joint_of_net() if "v" in of else joint_of_net()[:, 2:3]
    letters, names = "uvwx", [of] if isinstance(of, str) else of
    truth = np.einsum(f"uvwx->{''.join(names)}", joint)
    np.testing.assert_allclose(found, truth / truth.sum(), atol=1e-12)
    np.testing.assert_allclose(found.attrs["log_evidence"], np.log(joint.sum()), rtol=1e-12)
    assert list(found.dims) == list(names)
    assert set(letters) >= set(names)


def test_explaining_away() -> None:
    """W17: p(a | b, c) without the other parent of b is another number."""
    data = tables()
    prior, one, both = (
        float(query(collider, data, of="a", given=given)[1]) for given in ({}, {"b": 1}, {"b": 1, "c": 1})
    )
    joint = np.einsum("a,c,acb->acb", *(COLLIDER[name] for name in "acb"))
    np.testing.assert_allclose(prior, 0.3, atol=1e-12)
    np.testing.assert_allclose(one, joint[1, :, 1].sum() / joint[:, :, 1].sum(), atol=1e-12)
    np.testing.assert_allclose(both, joint[1, 1, 1] / joint[:, 1, 1].sum(), atol=1e-12)
    assert both < one  # c explains b, so a is less needed
    np.testing.assert_allclose(query(collider, data, of="a", given={"c": 1})[1], 0.3, atol=1e-12)


def test_evidence_in_the_data_or_given_is_the_same() -> None:
    one, other = query(collider, tables() | {"b": 1}, of="a"), query(collider, tables(), of="a", given={"b": 1})
    np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose(one.attrs["log_evidence"], other.attrs["log_evidence"], rtol=1e-12)


def ring(given: Any = None) -> tuple[dict[str, Any], np.ndarray, float]:
    """A ring of four nodes with known couplings, the probabilities of its 16 configurations, and the prior density."""
    data = {k: v for k, v in markov_random_field.example().items() if k != "x"} | {"num_rows": 1}
    coupling, field = np.array([0.5, 0.3, -0.4, 0.8]), np.array([0.1, -0.2, 0.3, 0.0])
    weights = np.zeros((2,) * 4)
    for x in itertools.product((0, 1), repeat=4):
        s = 2 * np.array(x) - 1
        pairs = sum(k * s[i] * s[j] for k, (i, j) in zip(coupling, data["edges"], strict=True))
        weights[x] = np.exp(pairs + field @ s)
    known = np.concatenate([coupling, field])
    log_prior = (-0.5 * (known / 0.8) ** 2 - np.log(0.8 * np.sqrt(2 * np.pi))).sum()
    return data | {"coupling": coupling, "field": field}, weights / weights.sum(), log_prior


def test_a_site_with_many_elements() -> None:
    data, probs, log_prior = ring()
    each = query(markov_random_field.model, data, of="x")
    assert each.dims == ("row", "node", "x_value")
    for node in range(4):
        others = tuple(axis for axis in range(4) if axis != node)
        np.testing.assert_allclose(each[0, node], probs.sum(others), atol=1e-12)
    np.testing.assert_allclose(each.attrs["log_evidence"], log_prior, rtol=1e-12)
    pair = query(markov_random_field.model, data, of=["x[0, 3]", "x[0, 0]"], given={"x[0, 1]": 1})
    truth = probs[:, 1].sum(1).T
    np.testing.assert_allclose(pair, truth / truth.sum(), atol=1e-12)
    whole = query(markov_random_field.model, data, of="x[0, 2]", given={"x": [[0, np.nan, np.nan, 1]]})
    truth = probs[0, :, :, 1].sum(0)
    np.testing.assert_allclose(whole, truth / truth.sum(), atol=1e-12)


def test_the_most_probable_explanation_is_not_that_of_each_element() -> None:
    """Of a chain, whose first node is 1 by itself and 0 in the most probable configuration."""
    data = {"p": np.array([0.45, 0.55]), "q": np.array([[0.95, 0.05], [0.5, 0.5]])}

    def chain(p: Any, q: Any) -> None:
        a = numpyro.sample("a", dist.Categorical(p))
        numpyro.sample("b", dist.Categorical(q[a]))

    found = most_probable_explanation(chain, data)
    assert (int(found["a"]), int(found["b"])) == (0, 0)
    assert float(query(chain, data, of="a")[1]) > 0.5
    np.testing.assert_allclose(found.attrs["log_probability"], np.log(0.45 * 0.95), rtol=1e-12)
    tree = bl.fit(0, chain, data, bl.MAP(), progress=False)
    assert [int(tree["posterior"][name][0, 0]) for name in "ab"] == [0, 0]
    np.testing.assert_allclose(tree.attrs["log_probability"], np.log(0.45 * 0.95), rtol=1e-12)


def test_explanations_of_a_net_with_evidence() -> None:
    joint = joint_of_net()
    best = np.unravel_index(joint.argmax(), joint.shape)
    found = most_probable_explanation(random_net, net_data())
    assert tuple(int(found[name]) for name in "uvwx") == best
    np.testing.assert_allclose(found.attrs["log_joint"], np.log(joint.max()), rtol=1e-12)
    np.testing.assert_allclose(found.attrs["log_probability"], np.log(joint.max() / joint.sum()), rtol=1e-12)
    tree = bl.fit(0, random_net, net_data(), bl.MAP(), progress=False)
    assert tuple(int(tree["posterior"][name][0, 0]) for name in "uvwx") == best
    np.testing.assert_allclose(tree["sample_stats"]["lp"].item(), np.log(joint.max()), rtol=1e-12)


@pytest.mark.slow
def test_queries_of_missing_nodes_with_tables_integrated_out() -> None:
    """A missing entry of a net whose tables are unknown: enumeration of what complete data would have said."""
    parents, sizes = (("a", ()), ("b", ("a",))), {"a": 2, "b": 2}
    data = {"num_rows": 4, "parents": parents, "num_values": sizes, "concentration": 0.8}
    a, b = np.array([0.0, np.nan, 0.0, 1.0]), np.array([0, 1, 1, 1])
    with precision_scope():
        filled = [{"a": np.where(np.isnan(a), value, a).astype(int), "b": b} for value in (0, 1)]
        truth = np.array([bayes_net.log_evidence(nodes, parents, sizes, 0.8) for nodes in filled])
    program = bayes_net.model
    found = query(program, data | {"a": a, "b": b}, of="a")
    np.testing.assert_allclose(found.values[1], np.exp(truth) / np.exp(truth).sum(), atol=1e-12)
    np.testing.assert_allclose(found.values[[0, 2, 3], [0, 0, 1]], 1.0)
    np.testing.assert_allclose(found.attrs["log_evidence"], np.logaddexp(*truth), rtol=1e-12)
    with pytest.raises(ValueError, match="is observed: the data say 1"):
        query(program, data | {"a": a, "b": b}, of="a[3]")


def hidden_temperature() -> None:
    z = numpyro.sample("z", dist.Bernoulli(0.3))
    x = numpyro.sample("x", dist.Normal(2.0 * z, 1.0))
    numpyro.sample("y", dist.Normal(x, 1.0))


def rate_of_counts() -> None:
    z = numpyro.sample("z", dist.Bernoulli(0.3))
    x = numpyro.sample("x", dist.Normal(2.0 * z, 1.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(x)))


@pytest.mark.parametrize(
    ("data", "variance"), quick_ones([({"y": 0.3}, 2.0), ({"x": 0.3}, 1.0), ({}, np.inf)], ({"y": 0.3}, 2.0))
)
def test_continuous_sites_are_integrated_out(data: dict[str, float], variance: float) -> None:
    """Between a question and the evidence, below both, and where nothing is known."""
    weights = np.array([0.7, 0.3]) * np.exp(-0.5 * (0.3 - np.array([0.0, 2.0])) ** 2 / variance)
    found = query(hidden_temperature, data, of="z")
    np.testing.assert_allclose(found.values, weights / weights.sum(), rtol=1e-10)


CRF_WEIGHTS = {"start": np.zeros(2), "w": np.zeros((2, 1)), "moves": np.zeros((2, 2))}
WRONG = {
    "unknown name": (lambda: query(collider, tables(), of="d"), "no discrete latent element"),
    "value": (lambda: query(collider, tables(), of="a", given={"b": 2}), "given as 2, but its values are"),
    "twice": (lambda: query(collider, tables(), of=("a", "a")), "each once"),
    "nothing": (lambda: query(collider, tables(), of=()), "one or more names"),
    "all observed": (lambda: query(collider, tables() | {"a": 1, "b": 0, "c": 1}, of="a"), "nothing to infer"),
    "shape": (lambda: query(collider, tables(), of="a", given={"b": [0, 1]}), "has shape"),
    "site among several": (
        lambda: query(markov_random_field.model, ring()[0], of=("x", "x[0, 1]")),
        "no discrete latent element",
    ),
    "continuous": (
        lambda: query(rate_of_counts, {"y": 2}, of="z"),
        r"'x' cannot be integrated out: .* not Normal given 'y'; give values .* or count what fit",
    ),
    "chain": (
        lambda: query(crf.model, {"x": np.zeros((1, 3, 1)), "num_labels": 2} | CRF_WEIGHTS, of="y"),
        "LinearChainCRF.* too many values to be summed over; bl.states.smoothed_states and most_probable_path",
    ),
    "impossible": (
        lambda: query(collider, tables() | {"a_table": np.array([1.0, 0.0])}, of="b", given={"a": 1}),
        "probability zero",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str) -> None:
    call, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        call()


def test_elements_too_wide_are_refused_in_a_sentence() -> None:
    def all_meet(size: int) -> None:
        with numpyro.plate("node", size):
            x = numpyro.sample("x", dist.Bernoulli(0.5))
        numpyro.factor("tie", jnp.square(jnp.sqrt(2.0 + jnp.arange(size)) @ x - 3.0) ** 0.5)

    with pytest.raises(ValueError, match="cannot be summed over together"):
        query(all_meet, {"size": 24}, of="x")
