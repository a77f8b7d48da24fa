"""The free energy of Bethe, minus the log partition function that beliefs stand for (Yedidia, Freeman and Weiss 2005,
IEEE Transactions on Information Theory 51:2282)."""

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp, xlogy

if TYPE_CHECKING:
    from networkx import Graph


def bethe_log_partition(graph: "Graph", messages: dict[tuple[str, str], np.ndarray]) -> float:
    """The log of the sum over all elements by the beliefs of sum-product: mean log tables, plus the entropies of the
    beliefs of factors, less those of elements as often as they are counted too much. Exact on a tree."""
    total = 0.0
    for name, node in graph.nodes.items():
        if node["kind"] == "variable":
            size = len(node["values"])
            log_belief = sum((messages[other, name] for other in graph[name]), np.zeros(size))
            probs = np.exp(log_belief - logsumexp(log_belief))
            total += (graph.degree[name] - 1) * xlogy(probs, probs).sum()
            continue
        log_belief = node["log_table"]
        for axis, other in enumerate(node["scope"]):
            shape = [-1 if place == axis else 1 for place in range(len(node["scope"]))]
            log_belief = log_belief + messages[other, name].reshape(shape)
        probs = np.exp(log_belief - logsumexp(log_belief))
        mean = np.where(probs > 0, probs * np.where(probs > 0, node["log_table"], 0.0), 0.0).sum()
        total += mean - xlogy(probs, probs).sum()
    return float(total)
