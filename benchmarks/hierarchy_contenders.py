"""One hierarchical model drawn by bayeslab's default and by JAGS in turn; hierarchies_jags.py starts it.

    python hierarchy_contenders.py MODEL ROUNDS

prints, as JSON, `first`: CPU seconds of the first `bl.fit`, planning and compiling included; `method`; `distance`: the
largest distance of two means, of draws of all rounds, in posterior deviations; `runs`: for either sampler the smallest
bulk ESS of a scalar and the CPU seconds of warm-up and draws, of every round.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "catalogue"))

import bayeslab as bl
from contenders import driven
from hierarchies import HIERARCHIES
from jags import jags_sampler
from problems import NUM_WARMUP
from race import HERE, ess


def main() -> None:
    name, rounds = sys.argv[1:]
    entry = HIERARCHIES[name]
    began = time.process_time()
    tree = bl.fit(0, entry.program, entry.data, progress=False)
    first = time.process_time() - began
    names = [str(site) for site in tree["posterior"].data_vars]
    model = (HERE / "jags" / f"{entry.program.__name__}.txt").read_text()
    samplers = {
        "bayeslab": driven(entry.program, entry.data),
        "JAGS": jags_sampler(model, entry.data, names, NUM_WARMUP),
    }
    runs: dict[str, list[tuple[float, float]]] = {sampler: [] for sampler in samplers}
    kept: dict[str, list[dict[str, Any]]] = {sampler: [] for sampler in samplers}
    samplers["bayeslab"](0)
    for seed in range(1, int(rounds) + 1):
        for sampler, run in samplers.items():
            seconds, draws = run(seed)
            draws = {site: np.asarray(draws[site]) for site in names if site in draws}
            runs[sampler].append((min(ess(value) for value in draws.values()), seconds))
            kept[sampler].append(draws)
    answer = {"first": first, "method": tree.attrs["method"], "distance": distance(*kept.values()), "runs": runs}
    print(json.dumps(answer))


def distance(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> float:
    """The largest distance of the means of a scalar in posterior deviations, over sites that both have."""
    gaps = [0.0]
    for site in ours[0].keys() & theirs[0].keys():
        size = ours[0][site][0, 0].size
        mine, other = (np.concatenate([draws[site].reshape(-1, size) for draws in kept]) for kept in (ours, theirs))
        gaps.append(float((abs(mine.mean(0) - other.mean(0)) / mine.std(0)).max()))
    return max(gaps)


if __name__ == "__main__":
    main()
