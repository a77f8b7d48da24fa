"""A Markov random field of binary nodes, whose neighbours tend to be alike, or unlike: the model of Ising.

    coupling_e      ~ Normal(0, tau^2),   edge e between nodes i and j
    field_i         ~ Normal(0, tau^2),   node i
    p(x | ...)      = exp(sum over edges of coupling_e s_i s_j + sum over nodes of field_i s_i) / Z,   s = 2 x - 1

Whiteboard notes, "PGM": p(x) is a product of potentials exp(-E) over cliques, divided by the partition function Z. That
depends on couplings and fields, and is summed out exactly here, node after node, which edges in a narrow graph allow.
Where couplings and fields are given in the data, and x is not, the program is a field with known weights, and
`bl.graphical_models.query`, `belief_propagation` and `most_probable_explanation` say what it holds.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from bayeslab.distributions import MarkovRandomField

SPINS = np.array([-1.0, 1.0])


def model(num_rows: int, num_nodes: int, edges: ArrayLike, tau: float = 1.0) -> None:
    """Draw coupling (edge,), field (node,) and x (row, node), 0 or 1; edges (edge, 2) are pairs of nodes.

    Without edges there is no coupling, and nodes are independent.
    """
    edges = np.asarray(edges, int).reshape(-1, 2)
    coupling = jnp.zeros(0)
    if len(edges):
        with numpyro.plate("edge", len(edges)):
            coupling = numpyro.sample("coupling", dist.Normal(0.0, tau))
    with numpyro.plate("node", num_nodes):
        field = numpyro.sample("field", dist.Normal(0.0, tau))
    log_potentials = coupling[:, None, None] * np.outer(SPINS, SPINS)
    with numpyro.plate("row", num_rows):
        random_field = MarkovRandomField(field[:, None] * SPINS, log_potentials, edges)
        numpyro.sample("x", random_field, infer={"event_dims": ["node"]})


def grid(rows: int, columns: int) -> np.ndarray:
    """The edges (edge, 2) between neighbours in a grid whose nodes are numbered row by row."""
    numbers = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack([numbers[:, :-1].ravel(), numbers[:, 1:].ravel()], axis=-1)
    down = np.stack([numbers[:-1].ravel(), numbers[1:].ravel()], axis=-1)
    return np.concatenate([across, down])


def example() -> dict[str, Any]:
    """Seven rows of four nodes in a ring, most of them like their neighbours."""
    x = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]])
    edges = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
    return {"num_rows": 7, "num_nodes": 4, "edges": edges, "tau": 0.8, "x": x}


def data() -> dict[str, Any]:
    """The ink in a grid of 4 x 4 fields of 178 handwritten zeros (Alpaydin and Kaynak 1998)."""
    from sklearn.datasets import load_digits
    from xarray import DataArray

    digits = load_digits()
    zeros = digits.images[digits.target == 0]
    ink = zeros.reshape(-1, 4, 2, 4, 2).mean((2, 4)) > 7.5
    coords = {"row": np.arange(len(ink)), "node": [f"{row}, {column}" for row, column in np.ndindex(4, 4)]}
    x = DataArray(ink.reshape(-1, 16).astype(int), coords, ("row", "node"))
    return {"num_rows": len(ink), "num_nodes": 16, "edges": grid(4, 4), "x": x}
