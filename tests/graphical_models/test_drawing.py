"""Graphs of programs: what depends on what, plates, and networkx."""

import shutil
from typing import Any
from xml.etree import ElementTree

import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import bayeslab as bl
from bayeslab.graphical_models import bayes_net_from_networkx, bayes_net_to_networkx, query
from bayeslab.models import LECTURES, bayes_net, rbm
from bayeslab.programs.program import precision_scope


def crossed(group: Any, item: Any, num_groups: int, num_items: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", num_groups):
        a = numpyro.sample("a", dist.Normal(mu, 1.0))
    with numpyro.plate("item", num_items):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("group", num_groups, dim=-2), numpyro.plate("item", num_items, dim=-1):
        c = numpyro.sample("c", dist.Normal(a[:, None] + b, 1.0))
    numpyro.deterministic("mean", c.mean())
    numpyro.factor("penalty", -jnp.square(mu))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(c[group, item], 1.0))


CROSSED = {"group": np.array([0, 1, 0, 1]), "item": np.array([0, 0, 1, 2]), "num_groups": 2, "num_items": 3}


def test_what_depends_on_what() -> None:
    drawn = bl.graph(crossed, CROSSED | {"y": np.array([0.0, 1.0, np.nan, 2.0])})
    graph = drawn.to_networkx()
    edges = {("mu", "a"), ("a", "c"), ("b", "c"), ("c", "mean"), ("mu", "penalty"), ("c", "y")}
    assert set(graph.edges) == edges
    roles = {name: node["role"] for name, node in graph.nodes.items()}
    latent = dict.fromkeys(("mu", "a", "b", "c"), "latent")
    assert roles == latent | {"mean": "deterministic", "penalty": "factor", "y": "missing in part"}
    assert graph.nodes["c"]["plates"] == {"group": 2, "item": 3}


def boxes(source: str) -> dict[str, list[str]]:
    """The nested boxes around every node."""
    inside, found = list[str](), dict[str, list[str]]()
    for line in map(str.strip, source.splitlines()):
        if line.startswith("subgraph"):
            inside.append("")
        elif line == "}" and inside:
            inside.pop()
        elif inside and not inside[-1] and line.startswith("label="):
            inside[-1] = line.split('"')[1]
        elif " [" in line and " -> " not in line and not line.startswith(("graph", "node", "label")):
            found[line.split(" [")[0]] = list(inside)
    return found


def test_overlapping_plates_are_boxes_in_boxes() -> None:
    drawn = bl.graph(crossed, CROSSED | {"y": np.zeros(4)})
    around = boxes(drawn.source)
    assert around["mu"] == []
    assert around["a"] == ["group 2"]
    assert around["b"] == ["item 3"]
    assert set(around["c"]) == {"group 2", "item 3"}
    assert around["y"] == ["row 4"]
    assert "mu -> penalty [dir=none]" in drawn.source
    assert 'y [label="y\\nNormal" fillcolor=gray80' in drawn.source


def test_a_scan_has_a_loop() -> None:
    def hidden_chain(y: Any) -> None:
        with numpyro.plate("state", 2):
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)))

        def step(last: Any, value: Any) -> Any:
            z = numpyro.sample("z", dist.Categorical(rows[last]))
            numpyro.sample("y", dist.Poisson(1.0 + z), obs=value)
            return z, None

        scan(step, 0, y)

    edges = set(bl.graph(hidden_chain, {"y": np.array([1, 2, 3])}).to_networkx().edges)
    assert edges == {("rows", "z"), ("z", "z"), ("z", "y")}


def test_nodes_of_a_net_that_are_data_or_missing() -> None:
    """Observed nodes are parents too, and the parts of one that is missing in part are one node."""
    data = bayes_net.example()
    data["a"] = np.where(np.arange(10) == 2, np.nan, data["a"])
    graph = bl.graph(bayes_net.model, data).to_networkx()
    assert set(graph.edges) == {("table_a", "a"), ("table_c", "c"), ("table_b", "b"), ("a", "b"), ("c", "b")}
    assert graph.nodes["a"]["role"] == "missing in part"
    assert graph.nodes["c"]["role"] == "observed"


@pytest.mark.parametrize("lecture", LECTURES[::6], ids=lambda one: one.__name__.split(".")[-1])
def test_every_lecture_has_an_acyclic_graph(lecture: Any) -> None:
    drawn = bl.graph(lecture.model, lecture.example())
    graph = drawn.to_networkx()
    assert nx.is_directed_acyclic_graph(nx.DiGraph(pair for pair in graph.edges if pair[0] != pair[1]))
    with precision_scope():
        assert set(graph) == set(bl.bind(lecture.model, lecture.example()).sites)
    assert drawn.source.startswith("digraph")


def test_a_picture_only_where_graphviz_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = bl.graph(rbm.model, rbm.example())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert drawn._repr_mimebundle_() == {"text/plain": drawn.source}


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs the program dot of Graphviz")
def test_the_picture_has_every_node_arrow_and_plate() -> None:
    """What Graphviz renders as SVG: its groups are titled by nodes and arrows; the boxes of plates have their texts."""
    drawn = bl.graph(crossed, CROSSED | {"y": np.zeros(4)})
    svg = drawn._repr_mimebundle_()["image/svg+xml"]
    picture = ElementTree.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}"
    titles = {group.get("class"): set[str]() for group in picture.iter(f"{name}g")}
    for group in picture.iter(f"{name}g"):
        titles[group.get("class")].add(group.findtext(f"{name}title") or "")
    graph = drawn.to_networkx()
    assert titles["node"] == set(graph)
    assert titles["edge"] == {f"{parent}->{child}" for parent, child in graph.edges}
    texts = [text.text for text in picture.iter(f"{name}text")]
    assert sorted(text for text in texts if text[-1].isdigit()) == ["group 2", "item 3", "item 3", "row 4"]
    assert drawn.to_html().startswith("<svg")


def sprinkler() -> nx.DiGraph:
    graph = nx.DiGraph([("rain", "grass"), ("sprinkler", "grass"), ("rain", "sprinkler"), ("grass", "shoes")])
    tables = {
        "rain": [0.8, 0.2],
        "sprinkler": [[0.6, 0.4], [0.99, 0.01]],
        "grass": [[[1.0, 0.0], [0.2, 0.8]], [[0.1, 0.9], [0.01, 0.99]]],
        "shoes": [[0.9, 0.1], [0.3, 0.7]],
    }
    nx.set_node_attributes(graph, {name: np.array(table) for name, table in tables.items()}, "table")
    graph.nodes["grass"]["parents"] = ("sprinkler", "rain")
    return graph


def test_a_net_from_networkx_and_back() -> None:
    graph = sprinkler()
    graph.nodes["grass"]["table"] = np.swapaxes(graph.nodes["grass"]["table"], 0, 1)
    net, data = bayes_net_from_networkx(graph)
    found = query(net, data, of="rain", given={"grass": 1})
    rain, sprinkler_, grass = (graph.nodes[name]["table"] for name in ("rain", "sprinkler", "grass"))
    joint = np.einsum("r,rs,sr->r", rain, sprinkler_, grass[..., 1])
    np.testing.assert_allclose(found, joint / joint.sum(), atol=1e-12)
    assert set(bl.graph(net, data).to_networkx().edges) == set(graph.edges)
    back = bayes_net_to_networkx(net, data)
    assert set(back.edges) == set(graph.edges)
    np.testing.assert_array_equal(back.nodes["grass"]["table"], graph.nodes["grass"]["table"])


def test_d_separation_of_networkx_is_independence_in_queries() -> None:
    graph = sprinkler()
    net, data = bayes_net_from_networkx(graph)
    for one, other, given in (
        ("rain", "shoes", "grass"),
        ("rain", "shoes", "sprinkler"),
        ("sprinkler", "shoes", "grass"),
    ):
        table = query(net, data, of=(one, other), given={given: 1}).values
        gap = np.abs(table - table.sum(1, keepdims=True) * table.sum(0)).max()
        assert (gap < 1e-12) == nx.is_d_separator(graph, {one}, {other}, {given})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda graph: graph.add_edge("shoes", "rain"), "without cycles"),
        (lambda graph: graph.nodes["rain"].pop("table"), "attribute 'table'"),
        (lambda graph: graph.nodes["grass"].pop("parents"), "needs an attribute 'parents'"),
        (lambda graph: graph.nodes["rain"].update(table=np.array([0.5, 0.4])), "sum to one"),
        (lambda graph: graph.nodes["shoes"].update(table=np.ones((3, 2)) / 2), "has shape"),
        (lambda graph: graph.nodes["grass"].update(parents=("rain", "shoes")), "says its parents are"),
        (lambda graph: graph.clear(), "no node"),
    ],
)
def test_nets_that_are_refused(change: Any, words: str) -> None:
    graph = sprinkler()
    change(graph)
    with pytest.raises(ValueError, match=words):
        bayes_net_from_networkx(graph)
