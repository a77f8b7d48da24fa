"""The factor graph of a discrete program, for networkx."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bayeslab.graphical_models.discrete_programs import DiscreteProgram, discrete_program
from bayeslab.programs.program import Data, Program

if TYPE_CHECKING:
    from networkx import Graph


def factor_graph(model: Program, data: Data, given: Mapping[str, Any] | None = None) -> "Graph":
    """The bipartite networkx graph of the discrete elements of a program and the functions that its log joint sums.

    Nodes of elements are named like them, with attributes `kind` "variable" and `values`; those of functions are named
    "f(a, b)", with `kind` "factor" and `log_table`, an array with an axis for every neighbour in the order of
    `scope`. The sum of all tables and the attribute `constant` of the graph is the log joint, so on this graph
    networkx finds whether the program is a tree, what separates its elements, and where it may be cut.
    data, given: as for `query`, whose errors it raises.
    """
    return graph_of(discrete_program(model, data, given))


def graph_of(program: DiscreteProgram) -> "Graph":
    """The factor graph of a discrete program; functions of the same elements are one factor."""
    import networkx as nx

    graph = nx.Graph(constant=program.constant)
    for name, values in zip(program.names, program.values, strict=True):
        graph.add_node(name, kind="variable", values=list(values))
    for scope, table in zip(program.scopes, program.tables, strict=True):
        names = tuple(program.names[each] for each in scope)
        factor = f"f({', '.join(names)})"
        if factor in graph:
            graph.nodes[factor]["log_table"] = graph.nodes[factor]["log_table"] + table
        else:
            graph.add_node(factor, kind="factor", scope=names, log_table=table)
            graph.add_edges_from((factor, name) for name in names)
    return graph
