"""Markov random fields with potentials of nodes and edges, normalised by variable elimination."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints

from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution, log_partition
from bayeslab.distributions.factor_graphs.factor_graph import EliminationPlan, elimination_plan


class MarkovRandomField(Distribution):
    """Values x (node,) of 0..K-1 with log p(x) = sum of node[i, x_i] + sum of edge[e, x_i, x_j] - log Z.

    node: log potentials of the nodes (*batch, node, K). edge: those of the edges (*batch, edge, K, K), the first axis
    of a table for the first node of the edge. edges: pairs of nodes (edge, 2), which must be known when the program
    runs.
    log Z is exact, and so are its derivatives: nodes are summed over one after another.
    Raises ValueError for shapes that do not agree, for an edge from a node to itself or to one that there is not, and
    where summing over the nodes would take too large a table.
    """

    arg_constraints = {
        "node": constraints.independent(constraints.real, 2),
        "edge": constraints.independent(constraints.real, 3),
    }
    pytree_data_fields = ("node", "edge")
    pytree_aux_fields = ("edges",)
    has_enumerate_support = True

    def __init__(
        self, node: ArrayLike, edge: ArrayLike, edges: Sequence[Any] | np.ndarray, validate_args: bool | None = None
    ):
        self.node, self.edge = jnp.asarray(node), jnp.asarray(edge)
        pairs = np.asarray(edges, int).reshape(-1, 2)
        self.edges = tuple((int(first), int(second)) for first, second in pairs)
        _check(self.node.shape, self.edge.shape, self.edges)
        batch = jnp.broadcast_shapes(self.node.shape[:-2], self.edge.shape[:-3])
        super().__init__(batch, self.node.shape[-2:-1], validate_args=validate_args)

    @property
    def support(self) -> Any:
        return constraints.independent(constraints.integer_interval(0, self.node.shape[-1] - 1), 1)

    def enumerate_support(self, expand: bool = True) -> Array:
        """The values of one node, (K,): a node has these whatever the others have."""
        return jnp.arange(self.node.shape[-1])

    @property
    def log_partition(self) -> Array:
        """log Z, (*batch)."""
        return self._mapped(lambda tables: log_partition(self._plan, tables))

    def log_weight(self, value: Array) -> Array:
        """The sum of the log potentials at values (*batch, node), log p(x) but for log Z."""
        first, second = self._ends
        nodes, places = np.arange(self.event_shape[0]), np.arange(len(self.edges))
        node = jnp.broadcast_to(self.node, (*self.batch_shape, *self.node.shape[-2:]))
        edge = jnp.broadcast_to(self.edge, (*self.batch_shape, *self.edge.shape[-3:]))

        def log_weight(value: Array, node: Array, edge: Array) -> Array:
            return node[nodes, value].sum() + edge[places, value[first], value[second]].sum()

        return jnp.vectorize(log_weight, signature="(n),(n,k),(e,k,k)->()")(jnp.asarray(value), node, edge)

    def log_prob(self, value: Array) -> Array:
        return self.log_weight(value) - self.log_partition

    def conditional_logits(self, value: Array) -> Array:
        """Log odds of the values of every node given its neighbours (node, K), for one field and one x (node,)."""
        first, second = self._ends
        places = np.arange(len(self.edges))
        logits = self.node.at[first].add(self.edge[places, :, value[second]])
        return logits.at[second].add(self.edge[places, value[first]])

    def pseudo_log_prob(self, value: Array) -> Array:
        """The sum over nodes of log p(x_i | all others), which asks for no log Z, at values (*batch, node).

        Its maximum is a consistent estimate of the potentials (Besag 1975, The Statistician 24:179); it is no
        likelihood, and what is made of it with a prior no posterior.
        """

        def of_one(value: Array, node: Array, edge: Array) -> Array:
            logits = MarkovRandomField(node, edge, self.edges).conditional_logits(value)
            return jnp.take_along_axis(jax.nn.log_softmax(logits), value[:, None], axis=1).sum()

        return jnp.vectorize(of_one, signature="(n),(n,k),(e,k,k)->()")(jnp.asarray(value), self.node, self.edge)

    def gibbs_step(self, key: Array, value: Array) -> Array:
        """Values (..., node) after one sweep: nodes that are no neighbours are drawn at once, given all others."""
        colours = np.array(_colours(self.event_shape[0], self.edges))

        def of_one(value: Array, noise: Array, node: Array, edge: Array) -> Array:
            field = MarkovRandomField(node, edge, self.edges)
            for colour in range(colours.max() + 1):
                drawn = jnp.argmax(field.conditional_logits(value) + noise, axis=-1).astype(value.dtype)
                value = jnp.where(colours == colour, drawn, value)
            return value

        noise = jax.random.gumbel(key, (*value.shape, self.node.shape[-1]))  # a node is drawn once a sweep
        return jnp.vectorize(of_one, signature="(n),(n,k),(n,k),(e,k,k)->(n)")(value, noise, self.node, self.edge)

    def tempered(self, power: Array) -> "MarkovRandomField":
        """The field with its potentials raised to a power; uniform at zero."""
        return MarkovRandomField(power * self.node, power * self.edge, self.edges)

    @property
    def log_num_configurations(self) -> float:
        """The log of the number of configurations, log Z at power zero."""
        return self.event_shape[0] * float(np.log(self.node.shape[-1]))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        keys = jax.random.split(key, self.batch_shape)
        tables = jnp.broadcast_to(self._tables, (*self.batch_shape, self._tables.shape[-1]))

        def draws(key: Array, tables: Array) -> Array:
            return FactorDistribution(tables, self._plan).sample(key, sample_shape)

        for _ in self.batch_shape:
            draws = jax.vmap(draws)
        drawn = draws(keys, tables)  # (*batch, *sample, node)
        return jnp.moveaxis(drawn, range(len(self.batch_shape)), range(-1 - len(self.batch_shape), -1))

    @property
    def _ends(self) -> np.ndarray:
        """The first and the second nodes of all edges, (2, edge)."""
        return np.array(self.edges, int).reshape(-1, 2).T

    @property
    def _plan(self) -> EliminationPlan:
        """How the nodes are summed over. Raises ValueError where the field is too wide for it."""
        size, number = self.node.shape[-2:]
        try:
            return elimination_plan((number,) * size, (*((each,) for each in range(size)), *self.edges))
        except ValueError as reason:
            raise ValueError(
                f"a field of {size} nodes is too wide to sum over; use bl.graphical_models.Exchange(num_sweeps=100) or "
                f"annealed_log_partition ({reason})"
            ) from None

    @property
    def _tables(self) -> Array:
        """All numbers of all tables, (*batch, number)."""
        node = self.node.reshape(*self.node.shape[:-2], -1)
        edge = self.edge.reshape(*self.edge.shape[:-3], -1)
        parts = [jnp.broadcast_to(part, (*self.batch_shape, part.shape[-1])) for part in (node, edge)]
        return jnp.concatenate(parts, axis=-1)

    def _mapped(self, function: Any) -> Array:
        """A function of the tables, for all of the batch."""
        for _ in self.batch_shape:
            function = jax.vmap(function)
        return function(self._tables)


def _check(node: tuple[int, ...], edge: tuple[int, ...], edges: tuple[tuple[int, int], ...]) -> None:
    """Raises ValueError where potentials and edges do not agree."""
    if len(node) < 2:
        raise ValueError(f"node has shape {node}, but needs axes (node, value)")
    size, number = node[-2:]
    if edge[-3:] != (len(edges), number, number):
        need = len(edges), number, number
        raise ValueError(f"edge has shape {edge}, but {len(edges)} edges of {number} values need {need}")
    for pair in edges:
        if not (min(pair) >= 0 and max(pair) < size) or pair[0] == pair[1]:
            raise ValueError(f"edge {pair} does not join two of the nodes 0 to {size - 1}")


@lru_cache(maxsize=64)
def _colours(size: int, edges: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """A colour for every node, so that neighbours have different ones."""
    import networkx as nx

    graph = nx.Graph(edges)
    graph.add_nodes_from(range(size))
    colours = nx.greedy_color(graph)
    return tuple(colours[node] for node in range(size))
