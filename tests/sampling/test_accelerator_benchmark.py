"""The script that measures accelerators, with tiny sizes on a CPU."""

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

import bayeslab as bl
from bayeslab.programs.program import precision_scope

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "accelerators.py"
WORKS = run_path(str(SCRIPT))["WORKS"]


@pytest.mark.parametrize("name", WORKS)
def test_programs_fit_their_data(name: str) -> None:
    model, data, method = WORKS[name](tiny=True)
    with precision_scope():
        assert bl.bind(model, data).latent
    assert hasattr(method, "plan")


@pytest.mark.slow
def test_every_work_is_measured() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--tiny"], capture_output=True, text=True, check=True)
    rows = done.stdout.splitlines()[2:]
    assert len(rows) == len(WORKS)
    assert not [row for row in rows if "failed" in row or "not finished" in row]
