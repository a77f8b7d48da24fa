"""A Bayesian network of discrete nodes, with a table of probabilities for every node given its parents.

    table_j[parents]        ~ Dirichlet(concentration, ..., concentration),   one row for every value of the parents
    x_ij | x_i, parents(j)  ~ Categorical(table_j[x_i, parents(j)]),          row i = 1..n, node j

Whiteboard notes, "PGM". The joint probability is the product of p(x_j | parents of x_j). Three nodes make the local
structures: in a CHAIN a -> b -> c and in a FORK a <- b -> c, a and c are independent given b; in a COLLIDER
a -> b <- c they are independent until b is known, and then each explains the other away. The blanket of a node has its
parents, its children and the other parents of these, which the notes leave out.

With complete data the posterior adds to every row of a table the number of times that its values occur; missing entries
of nodes are drawn, or summed over, with the tables. Where tables are given in the data, and the nodes are not, the
program is a net with known tables, and `bl.graphical_models.query` answers what a node is given others.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

Parents = tuple[tuple[str, tuple[str, ...]], ...]
"""Every node of a net, with those that it depends on, each after its own."""
CHAIN: Parents = (("a", ()), ("b", ("a",)), ("c", ("b",)))
FORK: Parents = (("b", ()), ("a", ("b",)), ("c", ("b",)))
COLLIDER: Parents = (("a", ()), ("c", ()), ("b", ("a", "c")))


def model(num_rows: int, parents: Parents, num_values: Mapping[str, int], concentration: float = 1.0) -> None:
    """Draw table_j (value of a parent, ..., value) and x_j (row,) for every node j, as sites "table_a" and "a".

    num_values: how many values every node has.
    """
    nodes: dict[str, Array] = {}
    for name, own in parents:
        axes = tuple(f"{name}_given_{parent}" for parent in own)
        shape = tuple(num_values[parent] for parent in own)
        rows = dist.Dirichlet(jnp.full(num_values[name], concentration)).expand(shape).to_event(len(own))
        table = numpyro.sample(f"table_{name}", rows, infer={"event_dims": [*axes, f"{name}_value"]})
        with numpyro.plate("row", num_rows):
            probs = table[tuple(nodes[parent] for parent in own)]
            nodes[name] = numpyro.sample(name, dist.Categorical(probs))


def log_evidence(
    nodes: Mapping[str, Array], parents: Parents, num_values: Mapping[str, int], concentration: float = 1.0
) -> Array:
    """log p(x) of complete nodes (row,): every row of every table has the evidence of a Dirichlet and its counts."""
    total = jnp.zeros(())
    for name, own in parents:
        shape = tuple(num_values[each] for each in (*own, name))
        counts = jnp.zeros(shape).at[tuple(nodes[each] for each in (*own, name))].add(1.0)
        prior = num_values[name] * concentration
        total += (gammaln(prior) - gammaln(prior + counts.sum(-1))).sum()
        total += (gammaln(concentration + counts) - gammaln(concentration)).sum()
    return total


def example() -> dict[str, Any]:
    """Ten rows of a collider; b has three values."""
    a = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0, 1])
    c = np.array([1, 0, 0, 1, 0, 1, 0, 0, 1, 1])
    b = np.array([1, 1, 0, 2, 1, 2, 0, 2, 1, 2])
    sizes = {"a": 2, "b": 3, "c": 2}
    return {"num_rows": 10, "parents": COLLIDER, "num_values": sizes, "concentration": 0.8, "a": a, "b": b, "c": c}


def data() -> dict[str, Any]:
    """A fork: the species of 150 irises, and whether petals and sepals are above the median (Fisher 1936)."""
    from sklearn.datasets import load_iris

    flowers = load_iris(as_frame=True)
    sizes = {"b": 3, "a": 2, "c": 2}
    above = (flowers.data > flowers.data.median()).astype(int)
    nodes = {"b": flowers.target, "a": above["petal length (cm)"], "c": above["sepal width (cm)"]}
    return {"num_rows": 150, "parents": FORK, "num_values": sizes} | {
        name: value.rename_axis("row").to_xarray() for name, value in nodes.items()
    }
