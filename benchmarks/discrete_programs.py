"""Programs with discrete sites that meet, and what they take; `discrete.py` starts it, a case a process.

python discrete_programs.py CASE
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

import bayeslab as bl

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "catalogue"))

from discrete_graphs import COUPLING, grid, six_rows, thousand_nodes, tree

Numbers = dict[str, float]
ROUNDS = 5
SWEEPS_PER_DRAW = 20
"""Sweeps of the chessboard for a draw that is kept, so that sweeps take most of the time of a fit."""


def chessboard() -> Numbers:
    """A sweep of 64 x 64 pixels, and one in NumPy, in milliseconds."""
    pixels = np.random.default_rng(1).normal(size=(64, 64))
    ours, by_hand = [], []

    def draw(seed: int, number: int) -> None:
        bl.fit(seed, grid, {"pixels": pixels}, bl.Gibbs(0, number, 1, thinning=SWEEPS_PER_DRAW), progress=False)

    few, many = 10, 510
    draw(0, few)
    draw(0, many)
    for seed in range(ROUNDS):
        times = [seconds(lambda n=number, s=seed: draw(s, n)) for number in (few, many)]
        ours.append((times[1] - times[0]) / (SWEEPS_PER_DRAW * (many - few)))
        by_hand.append(seconds(lambda s=seed: sweeps_by_hand(pixels, 2000, s)) / 2000)
    return {"bayeslab": 1e3 * np.median(ours), "NumPy": 1e3 * np.median(by_hand)}


def sweeps_by_hand(pixels: np.ndarray, number: int, seed: int) -> np.ndarray:
    """The mean of the pixels over sweeps of a chessboard."""
    rng, field = np.random.default_rng(seed), (pixels - 0.5) / 0.64
    spins, total = rng.choice([-1.0, 1.0], pixels.shape), np.zeros(pixels.shape)
    colour = np.indices(pixels.shape).sum(0) % 2
    for _ in range(number):
        for chosen in (0, 1):
            near = np.zeros_like(spins)
            near[1:] += spins[:-1]
            near[:-1] += spins[1:]
            near[:, 1:] += spins[:, :-1]
            near[:, :-1] += spins[:, 1:]
            up = rng.random(pixels.shape) < 1 / (1 + np.exp(-field - 2 * COUPLING * near))
            spins = np.where(colour == chosen, np.where(up, 1.0, -1.0), spins)
        total += spins
    return total / number


NODES = 37
"""Nodes of the network; that of alarms in intensive care has as many, with up to four parents and four values."""


def network_tables() -> tuple[tuple[tuple[int, ...], ...], list[np.ndarray]]:
    """The parents of every node, and tables (*parents, node) of its own."""
    rng = np.random.default_rng(5)
    cards = rng.choice([2, 2, 3, 4], NODES)
    parents = tuple(
        tuple(sorted({int(i) for i in rng.integers(max(0, node - 6), node, rng.choice([0, 1, 1, 2, 3]))}))
        if node
        else ()
        for node in range(NODES)
    )
    tables = [rng.dirichlet(np.ones(cards[node]), tuple(int(cards[i]) for i in parents[node])) for node in range(NODES)]
    return parents, tables


def network(parents: Any, tables: Any) -> None:
    """A Bayes net as one writes it: a site a node."""
    values: list[Any] = []
    for node, table in enumerate(tables):
        probs = table[tuple(values[parent] for parent in parents[node])]
        values.append(numpyro.sample(f"node{node}", dist.Categorical(probs)))


def alarms() -> Numbers:
    """The probability of four findings at the end of the network."""
    parents, tables = network_tables()
    found = {f"node{node}": 1 for node in (20, 28, 33, 36)}
    operands: list[Any] = []
    for node, table in enumerate(tables):
        operands += [table, [*parents[node], node]]
    for node in (20, 28, 33, 36):
        operands += [np.eye(tables[node].shape[-1])[1], [node]]
    right = float(np.log(np.einsum(*operands, [], optimize="greedy")))
    return evidence(network, {"parents": parents, "tables": tables} | found, right)


def spike_and_slab(x: Any) -> None:
    """Which coefficients are in a regression."""
    with numpyro.plate("feature", x.shape[1]):
        inside = numpyro.sample("inside", dist.Bernoulli(0.2))
        slab = numpyro.sample("slab", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ (inside * slab), 1.0))


def indicators() -> Numbers:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 40))
    x[:, 20:] = 0.7 * x[:, :20] + 0.7 * x[:, 20:]
    w = np.zeros(40)
    w[[0, 3, 7, 25, 31]] = 0.6, -0.3, 0.2, 0.25, -0.2
    y = x @ w + rng.normal(size=200)
    began = time.process_time()
    result = bl.fit(0, spike_and_slab, {"x": x, "y": y}, progress=False)
    used = time.process_time() - began
    inside = result["posterior"]["inside"].values
    error = np.abs(inside.mean((0, 1)) - inclusion_by_hand(x, y, 4000)).max()
    return {"cold": used, "error": float(error)}


def inclusion_by_hand(x: np.ndarray, y: np.ndarray, sweeps: int) -> np.ndarray:
    """Inclusion probabilities by Gibbs sampling of the indicators with coefficients integrated out, averaged over the
    conditionals of many sweeps."""
    rng, number = np.random.default_rng(0), x.shape[1]
    products, offset = x.T @ x, x.T @ y

    def log_evidence(inside: np.ndarray) -> float:
        chosen = np.flatnonzero(inside)
        root = np.linalg.cholesky(products[np.ix_(chosen, chosen)] + np.eye(len(chosen)))
        white = np.linalg.solve(root, offset[chosen])
        return 0.5 * white @ white - np.log(np.diag(root)).sum()

    inside, total = np.zeros(number, bool), np.zeros(number)
    for sweep in range(-200, sweeps):
        for feature in range(number):
            values = []
            for choice in (False, True):
                inside[feature] = choice
                values.append(log_evidence(inside))
            probability = 1 / (1 + np.exp(values[0] - values[1] - np.log(0.2 / 0.8)))
            inside[feature] = rng.random() < probability
            total[feature] += probability * (sweep >= 0)
    return total / sweeps


def counts_by_scan(y: Any) -> None:
    with numpyro.plate("state", 3):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(3)))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.3))

    def step(last: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Categorical(rows[last]))
        numpyro.sample("y", dist.Poisson(rate[z]), obs=value)
        return z, None

    scan(step, 0, y)


def counts_by_chain(y: Any) -> None:
    with numpyro.plate("state", 3):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(3)))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.3))
    z = numpyro.sample("z", bl.MarkovChain(rows[0], rows, len(y)))
    with numpyro.plate("step", len(y)):
        numpyro.sample("y", dist.Poisson(rate[z]), obs=y)


def scan_and_chain() -> Numbers:
    """Milliseconds of a gradient of NUTS, warm-up and draws together, by both programs in turn."""
    rng = np.random.default_rng(0)
    z = np.repeat(rng.integers(0, 3, 100), 20)
    y = rng.poisson(np.array([1.0, 5.0, 14.0])[z])
    times: dict[str, list[float]] = {"scan": [], "chain": []}
    for seed in range(ROUNDS + 1):
        for name, program in (("scan", counts_by_scan), ("chain", counts_by_chain)):
            began = time.process_time()
            result = bl.fit(seed, program, {"y": y}, bl.NUTS(100, 100, 1, collapse=("z",)), progress=False)
            used = time.process_time() - began
            times[name].append(1e3 * used / float(result["sample_stats"]["n_steps"].sum()))
    return {name: float(np.median(each[1:])) for name, each in times.items()}


def evidence(program: Any, data: dict[str, Any], right: float) -> Numbers:
    """CPU seconds of a fit in a fresh process and of one more, and the error of its log evidence."""
    cold = seconds(lambda: bl.fit(0, program, data, bl.Exact(100), progress=False))
    began = time.process_time()
    result = bl.fit(1, program, data, bl.Exact(100), progress=False)
    again = time.process_time() - began
    return {"cold": cold, "again": again, "error": abs(result.attrs["log_evidence"] / right - 1)}


def seconds(call: Any) -> float:
    """CPU seconds of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


CASES = {
    "chessboard": chessboard,
    "tree": lambda: evidence(tree, *thousand_nodes()),
    "grid": lambda: evidence(grid, *six_rows()),
    "network": alarms,
    "indicators": indicators,
    "scan": scan_and_chain,
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]]()))
