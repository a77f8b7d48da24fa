"""Bayesian networks from networkx graphs, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

if TYPE_CHECKING:
    from networkx import DiGraph

MAX_SUM_ERROR = 1e-6
"""How far from one the probabilities of a row of a table may sum."""


@dataclass(frozen=True)
class BayesNet:
    """A program that draws the nodes of a net, one site for each, from tables that are its argument.

    parents: for every node its parents, in the order of the axes of its table, parents before children.
    """

    parents: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def __name__(self) -> str:
        return f"BayesNet({', '.join(name for name, _ in self.parents)})"

    def __call__(self, tables: Mapping[str, Any]) -> None:
        """Draw every node. tables: by node, (value of a parent, ..., value)."""
        nodes: dict[str, Any] = {}
        for name, own in self.parents:
            probs = jnp.asarray(tables[name])[tuple(nodes[parent] for parent in own)]
            nodes[name] = numpyro.sample(name, dist.Categorical(probs))


def bayes_net_from_networkx(graph: "DiGraph") -> tuple[BayesNet, dict[str, Any]]:
    """The program of a net and its data, for `query`, `fit`, `simulate` and all else.

    graph: a directed graph without cycles, whose nodes have attributes `table`, the probabilities (value of a parent,
    ..., value), and, where there is more than one parent, `parents`, their order among the axes.
    The program is a NumPyro function of its tables: `query(program, data | {"rain": 1}, of="grass")`.
    Raises ValueError for a cycle, a table that is missing or has another shape, or rows that do not sum to one.
    """
    import networkx as nx

    if not graph.is_directed() or not nx.is_directed_acyclic_graph(graph):
        raise ValueError("a Bayesian network needs a directed graph without cycles")
    parents, tables, sizes = [], dict[str, np.ndarray](), dict[str, int]()
    for name in nx.lexicographical_topological_sort(graph, key=str):
        node, before = graph.nodes[name], sorted(graph.predecessors(name), key=str)
        if not isinstance(name, str) or "table" not in node:
            raise ValueError(f"node {name!r} needs a text for its name and an attribute 'table'")
        if len(before) > 1 and "parents" not in node:
            raise ValueError(f"node '{name}' has several parents and needs an attribute 'parents' with their order")
        own = tuple(node.get("parents", before))
        if sorted(own) != before:
            raise ValueError(f"node '{name}' says its parents are {list(own)}, but the graph has {before}")
        table = np.asarray(node["table"], float)
        shape = tuple(sizes[parent] for parent in own)
        if table.ndim != len(own) + 1 or table.shape[:-1] != shape:
            raise ValueError(f"the table of node '{name}' has shape {table.shape}, but its parents have {shape} values")
        if not (table >= 0).all() or np.abs(table.sum(-1) - 1).max() > MAX_SUM_ERROR:
            raise ValueError(f"the rows of the table of node '{name}' are no probabilities that sum to one")
        parents.append((name, own))
        tables[name], sizes[name] = table, table.shape[-1]
    if not parents:
        raise ValueError("the graph has no node")
    return BayesNet(tuple(parents)), {"tables": tables}


def bayes_net_to_networkx(net: BayesNet, data: Mapping[str, Any]) -> "DiGraph":
    """The networkx graph of a net, as `bayes_net_from_networkx` takes it. data: with its tables."""
    from networkx import DiGraph

    graph = DiGraph()
    for name, own in net.parents:
        graph.add_node(name, parents=own, table=np.asarray(data["tables"][name]))
        graph.add_edges_from((parent, name) for parent in own)
    return graph
