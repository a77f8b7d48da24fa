"""What devices of a mesh tell each other: the collectives in compiled code for eight virtual devices, and their bytes.

    python benchmarks/communication.py

It needs no second device and runs nothing: bytes are read from the shapes in the optimised program, once for every
place in the code. What runs for every draw, a gradient of NUTS or a sweep of Gibbs, is told apart from what gathers the
draws of a call, of which there are many.
"""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import re
from collections import Counter
from typing import Any

import jax
import numpy as np

import bayeslab as bl
from bayeslab.models import logistic_regression, structure_admixture
from bayeslab.planning import plan
from bayeslab.programs.program import compilation_signature, precision_scope
from bayeslab.sampling.executables import compile_sampler
from bayeslab.sampling.meshes import checked_mesh, placement_on
from bayeslab.transforms.analysis import Analysis

COLLECTIVE = re.compile(r"= (\(?[^=]*?\)?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(")
ARRAY = re.compile(r"(pred|[a-z]+(\d+))\[([\d,]*)\]")
IN_LOOP = "while/body"
"""What the name of an operation holds that runs for every draw; others run once a call, for all its draws."""


def collectives(text: str) -> dict[str, tuple[int, int]]:
    """The places, and the bytes of results, of each kind of collective in a compiled program, by where it runs."""
    places: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for line in text.splitlines():
        if found := COLLECTIVE.search(line):
            shapes, kind = found.groups()
            kind += " a draw" if IN_LOOP in line else " a call"
            places[kind] += 1
            for _, bits, axes in ARRAY.findall(shapes):
                sizes[kind] += int(bits or 8) // 8 * int(np.prod([int(axis) for axis in axes.split(",") if axis]))
    return {kind: (places[kind], sizes[kind]) for kind in places}


def of_one_draw(model: Any, data: dict[str, Any], method: Any, axis: str) -> dict[str, tuple[int, int]]:
    """The collectives of the code that draws, with the elements of a plate on eight devices."""
    with precision_scope():
        bound = bl.bind(model, data)
        mesh = checked_mesh(jax.make_mesh((8,), (axis,)))
        method, sampler, _ = plan(Analysis(bound), method, mesh)
        placement = placement_on(mesh, method, sampler, bound)
        code = compile_sampler(sampler, compilation_signature(bound), None, placement)
        return collectives(code.lowered["advance"]().compile().as_text())


def regression(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(rows, 10)), "y": rng.integers(0, 2, rows).astype(float)}


def panel(individuals: int, loci: int) -> dict[str, Any]:
    y = np.random.default_rng(0).integers(0, 2, (individuals, loci, 2)).astype(np.uint8)
    return {"num_individuals": individuals, "num_alleles": np.full(loci, 2), "num_populations": 5, "y": y}


def main() -> None:
    nuts = bl.NUTS(1, 1, 1, statistics=False)
    gibbs = bl.mixed_membership.Gibbs(1, 1, 1)
    for rows in (800, 1600):
        print("logistic regression", rows, of_one_draw(logistic_regression.model, regression(rows), nuts, "row"))
    for shape in ((80, 200), (160, 200), (80, 400)):
        print(
            "structure", shape, of_one_draw(structure_admixture.model, panel(*shape), gibbs, "individual"), flush=True
        )


if __name__ == "__main__":
    main()
