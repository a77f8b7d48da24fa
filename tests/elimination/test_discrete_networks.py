"""Networks of nodes that are named one by one, and labels of which some are given: compared with all their values."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import betaln, logsumexp

import bayeslab as bl
from bayeslab.programs.binding import bind

NUM_NODES = 8
TABLES = np.random.default_rng(0).dirichlet(np.ones(2), (NUM_NODES, 2, 2))
"""Probabilities of every node given the two before it."""


def network(tables: Any) -> None:
    first = second = jnp.array(0)
    for node in range(NUM_NODES):
        value = numpyro.sample(f"node{node}", dist.Categorical(tables[node, first, second]))
        first, second = second, value


@pytest.mark.slow
def test_nodes_that_are_named_one_by_one() -> None:
    """More of them than are tested each by itself; data that no values of them explain are refused."""
    log_joint = []
    for values in product((0, 1), repeat=NUM_NODES - 1):
        path = [0, 0, *values, 1]
        log_joint.append(np.log([TABLES[n, path[n], path[n + 1], path[n + 2]] for n in range(NUM_NODES)]).sum())
    tree = bl.fit(0, network, {"tables": TABLES, "node7": 1}, progress=False)
    assert tree.attrs["method"] == "Exact"
    assert tree.attrs["log_evidence"] == pytest.approx(logsumexp(log_joint), abs=1e-12)
    impossible = TABLES.copy()
    impossible[7] = [1.0, 0.0]
    with pytest.raises(ValueError, match="density of site 'node7' is zero or not a number"):
        bl.fit(0, network, {"tables": impossible, "node7": 1}, progress=False)


def classes(x: Any, label: Any) -> None:
    share = numpyro.sample("share", dist.Beta(2.0, 3.0))
    with numpyro.plate("row", len(x)):
        z = numpyro.sample("z", dist.Bernoulli(share), obs=label)
        numpyro.sample("x", dist.Bernoulli(jnp.array([0.2, 0.9])[z]), obs=x)


def test_labels_that_the_program_observes_may_be_missing() -> None:
    """Floats with NaN select among components; compared with all labels of the rows without one."""
    x, label = np.array([1, 0, 1, 0, 1]), np.array([1.0, 0.0, 0.0, np.nan, np.nan])
    every = np.array([[1, 0, 0, *rest] for rest in product((0, 1), repeat=2)])
    ones = every.sum(1)
    like = np.log(np.where(x == 1, np.array([0.2, 0.9])[every], np.array([0.8, 0.1])[every])).sum(1)
    log_joint = like + betaln(2 + ones, 3 + 5 - ones) - betaln(2, 3)
    tree = bl.fit(0, classes, {"x": x, "label": label}, bl.Gibbs(), progress=False)
    right = np.exp(log_joint - logsumexp(log_joint)) @ every
    np.testing.assert_allclose(tree["posterior"]["z"].mean(("chain", "draw")), right, atol=0.05)
    assert bind(classes, {"x": np.array([1, 0]), "label": np.full(2, np.nan)}).imputed == ("z",)
