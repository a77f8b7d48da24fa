"""Messages on trees against sums of the joint table, and on loops against exact answers."""

from typing import Any

import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayeslab.graphical_models import belief_propagation, factor_graph, most_probable_explanation, query
from bayeslab.graphical_models.discrete_programs import discrete_program
from bayeslab.graphical_models.factor_graphs import graph_of
from bayeslab.graphical_models.free_energy import bethe_log_partition
from bayeslab.graphical_models.messages import belief, message, tree_schedule
from bayeslab.models import markov_random_field


def program(a_table: Any, ab: Any, bc: Any, cd: Any, de: Any) -> None:
    """The chain of the lecture, a -> b -> c -> d -> e."""
    last = numpyro.sample("a", dist.Categorical(a_table))
    for name, table in zip("bcde", (ab, bc, cd, de), strict=True):
        last = numpyro.sample(name, dist.Categorical(table[last]))


def data() -> dict[str, Any]:
    pairs = {"ab": (0.2, 0.7), "bc": (0.4, 0.9), "cd": (0.3, 0.5), "de": (0.1, 0.8)}
    tables = {name: np.array([[1 - p, p], [1 - q, q]]) for name, (p, q) in pairs.items()}
    return {"a_table": np.array([0.6, 0.4])} | tables


def joint() -> np.ndarray:
    tables = data()
    return np.einsum("a,ab,bc,cd,de->abcde", tables["a_table"], *(tables[name] for name in ("ab", "bc", "cd", "de")))


def test_messages_of_the_chain_are_partial_sums() -> None:
    """W18: the message to d is m(c -> d), and that from the right, with nothing observed, is one."""
    found = belief_propagation(program, data())
    tables = data()
    left = tables["a_table"] @ tables["ab"] @ tables["bc"]
    to_d = np.exp(found.messages["f(c, d)", "d"])
    np.testing.assert_allclose(np.exp(found.messages["f(b, c)", "c"]), left, atol=1e-12)
    np.testing.assert_allclose(to_d, left @ tables["cd"], atol=1e-12)
    np.testing.assert_allclose(np.exp(found.messages["f(d, e)", "d"]), [0.5, 0.5], atol=1e-12)
    assert (found.is_tree, found.converged, found.num_sweeps) == (True, True, 1)


@pytest.mark.parametrize("given", [{}, {"e": 1}, {"e": 1, "b": 0}])
def test_beliefs_on_a_tree_are_exact(given: dict[str, int]) -> None:
    found = belief_propagation(program, data(), given)
    table = joint()
    for axis, name in enumerate("abcde"):
        if name in given:
            table = np.delete(table, 1 - given[name], axis)
            table = np.insert(table, 1 - given[name], 0.0, axis)
    for axis, name in enumerate("abcde"):
        truth = table.sum(tuple(other for other in range(5) if other != axis))
        np.testing.assert_allclose(found.probabilities[name], truth / truth.sum(), atol=1e-12)
    np.testing.assert_allclose(found.log_partition, np.log(table.sum()), atol=1e-12)


def test_max_product_finds_the_most_probable_explanation() -> None:
    """W19: the largest product is over the element itself too."""
    found = belief_propagation(program, data(), {"e": 1}, max_product=True)
    truth, table = most_probable_explanation(program, data(), {"e": 1}), joint()[..., 1]
    for axis, name in enumerate("abcd"):
        assert int(found.probabilities[name].values.argmax()) == int(truth[name])
        largest = table.max(tuple(other for other in range(4) if other != axis))
        np.testing.assert_allclose(found.probabilities[name], largest / largest.max(), atol=1e-12)


def test_a_message_must_wait_for_those_that_it_is_made_of() -> None:
    graph = graph_of(discrete_program(program, data()))
    backwards = tree_schedule(graph)[::-1]
    with pytest.raises(KeyError):
        message(graph, {}, *backwards[0])


def test_a_wrong_schedule_is_not_exact() -> None:
    """One sweep over the edges in the order of the graph, from messages that say nothing."""
    graph = graph_of(discrete_program(program, data(), {"e": 1}))
    messages = {(a, b): np.zeros(2) for edge in graph.edges for a, b in (edge, edge[::-1])}
    for source, target in list(messages)[::-1]:
        messages[source, target] = message(graph, messages, source, target)
    truth = query(program, data(), of="a", given={"e": 1})
    assert np.abs(belief(graph, messages, "a") - truth.values).max() > 0.01
    exact: dict[tuple[str, str], np.ndarray] = {}
    for source, target in tree_schedule(graph):
        exact[source, target] = message(graph, exact, source, target)
    np.testing.assert_allclose(belief(graph, exact, "a"), truth, atol=1e-12)
    assert abs(bethe_log_partition(graph, messages) - bethe_log_partition(graph, exact)) > 1e-3


def grid(coupling: float) -> dict[str, Any]:
    edges = markov_random_field.grid(3, 3)
    field = np.linspace(-0.4, 0.5, 9)
    known = {"coupling": np.full(len(edges), coupling), "field": field}
    return {"num_rows": 1, "num_nodes": 9, "edges": edges} | known


@pytest.mark.slow
def test_beliefs_on_loops_are_close_where_couplings_are_weak() -> None:
    errors = []
    for coupling in (0.1, 0.4):
        found = belief_propagation(markov_random_field.model, grid(coupling))
        exact = query(markov_random_field.model, grid(coupling), of="x").values.reshape(9, 2)
        beliefs = np.stack(list(found.probabilities.values()))
        errors.append((np.abs(beliefs - exact).max(), abs(found.log_partition - log_evidence(coupling))))
        assert (found.is_tree, found.converged) == (False, True)
    assert errors[0][0] < 1e-3 < errors[1][0] < 0.1
    assert errors[0][1] < 1e-2 < errors[1][1] < 0.5


def log_evidence(coupling: float) -> float:
    return float(query(markov_random_field.model, grid(coupling), of="x").attrs["log_evidence"])


def test_messages_that_do_not_stand_still_are_told() -> None:
    """Frustrated and strong: no fixed point within a few sweeps, and none without damping."""
    data = grid(0.4) | {"coupling": np.tile([2.0, -2.0], 6)}
    found = belief_propagation(markov_random_field.model, data, num_sweeps=3)
    assert not found.converged
    assert found.num_sweeps == 3
    for words, more in (("share from 0", {"damping": 1.0}), ("once or more", {"num_sweeps": 0})):
        with pytest.raises(ValueError, match=words):
            belief_propagation(markov_random_field.model, data, **more)  # type: ignore[arg-type]


def test_the_factor_graph_holds_the_log_joint() -> None:
    graph = factor_graph(program, data())
    assert nx.is_tree(graph)
    states = dict(zip("abcde", (0, 1, 1, 0, 1), strict=True))
    factors = [node for node in graph.nodes.values() if node["kind"] == "factor"]
    total = sum(factor["log_table"][tuple(states[name] for name in factor["scope"])] for factor in factors)
    np.testing.assert_allclose(total + graph.graph["constant"], np.log(joint()[0, 1, 1, 0, 1]), rtol=1e-12)
