"""Belief propagation: messages between the elements of a discrete program and the functions that tie them.

From a factor f to an element x goes m(x) = sum over its other elements of f times their messages to it, and from x to f
the product of the messages that x has from its other factors; with maxima in place of sums that is max-product
(Whiteboard notes, "Inference"; Kschischang, Frey and Loeliger 2001, IEEE Transactions on Information Theory 47:498).
All is done with logs, and every message is normalised. On a tree two sweeps, from the leaves to a root and back, are
exact. Elsewhere messages go round until they stand still, if they do, and what they say is an approximation.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayeslab.graphical_models.discrete_programs import discrete_program
from bayeslab.graphical_models.factor_graphs import graph_of
from bayeslab.graphical_models.free_energy import bethe_log_partition
from bayeslab.programs.program import Data, Program

if TYPE_CHECKING:
    from networkx import Graph
    from xarray import DataArray

Messages = dict[tuple[str, str], np.ndarray]
"""Log messages by (from, to), in the order in which they were first sent."""


class Beliefs(NamedTuple):
    """What belief propagation ends with.

    probabilities: for every element the table of its beliefs, by name; with max_product that of the largest joint
    probability that each of its values has a part in, relative to others.
    messages: the log messages by (from, to), normalised, in the order in which they were first sent.
    log_partition: the log of the sum over all elements by the free energy of Bethe, exact on a tree; with max_product
    NaN. is_tree: whether the factor graph has no cycle. converged, num_sweeps: whether messages stand
    still, and how often all were sent.
    """

    probabilities: "dict[str, DataArray]"
    messages: Messages
    log_partition: float
    is_tree: bool
    converged: bool
    num_sweeps: int


def belief_propagation(
    model: Program,
    data: Data,
    given: Mapping[str, Any] | None = None,
    max_product: bool = False,
    damping: float = 0.0,
    num_sweeps: int = 200,
) -> Beliefs:
    """Beliefs of all discrete elements of a program by messages, sum-product or max-product.

    data, given: as for `query`, whose errors it raises. On a tree messages are sent from the leaves to a root, and then
    from there to the leaves. Where there are cycles all are sent again until none changes by more than 1e-10, at most
    num_sweeps times. damping: the share of the old log message that is kept there, below 1, against oscillations.
    """
    import networkx as nx

    if not 0 <= damping < 1:
        raise ValueError(f"damping is {damping}, but is a share from 0 up to below 1")
    if num_sweeps < 1:
        raise ValueError(f"num_sweeps is {num_sweeps}, but messages must be sent once or more")
    program = discrete_program(model, data, given)
    graph = graph_of(program)
    is_tree = nx.is_forest(graph)
    schedule = tree_schedule(graph) if is_tree else [pair for edge in graph.edges for pair in (edge, edge[::-1])]
    messages: Messages = {}
    if not is_tree:
        messages = {(a, b): np.zeros(_size(graph, a, b)) for a, b in schedule}
    sweeps, converged = 0, False
    while not converged and sweeps < (1 if is_tree else num_sweeps):
        change = 0.0
        for source, target in schedule:
            new = message(graph, messages, source, target, max_product)
            if (old := messages.get((source, target))) is not None:
                with np.errstate(invalid="ignore"):
                    new = _normalised(np.where(new == old, new, damping * old + (1 - damping) * new), max_product)
                    change = max(change, float(np.max(np.where(new == old, 0.0, np.abs(new - old)))))
            messages[source, target] = new
        sweeps += 1
        converged = is_tree or change <= 1e-10
    observed = program.observed
    latent = [name for place, name in enumerate(program.names) if place not in observed]
    beliefs = {name: belief(graph, messages, name, max_product) for name in latent}
    log_partition = np.nan if max_product else bethe_log_partition(graph, messages) + program.constant
    return Beliefs(
        {name: _table(name, graph.nodes[name]["values"], array) for name, array in beliefs.items()},
        messages,
        float(log_partition),
        is_tree,
        converged,
        sweeps,
    )


def tree_schedule(graph: "Graph") -> list[tuple[str, str]]:
    """The order of messages on a forest, (from, to): in every tree from its leaves to a root, and then back."""
    import networkx as nx

    schedule: list[tuple[str, str]] = []
    for component in nx.connected_components(graph):
        root = next(node for node in graph if node in component)
        outwards = list(nx.bfs_edges(graph, root))
        schedule += [(child, parent) for parent, child in outwards[::-1]] + outwards
    return schedule


def message(graph: "Graph", messages: Messages, source: str, target: str, max_product: bool = False) -> np.ndarray:
    """The log message from one node to another, normalised, given those that the first has from its other neighbours.

    Raises KeyError where one of these has not been sent.
    """
    node = graph.nodes[source]
    if node["kind"] == "variable":
        incoming = [messages[other, source] for other in graph[source] if other != target]
        return _normalised(sum(incoming, np.zeros(len(node["values"]))), max_product)
    scope, total = node["scope"], node["log_table"]
    for axis, name in enumerate(scope):
        if name != target:
            total = total + _along(messages[name, source], axis, len(scope))
    axes = tuple(axis for axis, name in enumerate(scope) if name != target)
    return _normalised(total.max(axes) if max_product else logsumexp(total, axes) if axes else total, max_product)


def belief(graph: "Graph", messages: Messages, name: str, max_product: bool = False) -> np.ndarray:
    """The belief about an element: the product of all messages to it, normalised."""
    size = len(graph.nodes[name]["values"])
    return np.exp(_normalised(sum((messages[other, name] for other in graph[name]), np.zeros(size)), max_product))


def _along(array: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    return array.reshape(tuple(-1 if place == axis else 1 for place in range(ndim)))


def _normalised(log_message: np.ndarray, max_product: bool) -> np.ndarray:
    """A log message that sums to one, or has its largest value at one. Raises ValueError where all of it is zero."""
    largest = log_message.max()
    if not np.isfinite(largest):
        raise ValueError("the data and what is given have probability zero, so nothing can be said given them")
    return log_message - (largest if max_product else logsumexp(log_message))


def _size(graph: "Graph", first: str, second: str) -> int:
    """How many values a message between two nodes has."""
    variable = first if graph.nodes[first]["kind"] == "variable" else second
    return len(graph.nodes[variable]["values"])


def _table(name: str, values: list[int], probs: np.ndarray) -> "DataArray":
    from xarray import DataArray

    return DataArray(probs, {name: values}, [name], "probability")
