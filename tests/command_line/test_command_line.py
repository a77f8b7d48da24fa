"""The command line: what it prints and writes, and one sentence for every mistake."""

import os
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab.command_line.main import main
from bayeslab.models import LECTURES, normal_gamma
from bayeslab.results.saving import save

SHORT = ["--draws", "60", "--warmup", "60", "--chains", "2"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten rows with a text column, as a CSV file."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"height": rng.normal(170, 5, 10), "age": np.arange(10.0), "sex": list("mf" * 5)})
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    return path


def test_models_lists_every_lecture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [lecture.__name__.rpartition(".")[2] for lecture in LECTURES]


def test_explain_shows_the_sites(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "linear_regression"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("tau", "feature 11", "row 442", "observed"))


def test_demo_compares_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "normal_known_variance", "--out", str(tmp_path / "out"), "--draws", "100"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("log evidence", "Laplace", "MAP", "left out: with one", "ESS/s"))
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"posteriors.png", "comparison.png", "predictive.png", "rank.png", "elbo.png", "nuts.nc"} <= files
    with xr.open_datatree(tmp_path / "out" / "exact.nc") as tree:
        assert tree["posterior"].sizes["draw"] == 400


def test_fit_of_a_regression(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fit.nc"
    arguments = ["fit", "linear_regression", str(table), "--target", "height", "--set", "shrinkage=0.5"]
    assert main([*arguments, "-o", str(out), "--method", "nuts", *SHORT]) == 3  # so few draws are a problem
    assert "sex[m]" in capsys.readouterr().out
    with xr.open_datatree(out) as tree:
        assert tree["posterior"]["feature"].values.tolist() == ["intercept", "age", "sex[m]"]
        assert tree["posterior"].sizes["draw"] == 60
        assert float(tree["constant_data"]["shrinkage"]) == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.nc", "people.csv"]


def test_fit_resumes_where_its_file_ends(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "fit.nc"
    arguments = ["fit", "normal_gamma", str(table), "--column", "y=height", "--method", "gibbs", "--resume"]
    for draws in (20, 50):
        assert main([*arguments, "-o", str(out), "--draws", str(draws)]) == 3
        with xr.open_datatree(out) as tree:
            assert tree["posterior"].sizes["draw"] == draws
    assert main([*arguments, "-o", str(out), "--seed", "1"]) == 2


def test_chains_of_jobs_are_joined(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To the result of one command with all chains; a chain twice is refused."""
    arguments = ["fit", "normal_gamma", str(table), "--column", "y=height", "--method", "gibbs", "--draws", "20"]
    files = [str(tmp_path / name) for name in ("0.nc", "1.nc", "both.nc", "joined.nc")]
    for file, chain in zip(files, ("--chain=0", "--chain=1", "--chains=2"), strict=False):
        assert main([*arguments, chain, "-o", file]) == 3
    assert main(["join", *files[:2], "-o", files[3]]) == 3
    with xr.open_datatree(files[2]) as both, xr.open_datatree(files[3]) as joined:
        xr.testing.assert_equal(joined["posterior"].to_dataset(), both["posterior"].to_dataset())
    capsys.readouterr()
    assert main(["join", files[0], files[2], "-o", files[3]]) == 2
    assert "both have chain 0 of key 0 0, so the same draws; give each job its own --chain" in capsys.readouterr().err
    assert main([*arguments, "--chain", "1", "--chains", "2", "-o", files[0]]) == 2
    assert "--chain is one chain alone" in capsys.readouterr().err


def test_fit_maps_columns_and_counts_rows(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "fit.nc"
    arguments = ["fit", "normal_gamma", str(table), "--column", "y=height", "--set", "mu0=170", "--method", "exact"]
    assert main([*arguments, "--draws", "50", "-o", str(out)]) == 3
    with xr.open_datatree(out) as tree:
        assert tree["posterior"]["mu"].shape == (1, 50)
        assert abs(float(tree["posterior"]["mu"].mean()) - 170) < 10


def test_fit_takes_several_columns_as_a_table(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "mu0=[170, 5]", "--set", "scale=[[1, 0], [0, 1]]", "--set", "n0=3"]
    arguments = ["fit", "normal_wishart", str(table), "--column", "y=height,age", *settings, "--method", "map"]
    assert main([*arguments, "-o", str(tmp_path / "fit.nc")]) == 0
    assert "mu[height]" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # ArviZ's R-hat of labels that never change
def test_fit_and_demo_of_a_mixture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All methods but Exact, which says why not, are compared with Gibbs, in one order of components."""
    rows, out = tmp_path / "rows.csv", tmp_path / "fit.nc"
    y = np.random.default_rng(0).normal(np.repeat([-3.0, 0.0, 4.0], 5), 0.3)
    pd.DataFrame({"length": y}).to_csv(rows, index=False)
    arguments = [
        "fit",
        "gaussian_mixture",
        str(rows),
        "--column",
        "y=length",
        "--set",
        "num_components=3",
        "--method",
        "gibbs",
    ]
    assert main([*arguments, *SHORT, "-o", str(out)]) == 3
    with xr.open_datatree(out) as tree:
        assert tree["posterior"]["mu"].shape == (2, 60, 3)
    capsys.readouterr()
    assert main(["demo", "gaussian_mixture", "--out", str(tmp_path / "out"), "--draws", "100"]) == 0
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("Exact cannot eliminate", "aligned", "Against Gibbs", "SVI full rank"))
    with xr.open_datatree(tmp_path / "out" / "gibbs.nc") as tree:
        means = tree["posterior"]["mu"].mean("draw").values
        np.testing.assert_allclose(means, means[:1].repeat(4, axis=0), atol=0.1)
        assert tree["alignment"]["permutation"].shape == (4, 100, 2)


MISTAKES = {
    "command": (["modles"], ["modles", "models"]),
    "option": (["models", "--fast"], ["--fast"]),
    "model": (["explain", "normal_gama"], ["normal_gama", "Did you mean 'normal_gamma'"]),
    "model of demo": (["demo", "linear"], ["linear", "bayeslab models"]),
    "draws": (["demo", "normal_gamma", "--draws", "0"], ["--draws", "positive"]),
    "file": (["fit", "normal_gamma", "nowhere.csv", "-o", "{out}"], ["nowhere.csv"]),
    "empty file": (["fit", "normal_gamma", "{empty}", "-o", "{out}"], ["empty.csv", "CSV"]),
    "no rows": (["fit", "normal_gamma", "{header}", "-o", "{out}"], ["header.csv", "no rows"]),
    "not text": (["fit", "normal_gamma", "{binary}", "-o", "{out}"], ["binary.csv", "CSV"]),
    "no target": (["fit", "linear_regression", "{table}", "-o", "{out}"], ["--target", "height"]),
    "target": (["fit", "linear_regression", "{table}", "--target", "heigth", "-o", "{out}"], ["heigth", "'height'"]),
    "target elsewhere": (
        ["fit", "normal_gamma", "{table}", "--target", "age", "-o", "{out}"],
        ["target", "regressions"],
    ),
    "no column": (["fit", "normal_gamma", "{table}", "-o", "{out}"], ["--column", "num_rows", "height"]),
    "column": (["fit", "normal_gamma", "{table}", "--column", "y=heigth", "-o", "{out}"], ["heigth", "'height'"]),
    "site": (["fit", "normal_gamma", "{table}", "--column", "z=age", "-o", "{out}"], ["'z'", "normal_gamma"]),
    "form": (["fit", "normal_gamma", "{table}", "--column", "height", "-o", "{out}"], ["NAME=", "height"]),
    "value": (["fit", "normal_gamma", "{table}", "--column", "y=age", "--set", "mu0=low", "-o", "{out}"], ["low"]),
    "prior": (["fit", "normal_gamma", "{table}", "--column", "y=age", "--set", "alpha=-1", "-o", "{out}"], ["alpha"]),
    "setting": (["fit", "normal_gamma", "{table}", "--column", "y=age", "--set", "alpa=1", "-o", "{out}"], ["'alpha'"]),
    "chains": (
        ["fit", "normal_gamma", "{table}", "--column", "y=age", "--method", "svi", "--chains", "2", "-o", "{out}"],
        ["--chains", "SVI"],
    ),
    "folder": (["fit", "normal_gamma", "{table}", "--column", "y=age", "-o", "nowhere/fit.nc"], ["nowhere"]),
    "a folder": (["fit", "normal_gamma", "{table}", "--column", "y=age", "-o", "{folder}"], ["is a folder"]),
    "demo folder": (["demo", "normal_gamma", "--out", "{table}/demo"], ["people.csv"]),
}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence(
    arguments: list[str], words: list[str], table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {"empty": b"", "header": b"a,b\n", "binary": b"\xff\xfe\x00\x81,\n\x90\n"}
    paths = {name: tmp_path / f"{name}.csv" for name in contents}
    for name, content in contents.items():
        paths[name].write_bytes(content)
    paths |= {"table": table, "out": tmp_path / "fit.nc", "folder": tmp_path}
    assert main([argument.format(**paths) for argument in arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("bayeslab: ")
    assert printed.count("\n") == 1
    assert "Traceback" not in printed
    assert all(word in printed for word in words), printed
    assert not (tmp_path / "fit.nc").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fit.nc"
    path.write_text("old")

    def fail(source: Path, target: Path) -> None:
        assert source.parent == target.parent
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(xr.DataTree(xr.Dataset({"a": 1.0})), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_interrupted_draws_are_written(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = bl.fit

    def interrupted(*arguments: Any, **settings: Any) -> xr.DataTree:
        tree = fit(*arguments, **settings)
        tree.attrs["interrupted"] = 1
        return tree

    monkeypatch.setattr(import_module("bayeslab.fitting"), "fit", interrupted)
    arguments = ["fit", "normal_gamma", str(table), "--column", "y=height", "--method", "laplace"]
    assert main([*arguments, "-o", str(tmp_path / "fit.nc")]) == 130
    assert "finished draws" in capsys.readouterr().err
    with xr.open_datatree(tmp_path / "fit.nc") as tree:
        assert tree.attrs["interrupted"] == 1


def test_an_interruption_before_the_first_draw_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> dict:
        raise KeyboardInterrupt

    monkeypatch.setattr(normal_gamma, "data", interrupt)
    assert main(["explain", "normal_gamma"]) == 130
    assert capsys.readouterr().err == "bayeslab: interrupted\n"


def test_what_jax_cannot_run_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As too large an array; other errors at run time are ours."""

    def fail(error: type[Exception]) -> None:
        raise error("RESOURCE_EXHAUSTED: Out of memory\nallocating 80000000000 bytes.")

    monkeypatch.setattr(normal_gamma, "data", partial(fail, jax.errors.JaxRuntimeError))
    assert main(["explain", "normal_gamma"]) == 2
    said = "bayeslab: JAX could not run it: RESOURCE_EXHAUSTED: Out of memory allocating 80000000000 bytes.\n"
    assert capsys.readouterr().err == said
    monkeypatch.setattr(normal_gamma, "data", partial(fail, RuntimeError))
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        main(["explain", "normal_gamma"])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["fit"], ["frobnicate"]])
def test_help_and_mistakes_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys; from bayeslab.command_line.main import main\ntry: main({arguments})\nfinally: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not {"jax", "numpy", "pandas"} & set(done.stdout.splitlines()[-1].split())
    assert "bayeslab" in done.stdout.splitlines()[0] or "bayeslab" in done.stderr


@pytest.mark.parametrize(
    "command", ["fit linear_regression nowhere.csv -o fit.nc", "summary nowhere.nc", "compare nowhere.nc nowhere.nc"]
)
def test_a_file_that_is_not_there_is_told_at_once(command: str) -> None:
    """Before what takes seconds is imported."""
    script = (
        f"import sys; from bayeslab.command_line.main import main; main({command.split()}); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "there is no file 'nowhere." in done.stderr
    assert done.stdout == "False\n"


@pytest.fixture
def odd_table(tmp_path: Path) -> Path:
    """A regression whose columns have odd names, cells and labels."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"Income, net": range(12), "x": rng.normal(size=12), "notes": ["a" * 200_000, *"bcdefghijkl"]})
    frame["y"] = 1000 + 50 * frame["x"] + rng.normal(size=12)
    frame.to_csv(tmp_path / "odd.csv", index=False)
    return tmp_path / "odd.csv"


def test_names_with_commas_long_cells_and_names_given_twice(
    odd_table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, common = odd_table.with_suffix(".nc"), ["fit", "linear_regression", str(odd_table), "--target", "y"]
    left_out = ["--drop", "Income, net", "--drop", "notes"]
    assert main([*common, *left_out, "--method", "exact", "--draws", "500", "-o", str(out), "--quiet"]) == 0
    assert xr.load_datatree(out, engine="h5netcdf")["posterior"]["w"].shape[-1] == 2  # x and the intercept
    new = odd_table.with_name("new.csv")
    new.write_text("row,x\na,0.1\na,-0.2\n")
    assert main(["predict", str(out), str(new), "--json"]) == 0
    printed = capsys.readouterr().out
    assert '"1"' in printed
    assert '"2"' in printed
    assert main([*common, "--set", "a=1", "--set", "a=50", "-o", str(out)]) == 2
    assert "--set gives 'a' twice, 1 and 50" in capsys.readouterr().err
