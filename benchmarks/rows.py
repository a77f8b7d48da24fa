"""CPU seconds that planning takes on many rows, the first time and the second; `planning.py` starts it.

python rows.py PROGRAM ROWS
"""

import json
import sys
import time
from typing import Any

import numpy as np

import bayeslab as bl
from bayeslab.models import gaussian_hmm, linear_regression, multivariate_gaussian_mixture
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis


def normal(rows: int, *columns: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, *columns))


def regression(rows: int) -> tuple[Any, dict[str, Any], Any]:
    return linear_regression.model, {"x": normal(rows, 10), "y": normal(rows)}, bl.Exact()


def mixture(rows: int) -> tuple[Any, dict[str, Any], Any]:
    prior = {"mu0": np.zeros(3), "scale": np.eye(3), "n0": 6.0}
    data = {"num_rows": rows, "num_components": 3, **prior, "y": normal(rows, 3)}
    return multivariate_gaussian_mixture.model, data, bl.EM()


def hidden_chain(rows: int) -> tuple[Any, dict[str, Any], Any]:
    data = {"num_sequences": 1, "num_steps": rows, "num_states": 4, "y": normal(1, rows)}
    return gaussian_hmm.model, data, bl.EM()


PROGRAMS = {
    "linear regression, Exact": regression,
    "mixture in space, EM": mixture,
    "hidden chain, EM": hidden_chain,
}

if __name__ == "__main__":
    name, rows = sys.argv[1:]
    model, data, method = PROGRAMS[name](int(rows))
    with precision_scope(np.float64):
        clock = [time.process_time()]
        for _ in range(2):
            method.plan(Analysis(bl.bind(model, data)))
            clock.append(time.process_time())
    print(json.dumps(np.diff(clock).tolist()))
