"""A hidden chain that is small enough for sums over all paths."""

from itertools import product
from typing import Any

import numpy as np
from scipy import stats

Array = np.ndarray[Any, Any]


INITIAL = np.array([0.5, 0.3, 0.2])


MOVES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])


MU = np.array([-1.5, 0.3, 2.0])


def paths(y: Array, mu: Array, future: int = 0) -> tuple[Array, Array]:
    """All paths (path, step) over the steps of y and those to come, and p(path | y)."""
    evidence = np.zeros((len(y) + future, 3))
    for step, value in enumerate(y):
        evidence[step] = 0.0 if np.isnan(value) else stats.norm(mu, 1).logpdf(value)
    every = np.array(list(product(range(3), repeat=len(evidence))))
    logs = np.log(INITIAL)[every[:, 0]] + evidence[np.arange(len(evidence)), every].sum(1)
    joint = np.exp(logs) * MOVES[every[:, :-1], every[:, 1:]].prod(1)
    return every, joint / joint.sum()
