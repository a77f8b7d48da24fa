"""Fits over several devices or processes, run as a script in processes of their own; prints what it finds as JSON.

mesh_fits.py quick | every_method                 needs four devices
mesh_fits.py process NUMBER CHECKPOINT EARLIER    one of two processes, as Slurm starts them
mesh_fits.py counted_process NUMBER PORT          one of two processes
mesh_fits.py long NUMBER PORT CHECKPOINT          one of two, which does not come to its end
"""

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bayeslab as bl
from bayeslab.models import gaussian_mixture, linear_regression, logistic_regression, structure_admixture
from bayeslab.programs.program import precision_scope
from bayeslab.sampling import checkpoints
from bayeslab.sampling.meshes import checked_mesh
from bayeslab.sampling.placement import Placement


def quick() -> dict[str, Any]:
    """The log joint and maxima of regressions on four devices, and what is said of wrong meshes.

    few: of five rows, of which four devices have two, two, one and none.
    """
    chains, both = jax.make_mesh((4,), ("chain",)), jax.make_mesh((2, 2), ("chain", "row"))
    counted, individuals = bl.mixed_membership.Gibbs, jax.make_mesh((4,), ("individual",))
    with precision_scope():
        values = {"w": jnp.array([0.3, -0.2]), "tau": jnp.array(1.5)}
        spread = {
            "logistic": spread_log_joint(logistic_regression, {"w": values["w"]}),
            "few": spread_log_joint(linear_regression, values, num_rows=5),
        }
    return {
        "spread": spread,
        "MAP": differences(logistic_regression, bl.MAP(num_starts=4), both),
        "sentences": {
            "chains": sentence(logistic_regression, bl.NUTS(num_chains=6), chains),
            "starts": sentence(logistic_regression, bl.MAP(num_starts=3), both),
            "one chain": sentence(logistic_regression, bl.SVI(), chains),
            "twice": sentence(structure_admixture, counted(mesh=individuals), individuals),
            "both": sentence(structure_admixture, counted(), jax.make_mesh((2, 2), ("chain", "individual"))),
        },
    }


def every_method() -> dict[str, Any]:
    """The largest differences between draws on one and on four devices."""
    rows, chains = jax.make_mesh((4,), ("row",)), jax.make_mesh((4,), ("chain",))
    both, individuals = jax.make_mesh((2, 2), ("chain", "row")), jax.make_mesh((4,), ("individual",))
    return {
        "NUTS": differences(logistic_regression, bl.NUTS(20, 20, 4), both, chains),
        "SVI": differences(logistic_regression, bl.SVI(num_steps=50, num_samples=5), rows),
        "Laplace": differences(logistic_regression, bl.Laplace(num_samples=5), rows),
        "Exact": differences(linear_regression, bl.Exact(num_samples=5), rows),
        "EM": differences(gaussian_mixture, bl.EM(num_starts=2), rows, both),
        "MeanField": differences(gaussian_mixture, bl.MeanField(num_starts=2, num_samples=5), rows, both),
        "Gibbs": differences(gaussian_mixture, bl.Gibbs(5, 5, 2), rows, both),
        "counts": differences(structure_admixture, bl.mixed_membership.Gibbs(3, 5, 4), individuals, chains),
    }


def process(number: str, checkpoint: str, earlier: str) -> dict[str, Any]:
    """What one of two processes gets: draws of rows and chains, checkpoints, and other versions and data than the other
    one has. earlier: the checkpoint of a single process."""
    versions = bl.distributed.package_versions()
    bl.distributed.package_versions = lambda: versions | ({"jax_version": "0.0.1"} if number == "1" else {})
    other_version = raised(bl.distributed.start)
    rows, chains = jax.make_mesh((2,), ("row",)), jax.make_mesh((2,), ("chain",))
    model, data = logistic_regression.model, logistic_regression.example()

    def draws(mesh: Any, **more: Any) -> list[Any]:
        tree = bl.fit(0, model, data, bl.NUTS(20, 20, 2), mesh=mesh, **more)
        return tree["posterior"]["w"].values.tolist()

    other = logistic_regression.example() | {"tau0": 1.0 + int(number)}
    return {
        "row": draws(rows, checkpoint=checkpoint),
        "other version": other_version,
        "earlier": draws(rows, checkpoint=earlier, progress=False),
        "chain": draws(chains, progress=False),
        "other data": raised(lambda: bl.fit(0, model, other, bl.MAP(), mesh=rows, progress=False)),
    }


def counted_process(number: str, port: str) -> dict[str, Any]:
    """What one of two processes gets where origins are counted."""
    here = bl.distributed.start(f"localhost:{port}", num_processes=2, process=int(number))
    assert here == (int(number), 2)
    method, mesh = bl.mixed_membership.Gibbs(3, 5, 2), jax.make_mesh((2,), ("individual",))
    tree = bl.fit(0, structure_admixture.model, structure_admixture.example(), method, progress=False, mesh=mesh)
    return {"ancestry": tree["posterior"]["ancestry"].values.tolist()}


def long(number: str, port: str, checkpoint: str) -> dict[str, Any]:
    """How many draws one of two processes has when it is interrupted."""
    bl.distributed.start(f"localhost:{port}", 2, int(number), seconds_to_live=20)
    checkpoints.MIN_SECONDS_BETWEEN_WRITES = 0.0
    checkpoints.FIRST_PORTION_SHARE = 1e-4
    model, data = logistic_regression.model, logistic_regression.example()
    mesh, method = jax.make_mesh((2,), ("row",)), bl.NUTS(20, 100_000, 1)
    tree = bl.fit(0, model, data, method, mesh=mesh, checkpoint=checkpoint, progress=False)
    return {"draws": tree["posterior"].sizes["draw"], "interrupted": int(tree.attrs["interrupted"])}


def differences(lecture: ModuleType, method: Any, *meshes: Any) -> dict[str, dict[str, float]]:
    """The largest difference of each site, and of the log densities of draws, from those on one device; by mesh."""
    model, data = lecture.model, lecture.example()
    one = bl.fit(0, model, data, method, progress=False)
    found = {}
    for mesh in meshes:
        many = bl.fit(0, model, data, method, progress=False, mesh=mesh)
        densities = {"lp", "evidence_bound", "log_evidence"} & set(one["sample_stats"].data_vars)
        pairs = {name: (one["posterior"][name], many["posterior"][name]) for name in one["posterior"].data_vars}
        pairs |= {name: (one["sample_stats"][name], many["sample_stats"][name]) for name in densities}
        found[" ".join(mesh.axis_names)] = {name: float(np.abs(a - b).max()) for name, (a, b) in pairs.items()}
    return found


def spread_log_joint(lecture: ModuleType, values: dict[str, Any], num_rows: int | None = None) -> dict[str, Any]:
    """The log joint and its gradient with rows on four devices, beside those on one.

    held: rows of the response that one device holds. sums: those over devices, in the compiled program.
    whole: whether the data can be gathered again.
    """
    data = lecture.example()
    bound = bl.bind(lecture.model, data | {name: data[name][:num_rows] for name in ("x", "y")})
    placement = Placement(checked_mesh(jax.make_mesh((4,), ("row",))), (("row", len(bound.observed["y"])),))
    layout = placement.layout(jax.eval_shape(lambda bound: bound, bound))
    placed = layout.put(bound)

    def evaluate(data: Any, values: Any) -> Any:
        return jax.value_and_grad(lambda values: layout.cut(data).log_joint(values))(values)

    code = placement.lower(evaluate, layout.stored, jax.eval_shape(dict, values)).compile()
    many = code(placed, jax.tree.map(np.asarray, values))
    one = jax.value_and_grad(bound.log_joint)(values)
    whole = jax.tree.leaves(layout.whole(placed))
    return {
        "rows": len(bound.observed["y"]),
        "held": len(placed.observed["y"].addressable_shards[0].data),
        "sums": code.as_text().count("all-reduce"),
        "error": max(jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(a / b - 1).max()), many, one))),
        "whole": all(map(np.array_equal, whole, jax.tree.leaves(bound))),
    }


def sentence(lecture: ModuleType, method: Any, mesh: Any) -> str:
    """What is said of a mesh that does not fit the method."""
    return raised(lambda: bl.fit(0, lecture.model, lecture.example(), method, progress=False, mesh=mesh))


def raised(call: Callable[[], Any]) -> str:
    """The text of the ValueError that a call raises; nothing where it raises none."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
