"""Programs whose discrete elements meet along the edges of a graph, and the evidence of large ones by recursions."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import logsumexp
from scipy.stats import norm

COUPLING = 0.6


def grid(pixels: Any) -> None:
    """A grid of hidden pixels, neighbours alike, seen with noise."""
    with numpyro.plate("row", pixels.shape[0], dim=-2), numpyro.plate("column", pixels.shape[1], dim=-1):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("pixel", dist.Normal(1.0 * z, 0.8), obs=pixels)
    s = 2.0 * z - 1.0
    numpyro.factor("neighbours", COUPLING * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()))


def tree(parent: Any, strength: Any) -> None:
    """Nodes that agree with their parents, by indices."""
    with numpyro.plate("node", len(parent)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
    numpyro.factor("edges", (strength * (z[1:] == z[parent[1:]])).sum())


def thousand_nodes() -> tuple[dict[str, Any], float]:
    """The data of a tree of a thousand nodes, and its log evidence by messages from the leaves to the root."""
    rng = np.random.default_rng(0)
    parent = np.array([0, *(int(rng.integers(node)) for node in range(1, 1000))])
    strength = rng.normal(size=999)
    upward = np.zeros((1000, 2))
    for node in range(999, 0, -1):
        own = upward[node] + np.log([0.6, 0.4])
        same = np.where(np.eye(2, dtype=bool), strength[node - 1], 0.0)
        upward[parent[node]] += logsumexp(own[:, None] + same, axis=0)
    return {"parent": parent, "strength": strength}, float(logsumexp(upward[0] + np.log([0.6, 0.4])))


def six_rows() -> tuple[dict[str, Any], float]:
    """The data of a grid of 6 x 50, and its log evidence by the recursion over columns of 64 states."""
    pixels = np.random.default_rng(1).normal(size=(6, 50))
    states = (np.arange(64)[:, None] >> np.arange(6)) & 1
    spins = 2 * states - 1
    inside = COUPLING * (spins[:, 1:] * spins[:, :-1]).sum(1) + 6 * np.log(0.5)
    seen = norm.logpdf(pixels.T[:, None], states, 0.8).sum(-1) + inside
    forward = seen[0]
    for column in seen[1:]:
        forward = logsumexp(forward[:, None] + COUPLING * spins @ spins.T, axis=0) + column
    return {"pixels": pixels}, float(logsumexp(forward))
