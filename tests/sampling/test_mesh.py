"""Fits over the devices of a mesh: the same answers as on one device, data that are really split, wrong meshes.

Several devices or processes need Python processes of their own (`mesh_fits.py`); the tests look at what these found.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from jax.sharding import AbstractMesh, AxisType, Mesh

import bayeslab as bl
from bayeslab.models import logistic_regression as lecture
from bayeslab.models import structure_admixture

SCRIPT = Path(__file__).parents[1] / "catalogue" / "mesh_fits.py"
FOUR_DEVICES = "--xla_force_host_platform_device_count=4"


def run(*arguments: str, flags: str = "", more: Mapping[str, str] = {}) -> subprocess.Popen:
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"} | more
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> tuple[dict[str, Any], str]:
    """What a script found, and what it wrote to its stderr."""
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1]), err


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


def slurm(number: str, port: str) -> dict[str, str]:
    """What Slurm's environment says to one of two processes, and the port, which JAX would take from the job."""
    job = {"JOB_ID": "1", "STEP_NODELIST": "localhost", "NTASKS": "2", "PROCID": number, "LOCALID": number}
    return {f"SLURM_{name}": value for name, value in job.items()} | {"JAX_COORDINATOR_PORT": port}


def finish_both(both: list[subprocess.Popen]) -> list[tuple[dict[str, Any], str]]:
    """What each of two processes on this machine found."""
    try:
        return [finish(process) for process in both]
    finally:
        for process in both:
            process.kill()


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    return finish(run("quick", flags=FOUR_DEVICES))[0]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[dict[str, Any], str]], Path]:
    folder, port = tmp_path_factory.mktemp("processes"), free_port()
    file, earlier = folder / "fit.nc", folder / "earlier.nc"
    bl.fit(0, lecture.model, lecture.example(), bl.NUTS(20, 8, 2), checkpoint=earlier, progress=False)
    return finish_both(
        [run("process", number, str(file), str(earlier), more=slurm(number, port)) for number in "01"]
    ), file


@pytest.mark.parametrize("name", ["logistic", "few"])
def test_the_log_joint_is_that_of_one_device(quick: dict[str, Any], name: str) -> None:
    """With its gradient, to 1e-10, though four devices do not share the rows evenly: rows that pad take no part."""
    found = quick["spread"][name]
    assert found["error"] < 1e-10
    assert found["rows"] % 4 > 0
    assert found["held"] == -(-found["rows"] // 4)
    assert found["sums"] > 0
    assert found["whole"]


def test_maxima_are_those_of_one_device(quick: dict[str, Any]) -> None:
    assert quick["MAP"]["chain row"]["lp"] < 1e-10
    assert quick["MAP"]["chain row"]["w"] < 1e-5  # where L-BFGS stops, the square root of that


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("chains", "NUTS has 6 chains, which 4 devices of axis 'chain' do not share evenly; take num_chains=8"),
        ("starts", "MAP has 3 starts, which 2 devices of axis 'chain' do not share evenly; take num_starts=4"),
        ("one chain", "SVI has one chain, which 4 devices of axis 'chain' do not share"),
        ("twice", "mesh is given to fit and to the method; give it to fit alone"),
        ("both", "mesh has axes ['chain', 'individual'], but where origins are counted chains have one alone"),
    ],
)
def test_meshes_that_do_not_fit_the_method_are_refused(quick: dict[str, Any], case: str, words: str) -> None:
    assert quick["sentences"][case] == words


def test_two_processes_get_the_draws_of_one(processes: tuple[list[tuple[dict[str, Any], str]], Path]) -> None:
    (first, _), (second, _) = processes[0]
    assert first == second
    alone = bl.fit(0, lecture.model, lecture.example(), bl.NUTS(20, 20, 2), progress=False)["posterior"]["w"]
    np.testing.assert_allclose(first["row"], alone, atol=1e-6)
    np.testing.assert_allclose(first["chain"], alone, atol=1e-12)
    np.testing.assert_allclose(first["earlier"], alone, atol=1e-6)  # whose first draws are of one process


def test_one_process_shows_progress_and_writes(processes: tuple[list[tuple[dict[str, Any], str]], Path]) -> None:
    """The checkpoint of two processes is one of a single process too, which goes on with the draws of its own."""
    ((first, shown), (_, silent)), file = processes
    assert "NUTS: 100%" in shown
    assert "NUTS" not in silent
    tree = xr.load_datatree(file, engine="h5netcdf")
    np.testing.assert_array_equal(tree["posterior"]["w"], first["row"])
    more = bl.fit(0, lecture.model, lecture.example(), bl.NUTS(20, 25, 2), checkpoint=file, progress=False)
    alone = bl.fit(0, lecture.model, lecture.example(), bl.NUTS(20, 25, 2), progress=False)
    np.testing.assert_array_equal(more["posterior"]["w"][:, :20], first["row"])
    np.testing.assert_allclose(more["posterior"]["w"], alone["posterior"]["w"], atol=1e-6)


def test_a_process_with_other_data_or_versions_is_refused(
    processes: tuple[list[tuple[dict[str, Any], str]], Path],
) -> None:
    for found, _ in processes[0]:
        assert found["other data"] == "data differ between processes 0 and 1; every process needs the same"
        assert found["other version"] == (
            "versions of jax differ between processes 0 and 1; every process needs the same"
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, 2, 0), "address must be given as well, since no launcher such as srun says it"),
        (("first-host:1234", 2), "process must be given as well"),
        (("first-host", 2, 0), "address must be \"host:port\" of the first process, but is 'first-host'"),
        (("first-host:1234", 0, 0), "num_processes must be 1 or more, but is 0"),
        (("first-host:1234", 2, 2), "process is 2, but the 2 processes are numbered from 0 on"),
    ],
)
def test_processes_that_cannot_be_are_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.distributed.start(*arguments)


def test_a_process_that_nothing_is_said_of_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bl.distributed.start() == (0, 1)
    assert bl.distributed.start().is_first
    monkeypatch.setenv("JAX_PROCESS_ID", "first")
    with pytest.raises(ValueError, match="JAX_PROCESS_ID is 'first'; expected a number"):
        bl.distributed.start()


ONE = np.array(jax.devices()[:1])


@pytest.mark.parametrize(
    ("mesh", "error", "words"),
    [
        (Mesh(ONE, ("rows",)), ValueError, r"axis 'rows', but the plates of the program are \['feature', 'row'\]"),
        (Mesh(ONE[:0], ("row",)), ValueError, "mesh has no device"),
        (AbstractMesh((2,), ("row",), axis_types=(AxisType.Auto,)), TypeError, "mesh must be a jax.sharding.Mesh"),
        (2, TypeError, "mesh must be a jax.sharding.Mesh, such as .* not 2"),
    ],
    ids=["no plate", "no device", "no devices", "a number"],
)
def test_wrong_meshes_are_refused(mesh: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bl.fit(0, lecture.model, lecture.example(), bl.MAP(), mesh=mesh, progress=False)


@pytest.mark.slow
def test_every_method_draws_the_same_on_four_devices() -> None:
    """To rounding; points that an optimiser stops at, to its tolerance, and their densities to 1e-10; draws of NUTS to
    what forty make of rounding."""
    found, _ = finish(run("every_method", flags=FOUR_DEVICES))
    for method, by_mesh in found.items():
        for errors in by_mesh.values():
            for name, error in errors.items():
                loose = method == "Laplace" or (method == "EM" and name != "lp")
                tolerance = 1e-6 if method == "NUTS" else 1e-7 if loose else 1e-10
                assert error < tolerance, (method, name, error)


@pytest.mark.slow
def test_two_processes_count_the_same_origins() -> None:
    port = free_port()
    (first, _), (second, _) = finish_both([run("counted_process", number, port) for number in "01"])
    method, data = bl.mixed_membership.Gibbs(3, 5, 2), structure_admixture.example()
    alone = bl.fit(0, structure_admixture.model, data, method, progress=False)["posterior"]["ancestry"]
    assert first == second
    np.testing.assert_array_equal(first["ancestry"], alone.values)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_goes_on_alone(tmp_path: Path, how: signal.Signals) -> None:
    """One is killed: the other fails with a sentence soon, and one process goes on. Ctrl-C in one stops both."""
    file, port = tmp_path / "fit.nc", free_port()
    with run("long", "0", port, str(file)) as first, run("long", "1", port, str(file)) as second:
        try:
            while not file.exists():
                assert first.poll() is None, first.communicate()
                time.sleep(0.2)
            second.send_signal(how)
            if how == signal.SIGINT:
                (found, _), (other, _) = finish(first), finish(second)
                assert found == other
                assert found["interrupted"] == 1
                return
            _, error = first.communicate(timeout=30)
        finally:
            first.kill()
            second.kill()
    assert first.returncode == 1
    assert "a computation of several processes failed, as it does where one of them ends" in error
    done = xr.load_datatree(file, engine="h5netcdf")["posterior"]
    method = bl.NUTS(20, done.sizes["draw"] + 5, 1)
    more = bl.fit(0, lecture.model, lecture.example(), method, checkpoint=file, progress=False)["posterior"]
    assert more.sizes["draw"] == done.sizes["draw"] + 5
    np.testing.assert_array_equal(more["w"][:, :-5], done["w"])
