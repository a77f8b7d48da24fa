"""Missing entries of nets as elements to ask for, against enumeration of all ways to complete the data."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from bayeslab.graphical_models import belief_propagation, most_probable_explanation, query
from bayeslab.models import bayes_net
from bayeslab.programs.program import precision_scope

TABLES = {"table_a": np.array([0.3, 0.7]), "table_b": np.array([[0.2, 0.8], [0.6, 0.4]])}
TWO_NODES = {"num_rows": 3, "parents": (("a", ()), ("b", ("a",))), "num_values": {"a": 2, "b": 2}}


def test_a_missing_leaf_is_asked_for_like_any_other_node() -> None:
    data = TWO_NODES | TABLES | {"b": np.array([np.nan, 1, 0])}
    leaf = query(bayes_net.model, data, of="b")
    np.testing.assert_allclose(leaf.values, [[0.48, 0.52], [0, 1], [1, 0]], atol=1e-12)
    joint = TABLES["table_a"][:, None] * TABLES["table_b"]
    np.testing.assert_allclose(query(bayes_net.model, data, of=("a[0]", "b[0]")), joint, atol=1e-12)
    given = query(bayes_net.model, data, of="a[0]", given={"b[0]": 1})
    np.testing.assert_allclose(given, joint[:, 1] / joint[:, 1].sum(), atol=1e-12)
    np.testing.assert_allclose(belief_propagation(bayes_net.model, data).probabilities["b[0]"], [0.48, 0.52])
    last = query(bayes_net.model, data | {"a": np.array([0, 1, 1])}, of="b[0]")  # nothing else is latent
    np.testing.assert_allclose(last, [0.2, 0.8], atol=1e-12)


def test_a_missing_leaf_takes_part_in_the_most_probable_explanation() -> None:
    """With b summed out 1 is more probable, but its best completion is not."""
    tables = {"table_a": np.array([0.45, 0.55]), "table_b": np.array([[0.95, 0.05], [0.5, 0.5]])}
    data = TWO_NODES | tables | {"num_rows": 2, "b": np.array([np.nan, 1])}
    found = most_probable_explanation(bayes_net.model, data)
    assert (int(found["a"][0]), int(found["b"][0])) == (0, 0)


def completions(data: dict[str, Any], missing: list[tuple[str, int]]) -> tuple[np.ndarray, float]:
    """The probabilities of all values of missing entries (node, row), with an axis for each, and the log evidence."""
    sizes, logs = data["num_values"], []
    for values in itertools.product(*(range(sizes[node]) for node, _ in missing)):
        nodes = {node: np.array(data[node]) for node, _ in data["parents"]}
        for (node, row), value in zip(missing, values, strict=True):
            nodes[node][row] = value
        whole = {node: value.astype(int) for node, value in nodes.items()}
        with precision_scope():
            logs.append(float(bayes_net.log_evidence(whole, data["parents"], sizes, data.get("concentration", 1.0))))
    log_evidence = np.logaddexp.reduce(logs)
    return np.exp(np.array(logs) - log_evidence).reshape([sizes[node] for node, _ in missing]), log_evidence


@pytest.mark.slow
def test_tables_that_are_integrated_out_join_no_more_than_the_missing_entries() -> None:
    """Of a leaf and a parent; with all rows the sum would take a table of 6e7 numbers."""
    data, missing = bayes_net.example(), [("b", 2), ("b", 3), ("c", 3)]
    for node, row in missing:
        data[node] = data[node].astype(float)
        data[node][row] = np.nan
    names = [f"{node}[{row}]" for node, row in missing]
    probs, log_evidence = completions(data, missing)
    found = query(bayes_net.model, data, of=names)
    np.testing.assert_allclose(found, probs, atol=1e-12)
    np.testing.assert_allclose(found.attrs["log_evidence"], log_evidence, rtol=1e-12)


@pytest.mark.slow
def test_one_missing_entry_of_a_large_table_of_data() -> None:
    """All 150 flowers meet once the tables are integrated out; those that are known are no part of the sum."""
    data = bayes_net.data()
    species = np.array(data["b"], float)
    species[7] = np.nan
    data["b"] = species
    probs, log_evidence = completions(data, [("b", 7)])
    found = query(bayes_net.model, data, of="b[7]", given={"b": np.full(150, np.nan)})
    np.testing.assert_allclose(found, probs, atol=1e-12)
    np.testing.assert_allclose(found.attrs["log_evidence"], log_evidence, rtol=1e-12)
    whole = query(bayes_net.model, data, of="b").values
    np.testing.assert_allclose(whole[7], probs, atol=1e-12)
    np.testing.assert_array_equal(whole[8:], np.eye(3)[species[8:].astype(int)])
    with pytest.raises(ValueError, match="element 0 of 'b' is observed: the data say 0"):
        query(bayes_net.model, data, of="b[7]", given={"b": np.zeros(150)})


def hidden_path(num_steps: int) -> None:
    moves, emits = jnp.array([[0.9, 0.1], [0.3, 0.7]]), jnp.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])

    def step(carry: Any, _: None) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Categorical(moves[carry]))
        numpyro.sample("y", dist.Categorical(emits[z]))
        return z, None

    scan(step, 0, None, length=num_steps)


def test_missing_leaves_of_a_scan() -> None:
    found = query(hidden_path, {"num_steps": 2, "y": np.array([0, np.nan])}, of="y").values
    moves, emits = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    first = moves[0] * emits[:, 0]
    np.testing.assert_allclose(found, [[1, 0, 0], first / first.sum() @ moves @ emits], atol=1e-12)


def counts_and_lengths(num_rows: int) -> None:
    with numpyro.plate("row", num_rows):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("count", dist.Poisson(1.0 + z))
        numpyro.sample("length", dist.Normal(1.0 * z, 1.0))


@pytest.mark.parametrize("site", ["count", "length"])
def test_leaves_without_a_table_are_named(site: str) -> None:
    data = {"num_rows": 2, "count": np.array([np.nan, 2]), "length": np.array([np.nan, 0.1])}
    for of, given in ((site, None), ("z", {f"{site}[0]": 1.0})):
        with pytest.raises(ValueError, match=f"missing elements of '{site}' have no table"):
            query(counts_and_lengths, data, of=of, given=given)
    first = query(counts_and_lengths, data, of="z[0]")
    np.testing.assert_allclose(first, [0.7, 0.3], atol=1e-12)
