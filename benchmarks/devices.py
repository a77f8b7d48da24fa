"""Time and memory of a logistic regression with many rows on one device, on two, and on two processes.

    python benchmarks/devices.py [ROWS]

Each variant runs in processes of its own, one chain of NUTS with rows spread, in turn, three times; the medians so far
are printed. One device has all cores in the first variant, and one core in the second.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from statistics import median

COLUMNS, NUM_WARMUP, NUM_SAMPLES, REPEATS = 10, 20, 20, 3
VARIANTS = {
    "one device": (1, 1, None),
    "one device, one core": (1, 1, 1),
    "two devices": (1, 2, None),
    "two processes, a core each": (2, 1, 1),
}
"""Processes, devices of each, cores of each (None: all)."""


def run_variant(processes: int, devices: int, cores: int | None, rows: int) -> dict[str, float]:
    """Seconds to sample and to compile, CPU seconds of a fit and megabytes, of the process that has most of each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    running = []
    for number in range(processes):
        command = [sys.executable, __file__, "one", *map(str, (number, processes, port, devices, rows))]
        pinned = [] if cores is None else ["taskset", "-c", str(number)]
        running.append(subprocess.Popen(pinned + command, env=flags, stdout=subprocess.PIPE, text=True))
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    return {name: max(result[name] for result in results) for name in results[0]}


def run_one(number: int, processes: int, port: int, devices: int, rows: int) -> dict[str, float]:
    """What one process measures."""
    import jax

    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", num_processes=processes, process_id=number)
    import numpy as np

    import bayeslab as bl
    from bayeslab.models import logistic_regression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, COLUMNS))
    y = (rng.random(rows) < 1 / (1 + np.exp(-x @ rng.normal(size=COLUMNS)))).astype(int)
    mesh = jax.make_mesh((processes * devices,), ("row",)) if processes * devices > 1 else None
    method = bl.NUTS(NUM_WARMUP, NUM_SAMPLES, 1, statistics=False)
    data, times = {"x": x, "y": y}, []
    for _ in range(2):  # the second fit compiles nothing, and takes the same gradients in every variant
        began = time.process_time()
        tree = bl.fit(0, logistic_regression.model, data, method, mesh=mesh, progress=False)
        times.append((tree.attrs["compile_seconds"], tree.attrs["sampling_seconds"], time.process_time() - began))
    return {
        "sampling s": times[1][1],
        "CPU s of a process": times[1][2],
        "compile s": times[0][0],
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(rows: int) -> None:
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(REPEATS):
        for name, variant in VARIANTS.items():
            measured[name].append(run_variant(*variant, rows))
            middle = {key: median(run[key] for run in measured[name]) for key in measured[name][0]}
            print(name.ljust(30), *(f"{key} {value:.1f}" for key, value in middle.items()), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(run_one(*map(int, sys.argv[2:]))))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 200_000)
