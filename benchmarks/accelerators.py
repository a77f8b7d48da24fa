"""Seconds of fits on JAX's default device: those for which an accelerator is wanted.

    python benchmarks/accelerators.py [--tiny] [--only NAME ...]

Every work runs in a process of its own, for 65 seconds at most, so that all end within nine minutes; of what has not
ended that is said. Each fits twice: the second fit compiles nothing. Columns are seconds of compiling, drawing and the
whole call. `JAX_PLATFORMS=cpu` in front gives the column to compare with, on the same machine. --tiny: sizes that
run anywhere, without a limit, to see that the script does.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS_PER_WORK = 65


def chain(tiny: bool) -> tuple[Any, ...]:
    """One sequence with five states of means 0, 2, 4, 6 and 8."""
    import numpy as np

    from bayeslab.models import gaussian_hmm

    states, steps = 5, 60 if tiny else 50_000
    random, stays = np.random.default_rng(0), np.arange(steps) // 20 % states
    y = 2.0 * stays + random.normal(size=steps)
    return gaussian_hmm.model, {"num_sequences": 1, "num_steps": steps, "num_states": states, "y": y[None]}


def states_em(tiny: bool) -> tuple[Any, ...]:
    import bayeslab as bl

    return *chain(tiny), bl.EM(num_starts=2 if tiny else 4)


def states_gibbs(tiny: bool) -> tuple[Any, ...]:
    import bayeslab as bl

    return *chain(tiny), bl.Gibbs(num_warmup=2, num_samples=3 if tiny else 100, num_chains=2)


def logistic(tiny: bool, rows: int = 100_000, columns: int = 30, num_chains: int = 4) -> tuple[Any, ...]:
    import numpy as np

    import bayeslab as bl
    from bayeslab.models import logistic_regression

    random = np.random.default_rng(0)
    x = random.normal(size=(20 if tiny else rows, 2 if tiny else columns))
    y = (random.random(len(x)) < 1 / (1 + np.exp(-x.sum(1) / 3))).astype(int)
    draws = 3 if tiny else 200
    method = bl.NUTS(num_warmup=draws, num_samples=draws, num_chains=2 if tiny else num_chains)
    return logistic_regression.model, {"x": x, "y": y}, method


def many_chains(tiny: bool) -> tuple[Any, ...]:
    return logistic(tiny, rows=100, num_chains=512)


def closed_form(tiny: bool) -> tuple[Any, ...]:
    import bayeslab as bl
    from bayeslab.models import normal_wishart

    return normal_wishart.model, normal_wishart.example(), bl.Exact(10 if tiny else 1000)


def topics(tiny: bool) -> tuple[Any, ...]:
    import bayeslab as bl
    from bayeslab.datasets import documents, simulated_documents
    from bayeslab.models import lda

    number, tokens, words, size = (6, 10, 8, 2) if tiny else (2_000, 200, 5_000, 50)
    data = documents(simulated_documents(number, tokens, words, size)["counts"]) | {"num_topics": size}
    draws = 2 if tiny else 25
    return lda.model, data, bl.mixed_membership.Gibbs(num_warmup=draws, num_samples=draws, num_chains=1)


def structure(tiny: bool) -> tuple[Any, ...]:
    import numpy as np

    import bayeslab as bl
    from bayeslab.datasets import genotypes
    from bayeslab.models import structure_admixture

    random = np.random.default_rng(0)
    individuals, loci, populations = (8, 10, 2) if tiny else (1_000, 10_000, 5)
    ancestry = random.dirichlet(np.full(populations, 0.3), individuals)
    frequencies = random.beta(0.5, 0.5, (populations, loci)).clip(0.02, 0.98)
    y = (random.random((individuals, loci, 2)) < (ancestry @ frequencies)[..., None]).astype(int)
    draws = 2 if tiny else 25
    method = bl.mixed_membership.Gibbs(num_warmup=draws, num_samples=draws, num_chains=1)
    return structure_admixture.model, genotypes(y) | {"num_populations": populations}, method


def process(tiny: bool) -> tuple[Any, ...]:
    import numpy as np

    import bayeslab as bl
    from bayeslab.models import gp_regression_unknown_kernel

    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 10, 12 if tiny else 4_000))
    draws = 3 if tiny else 50
    method = bl.NUTS(num_warmup=draws, num_samples=draws, num_chains=1)
    return gp_regression_unknown_kernel.model, {"x": x, "y": np.sin(x) + random.normal(size=len(x)) / 5}, method


WORKS: dict[str, Callable[[bool], tuple[Any, ...]]] = {
    "logistic regression, 100,000 x 30": logistic,
    "states, T = 50,000, EM": states_em,
    "states, T = 50,000, Gibbs": states_gibbs,
    "closed form": closed_form,
    "topics, 400,000 tokens": topics,
    "structure, 1,000 x 10,000": structure,
    "512 chains": many_chains,
    "Gaussian process, n = 4,000": process,
}


def measure(name: str, tiny: bool) -> dict[str, Any]:
    """The device, and (compile, draw, whole call) of two fits in seconds."""
    import jax

    import bayeslab as bl

    model, data, method = WORKS[name](tiny)
    fits = []
    for _ in range(2):
        began = time.perf_counter()
        attrs = bl.fit(0, model, data, method, progress=False).attrs
        fits.append([attrs["compile_seconds"], attrs["sampling_seconds"], time.perf_counter() - began])
    return {"device": jax.devices()[0].device_kind, "fits": fits}


def row(name: str, tiny: bool) -> str:
    """A row of the table, from a process of its own."""
    command = [sys.executable, __file__, "--one", name, *(["--tiny"] if tiny else [])]
    limit = None if tiny else SECONDS_PER_WORK
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"| {name} | | not finished after {SECONDS_PER_WORK} s | |"
    if done.returncode:
        return f"| {name} | | failed: {done.stderr.strip().splitlines()[-1]} | |"
    found = json.loads(done.stdout.splitlines()[-1])
    columns = [", ".join(f"{seconds:.2f}" for seconds in fit) for fit in found["fits"]]
    return f"| {name} | {found['device']} | {columns[0]} | {columns[1]} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="sizes that run anywhere")
    parser.add_argument("--only", nargs="*", choices=WORKS, default=list(WORKS), help="some of the works")
    parser.add_argument("--one", choices=WORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.tiny)))
    else:
        print("| work | device | first fit: compile, draw, whole call | second fit |\n|---|---|---|---|")
        for name in options.only:
            print(row(name, options.tiny), flush=True)
